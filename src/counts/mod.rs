//! Counts: the windows of a rollup, as people ask for them.

use serde::Serialize;
use sqlx::PgExecutor;
use utoipa::ToSchema;

use crate::book::Book;
use crate::engine::aggregate::{State, StateError, Value};
use crate::rollup::Rollup;
use crate::stream::state::WindowState;
use crate::time::Timestamp;

/// One window of one group.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Count {
    /// First moment.
    #[schema(value_type = String, format = DateTime)]
    pub start: Timestamp,
    /// First moment after it.
    #[schema(value_type = String, format = DateTime)]
    pub end: Timestamp,
    /// The group.
    pub group: String,
    /// What was counted.
    pub value: Value,
    /// How far the window has come.
    pub state: WindowState,
}

/// Which windows are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Windows that overlap the time from here on.
    pub from: Option<Timestamp>,
    /// Windows that overlap the time before this.
    pub to: Option<Timestamp>,
    /// This group alone.
    pub group: Option<String>,
}

/// Where a page of counts begins: after this window and group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct After {
    /// First millisecond of the window.
    pub start_ms: i64,
    /// First millisecond after it.
    pub end_ms: i64,
    /// The group.
    pub group: String,
}

impl After {
    /// Before every window.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            start_ms: i64::MIN,
            end_ms: i64::MIN,
            group: String::new(),
        }
    }
}

impl Count {
    /// Where the next page begins.
    #[must_use]
    pub fn place(&self) -> After {
        After {
            start_ms: self.start.millis(),
            end_ms: self.end.millis(),
            group: self.group.clone(),
        }
    }
}

/// Why there are no counts.
#[derive(Debug, thiserror::Error)]
pub enum CountsError {
    /// What the database says.
    #[error("the counts could not be read")]
    Database(#[from] sqlx::Error),
    /// A stored window cannot be read.
    #[error("a stored window cannot be read")]
    State(#[from] StateError),
}

/// Up to `limit` windows of the rollup at `place` of the book's list, by start, end and group.
///
/// # Errors
/// See [`CountsError`].
pub async fn page(
    db: impl PgExecutor<'_>,
    book: &Book,
    (place, rollup): (i16, &Rollup),
    filter: &Filter,
    after: &After,
    limit: i64,
) -> Result<Vec<Count>, CountsError> {
    let size_ms = rollup.window.span_ms();
    let from = filter.from.map_or(i64::MIN, Timestamp::millis);
    let rows = sqlx::query!(
        "SELECT start_ms, end_ms, group_key, fired, state
         FROM windows
         WHERE book_id = $1 AND generation = $2 AND rollup = $3
           AND start_ms > $4 AND end_ms > $5 AND start_ms < $6
           AND ($7::text IS NULL OR group_key = $7)
           AND (start_ms, end_ms, group_key) > ($8, $9, $10)
         ORDER BY start_ms, end_ms, group_key LIMIT $11",
        book.id,
        book.generation,
        place,
        // No window is longer than its size; this bound is one that the index can use.
        from.saturating_sub(size_ms),
        from,
        filter.to.map_or(i64::MAX, Timestamp::millis),
        filter.group.as_deref(),
        after.start_ms,
        after.end_ms,
        after.group,
        limit,
    )
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Count {
                start: Timestamp::saturating_from_millis(row.start_ms),
                end: Timestamp::saturating_from_millis(row.end_ms),
                group: row.group_key,
                value: State::from_bytes(rollup.aggregate, &row.state)?.value(),
                state: WindowState::of(row.fired, row.end_ms, rollup, book.watermark),
            })
        })
        .collect()
}
