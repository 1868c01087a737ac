//! When a book's windows fire and close by themselves.

use sqlx::PgConnection;

use super::stored_rollup;
use crate::book::hot::{Due, LockedBook};
use crate::engine::{Plan, Watermark};
use crate::rollup::{Rollup, WindowSpec};
use crate::time::Timestamp;

/// When the next window of the book fires or closes, once the watermark is past `after`.
///
/// # Errors
/// What the database says.
pub async fn next_due(
    conn: &mut PgConnection,
    book: &LockedBook,
    plan: &Plan,
    after: Watermark,
) -> Result<Due, sqlx::Error> {
    let after_ms = after.stored().unwrap_or(i64::MIN);
    let (mut aligned, mut sessions) = (Closing::default(), Closing::default());
    for (place, rollup) in (0_u16..).zip(&plan.rollups) {
        match rollup.window {
            WindowSpec::Session { .. } => &mut sessions,
            WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } => &mut aligned,
        }
        .push(place, rollup, after_ms);
    }
    let due_ms = sqlx::query_scalar!(
        r#"SELECT min(due_ms) FROM (
               (SELECT end_ms AS due_ms FROM windows
                WHERE book_id = $1 AND generation = $2 AND NOT fired AND end_ms > $3
                ORDER BY end_ms LIMIT 1)
               UNION ALL
               SELECT next.end_ms + r.closes_after_ms
               FROM unnest($4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[])
                    AS r(rollup, span_ms, closes_after_ms, closed_until_ms)
               CROSS JOIN LATERAL (
                   SELECT w.end_ms FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = r.rollup
                     AND w.start_ms > r.closed_until_ms - r.span_ms
                   ORDER BY w.start_ms LIMIT 1) next
               UNION ALL
               SELECT next.end_ms + r.closes_after_ms
               FROM unnest($8::smallint[], $9::bigint[], $10::bigint[])
                    AS r(rollup, closes_after_ms, closed_until_ms)
               CROSS JOIN LATERAL (
                   SELECT w.end_ms FROM windows w
                   WHERE w.session AND w.end_ms > w.start_ms AND w.book_id = $1 AND w.generation = $2
                     AND w.rollup = r.rollup AND w.end_ms > r.closed_until_ms
                   ORDER BY w.end_ms LIMIT 1) next) AS all_due"#,
        book.id,
        book.generation,
        after_ms,
        &aligned.rollups,
        &aligned.spans_ms,
        &aligned.closes_after_ms,
        &aligned.closed_until_ms,
        &sessions.rollups,
        &sessions.closes_after_ms,
        &sessions.closed_until_ms,
    )
    .fetch_one(conn)
    .await?;
    Ok(due_ms.map_or(Due::Never, Due::At))
}

/// Before when no window of the book ends that has not fired, of those that end after `after`.
///
/// # Errors
/// What the database says.
pub async fn fires_from(
    conn: &mut PgConnection,
    book: &LockedBook,
    after: Watermark,
) -> Result<i64, sqlx::Error> {
    let end_ms = sqlx::query_scalar!(
        "SELECT end_ms FROM windows
         WHERE book_id = $1 AND generation = $2 AND NOT fired AND end_ms > $3
         ORDER BY end_ms LIMIT 1",
        book.id,
        book.generation,
        after.stored().unwrap_or(i64::MIN),
    );
    Ok(end_ms.fetch_optional(conn).await?.unwrap_or(i64::MAX))
}

/// When the windows of rollups close, column by column.
#[derive(Default)]
struct Closing {
    rollups: Vec<i16>,
    spans_ms: Vec<i64>,
    closes_after_ms: Vec<i64>,
    /// Windows that end at or before this are closed.
    closed_until_ms: Vec<i64>,
}

impl Closing {
    fn push(&mut self, place: u16, rollup: &Rollup, after_ms: i64) {
        self.rollups.push(stored_rollup(place));
        self.spans_ms.push(rollup.window.span_ms());
        self.closes_after_ms.push(rollup.closes_after_ms());
        // Far enough from the least number that the span can be taken off as well.
        let until_ms = after_ms.max(Timestamp::MIN.millis());
        self.closed_until_ms
            .push(until_ms - rollup.closes_after_ms());
    }
}
