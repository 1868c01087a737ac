//! Where a reader wants to go on.

/// What a request says about where to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Nothing: the stream begins live.
    Live,
    /// After this position.
    After(i64),
    /// From the oldest frame that is still kept.
    Earliest,
    /// Something in the `Last-Event-ID` header that is no position.
    Malformed(String),
}

/// Something in the query that is no position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no position: a whole number from 0, without sign or leading zeros, or `earliest`"
)]
pub struct BadQuery(pub String);

/// Reads the cursor of a request: the header, else the first query parameter that is not empty.
/// The header wins, for the URL is as old as the page.
///
/// # Errors
/// The query parameter that counts is malformed; whoever wrote it can mend it. A malformed header
/// is no error, for a browser would never come back.
pub fn asked(header: Option<&[u8]>, query: &[Option<&str>]) -> Result<Asked, BadQuery> {
    let header = header.map(<[u8]>::trim_ascii).filter(|h| !h.is_empty());
    if let Some(header) = header {
        let text = String::from_utf8_lossy(header);
        return Ok(match position(&text) {
            Some(position) => Asked::After(position),
            None => Asked::Malformed(text.chars().take(64).collect()),
        });
    }
    let mut given = query.iter().flatten().map(|q| q.trim_ascii());
    match given.find(|q| !q.is_empty()) {
        None => Ok(Asked::Live),
        Some("earliest") => Ok(Asked::Earliest),
        Some(text) => match position(text) {
            Some(position) => Ok(Asked::After(position)),
            None => Err(BadQuery(text.chars().take(64).collect())),
        },
    }
}

/// `0|[1-9][0-9]{0,18}`, at most 2^63−1.
fn position(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse().ok()
}

/// What a reader gets, judged against one reading of the book's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Frames after the newest.
    Live,
    /// Frames after this position, then live.
    Replay(i64),
    /// Told to read a snapshot, then live.
    Resync(Reason),
    /// Nothing, and nothing will come: 204.
    AtRest,
}

/// Why a reader has to read a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Frames after its cursor were pruned.
    Pruned,
    /// Its cursor is ahead of the book.
    Ahead,
    /// Its cursor is none.
    Malformed,
    /// The counts were replaced wholesale.
    Replaced,
}

impl Reason {
    /// As the stream says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pruned => "pruned",
            Self::Ahead => "ahead",
            Self::Malformed => "malformed",
            Self::Replaced => "replaced",
        }
    }
}

/// The bounds of a book's buffer, read in one statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The newest position.
    pub position: i64,
    /// One more than the highest position that was pruned away.
    pub oldest: i64,
    /// The position of the last wholesale replacement.
    pub barrier: i64,
    /// Whether nothing more will come.
    pub at_rest: bool,
}

/// The cursor table of the contract, section 6: the first row that fits holds.
#[must_use]
pub fn start(asked: &Asked, bounds: Bounds) -> Start {
    let cursor = match asked {
        Asked::Live => return Start::Live,
        Asked::Malformed(_) => return Start::Resync(Reason::Malformed),
        Asked::After(cursor) => *cursor,
        Asked::Earliest => bounds.oldest - 1,
    };
    if cursor > bounds.position {
        Start::Resync(Reason::Ahead)
    } else if cursor < bounds.barrier {
        Start::Resync(Reason::Replaced)
    } else if cursor < bounds.oldest - 1 {
        Start::Resync(Reason::Pruned)
    } else if bounds.at_rest && cursor == bounds.position {
        Start::AtRest
    } else {
        Start::Replay(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        header: Option<String>,
        query: String,
        outcome: String,
    }

    const LIVE: Bounds = Bounds {
        position: 20,
        oldest: 10,
        barrier: 0,
        at_rest: false,
    };

    fn outcome(case: &Case) -> String {
        let value = |name: &str| {
            let pairs = case.query.split('&').filter_map(|p| p.split_once('='));
            pairs.into_iter().find(|(n, _)| *n == name).map(|(_, v)| v)
        };
        let names = ["last_event_id", "lastEventId", "lastEventID"];
        let query = names.map(value);
        match asked(case.header.as_deref().map(str::as_bytes), &query) {
            Err(_) => "400".to_owned(),
            Ok(asked) => match start(&asked, LIVE) {
                Start::Live => "live".to_owned(),
                Start::Replay(cursor) => format!("replay {}..", cursor + 1),
                Start::Resync(reason) => format!("resync {}", reason.as_str()),
                Start::AtRest => "204".to_owned(),
            },
        }
    }

    #[test]
    fn golden_cases() {
        let cases = include_str!("../../tests/golden/cursors.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() >= 24);
        for case in cases {
            assert_eq!(
                outcome(&case),
                case.outcome,
                "{:?} {}",
                case.header,
                case.query
            );
        }
    }

    #[test]
    fn at_rest_and_barrier() {
        let rest = Bounds {
            at_rest: true,
            ..LIVE
        };
        assert_eq!(start(&Asked::After(20), rest), Start::AtRest);
        assert_eq!(start(&Asked::After(19), rest), Start::Replay(19));
        assert_eq!(start(&Asked::After(21), rest), Start::Resync(Reason::Ahead));
        let replaced = Bounds {
            barrier: 15,
            ..LIVE
        };
        assert_eq!(
            start(&Asked::After(14), replaced),
            Start::Resync(Reason::Replaced)
        );
        assert_eq!(start(&Asked::After(15), replaced), Start::Replay(15));
        let earliest = start(&Asked::Earliest, replaced);
        assert_eq!(earliest, Start::Resync(Reason::Replaced));
        assert_eq!(start(&Asked::Earliest, LIVE), Start::Replay(9));
    }
}
