//! The sessions that a snapshot shows.
//!
//! The start of a session does not say when it ends: one that began first may be the last that is
//! open. So they are walked by their end, from the newest on, and no further than they are shown.

use sqlx::PgConnection;

use super::state::{CLOSED_WINDOWS, GROUPS, Shown};
use crate::book::Book;

/// Most sessions, each of one group, that a snapshot shows of a rollup: there may be one for each
/// visitor.
const MOST: usize = 10_000;

/// How many are read at once.
const ROWS: usize = 500;

/// What a snapshot shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Sessions that end at or before this are closed.
    pub(super) closed_until: i64,
    /// Only those that end after this, but all of them.
    pub(super) since: Option<i64>,
}

/// A row of `windows`.
struct Session {
    start_ms: i64,
    end_ms: i64,
    group_key: String,
    fired: bool,
    weight: i64,
    state: Vec<u8>,
}

impl Session {
    fn window(&self) -> (i64, i64) {
        (self.end_ms, self.start_ms)
    }
}

/// The sessions of the rollup at `place`: those that are not closed and those of the newest closed
/// windows, or all since then; [`MOST`] at most, and then the oldest window says that there are
/// more.
pub(super) async fn newest(
    conn: &mut PgConnection,
    book: &Book,
    place: i16,
    bounds: Bounds,
) -> Result<Vec<Shown>, sqlx::Error> {
    let mut found: Vec<Session> = Vec::new();
    let mut closed_windows = 0;
    let mut last_closed = None;
    let mut before = (i64::MAX, i64::MAX, String::new());
    let more = 'read: loop {
        let rows = rows(conn, book, place, &before).await?;
        let last = rows.len() < ROWS;
        for session in rows {
            if let Some(since) = bounds.since {
                if session.end_ms <= since {
                    break 'read false;
                }
            } else if session.end_ms <= bounds.closed_until && last_closed != Some(session.window())
            {
                closed_windows += 1;
                last_closed = Some(session.window());
                if closed_windows > CLOSED_WINDOWS {
                    break 'read false;
                }
            }
            if found.len() == MOST {
                break 'read true;
            }
            before = (session.end_ms, session.start_ms, session.group_key.clone());
            found.push(session);
        }
        if last {
            break false;
        }
    };
    Ok(shown(found, more))
}

/// The greatest groups of each window.
fn shown(found: Vec<Session>, more: bool) -> Vec<Shown> {
    let oldest = found.last().map(Session::window).filter(|_| more);
    let most = usize::try_from(GROUPS).unwrap_or(usize::MAX);
    let mut shown = Vec::with_capacity(found.len());
    let mut found = found.into_iter().peekable();
    while let Some(first) = found.next() {
        let window = first.window();
        let mut groups = vec![first];
        while let Some(next) = found.next_if(|next| next.window() == window) {
            groups.push(next);
        }
        let more = groups.len() > most || oldest == Some(window);
        groups.sort_by(|a, b| (b.weight, &a.group_key).cmp(&(a.weight, &b.group_key)));
        groups.truncate(most);
        shown.extend(groups.into_iter().map(|group| Shown {
            start_ms: group.start_ms,
            end_ms: group.end_ms,
            group_key: group.group_key,
            fired: group.fired,
            state: group.state,
            more,
        }));
    }
    shown
}

async fn rows(
    conn: &mut PgConnection,
    book: &Book,
    place: i16,
    (end_ms, start_ms, group): &(i64, i64, String),
) -> Result<Vec<Session>, sqlx::Error> {
    sqlx::query_as!(
        Session,
        "SELECT start_ms, end_ms, group_key, fired, weight, state
         FROM windows
         WHERE session AND end_ms > start_ms AND book_id = $1 AND generation = $2 AND rollup = $3
           AND end_ms <= $4 AND (end_ms, start_ms, group_key) < ($4, $5, $6)
         ORDER BY end_ms DESC, start_ms DESC, group_key DESC LIMIT $7",
        book.id,
        book.generation,
        place,
        end_ms,
        start_ms,
        group,
        i64::try_from(ROWS).unwrap_or(i64::MAX),
    )
    .fetch_all(conn)
    .await
}
