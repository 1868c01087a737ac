//! Which windows a query chooses, and the statements that read them row by row.
//!
//! All but the sessions that began before `from` are found by a walk along the primary key.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Filter;
use crate::book::Book;
use crate::rollup::{Rollup, WindowSpec};
use crate::time::Timestamp;

/// A place in the order of windows, by start and end, in milliseconds.
pub(super) type Edge = (i64, i64);

/// A place in the order of windows and groups.
pub(super) type Key = (i64, i64, String);

/// The windows from one place in their order up to, but not with, another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) from: Edge,
    pub(super) until: Edge,
}

impl Stretch {
    pub(super) const NOTHING: Self = Self {
        from: (0, 0),
        until: (0, 0),
    };

    pub(super) fn with(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            until: self.until.min(other.until),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.from >= self.until
    }
}

/// The windows that a query chooses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<'a> {
    pub(super) book: Uuid,
    pub(super) generation: i32,
    pub(super) rollup: i16,
    pub(super) group: Option<&'a str>,
    window: WindowSpec,
    from_ms: i64,
    to_ms: i64,
    /// Only these.
    pub(super) within: Option<Stretch>,
}

/// Windows that one statement finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) stretch: Stretch,
    /// They end after this.
    pub(super) ends_after_ms: i64,
    /// They are sessions that began before `from`: where their starts begin is not known, so they
    /// are found by their end.
    pub(super) straddling: bool,
}

/// A row of `windows`.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
    pub(super) group_key: String,
    pub(super) fired: bool,
    pub(super) weight: i64,
    pub(super) state: Vec<u8>,
}

impl Stored {
    /// Where the rows begin that come after this one.
    pub(super) fn next(&self) -> Key {
        after((self.start_ms, self.end_ms), &self.group_key)
    }
}

/// The first place after a window of a group. Text holds no NUL, so that nothing comes between a
/// text and the same with U+0001 behind it.
pub(super) fn after((start_ms, end_ms): Edge, group: &str) -> Key {
    (start_ms, end_ms, format!("{group}\u{1}"))
}

/// The first place of a window. No text comes before the empty one.
pub(super) fn beginning((start_ms, end_ms): Edge) -> Key {
    (start_ms, end_ms, String::new())
}

impl<'a> Selection<'a> {
    pub(super) fn new(book: &Book, place: i16, rollup: &Rollup, filter: &'a Filter) -> Self {
        Self {
            book: book.id,
            generation: book.generation,
            rollup: place,
            group: filter.group.as_deref(),
            window: rollup.window,
            from_ms: filter.from.map_or(i64::MIN, Timestamp::millis),
            to_ms: filter.to.map_or(i64::MAX, Timestamp::millis),
            within: None,
        }
    }

    /// Those of them that lie in `stretch`.
    pub(super) fn narrowed(mut self, stretch: Stretch) -> Self {
        self.within = Some(self.within.map_or(stretch, |within| within.with(stretch)));
        self
    }

    /// The moment that the newest of them could end at, if that is bounded, for windows that lie
    /// side by side.
    pub(super) fn newest_end_ms(&self, size_ms: i64) -> i64 {
        if self.to_ms == i64::MAX {
            return i64::MAX;
        }
        let started = (self.to_ms - 1).div_euclid(size_ms).saturating_mul(size_ms);
        started.saturating_add(size_ms)
    }

    /// The time that they overlap from, if it was given.
    pub(super) fn from(&self) -> Option<Timestamp> {
        Timestamp::from_millis(self.from_ms)
    }

    pub(super) fn of_sessions(&self) -> bool {
        matches!(self.window, WindowSpec::Session { .. })
    }

    /// What to look for, in order.
    pub(super) fn ranges(&self) -> impl DoubleEndedIterator<Item = Range> + use<> {
        let begun = match self.window {
            // No window is longer than its size.
            WindowSpec::Tumbling { size_ms } | WindowSpec::Sliding { size_ms, .. } => {
                self.from_ms.saturating_sub(size_ms).saturating_add(1)
            }
            WindowSpec::Session { .. } => self.from_ms,
        };
        let started = |from_ms: i64, to_ms: i64, straddling| Range {
            stretch: Stretch {
                from: (from_ms, i64::MIN),
                until: (to_ms, i64::MIN),
            },
            ends_after_ms: self.from_ms,
            straddling,
        };
        let before = self.from_ms.min(self.to_ms);
        let straddling = self.of_sessions().then(|| started(i64::MIN, before, true));
        let within = self.within;
        let ranges = straddling
            .into_iter()
            .chain([started(begun, self.to_ms, false)]);
        ranges
            .map(move |range| Range {
                stretch: within.map_or(range.stretch, |within| range.stretch.with(within)),
                ..range
            })
            .filter(|range| !range.stretch.is_empty())
    }
}

/// Up to `limit` rows from `from` on, by start, end and group.
pub(super) async fn rows(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    from: &Key,
    limit: usize,
) -> Result<Vec<Stored>, sqlx::Error> {
    let mut rows = Vec::new();
    for range in selection.ranges() {
        let left = limit - rows.len();
        let (from, until) = (
            beginning(range.stretch.from).max(from.clone()),
            range.stretch.until,
        );
        if left == 0 || (from.0, from.1) >= until {
            continue;
        }
        let left = sql_number(left);
        let found = if range.straddling {
            straddling_rows(conn, selection, &range, &from, left).await?
        } else {
            rows_in(conn, selection, &range, &from, left).await?
        };
        rows.extend(found);
    }
    Ok(rows)
}

async fn rows_in(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    range: &Range,
    (start_ms, end_ms, group): &Key,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    // One lower bound, not two: Postgres begins its walk at the first that it finds.
    sqlx::query_as!(
        Stored,
        "SELECT start_ms, end_ms, group_key, fired, weight, state
         FROM windows
         WHERE book_id = $1 AND generation = $2 AND rollup = $3
           AND (start_ms, end_ms, group_key) >= ($4, $5, $6)
           AND (start_ms, end_ms) < ($7, $8) AND end_ms > $9
           AND ($10::text IS NULL OR group_key = $10) AND (NOT $11 OR session)
         ORDER BY start_ms, end_ms, group_key LIMIT $12",
        selection.book,
        selection.generation,
        selection.rollup,
        start_ms,
        end_ms,
        group,
        range.stretch.until.0,
        range.stretch.until.1,
        range.ends_after_ms,
        selection.group,
        selection.of_sessions(),
        limit,
    )
    .fetch_all(conn)
    .await
}

/// Sessions that began before `from` and ended after it. `OFFSET 0` has them found by their end
/// alone: the planner does not know that starts and ends go together, and would expect to come upon
/// some wherever it begins to look.
async fn straddling_rows(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    range: &Range,
    (start_ms, end_ms, group): &Key,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as!(
        Stored,
        "SELECT start_ms, end_ms, group_key, fired, weight, state
         FROM (SELECT start_ms, end_ms, group_key, fired, weight, state
               FROM windows
               WHERE session AND end_ms > start_ms AND book_id = $1 AND generation = $2 AND rollup = $3 AND end_ms > $4
                 AND ($5::text IS NULL OR group_key = $5)
               OFFSET 0) w
         WHERE (start_ms, end_ms, group_key) >= ($6, $7, $8) AND (start_ms, end_ms) < ($9, $10)
         ORDER BY start_ms, end_ms, group_key LIMIT $11",
        selection.book,
        selection.generation,
        selection.rollup,
        range.ends_after_ms,
        selection.group,
        start_ms,
        end_ms,
        group,
        range.stretch.until.0,
        range.stretch.until.1,
        limit,
    )
    .fetch_all(conn)
    .await
}

pub(super) fn sql_number(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
