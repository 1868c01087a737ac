//! What a transaction leaves behind of its books: their new frames and their rows.

use sqlx::PgConnection;
use uuid::Uuid;

use super::NewFrame;
use crate::book::hot::{LockedBook, Version};

/// Stores the frames that a transaction minted, and writes back what it moves: `books` are the locked
/// rows as they are to be. One statement, for each way to the server and back takes as long as the
/// work itself. Gives the version that the rows have once the transaction is committed, whatever else
/// it writes to them; `None` without books.
///
/// # Errors
/// What the database says.
pub async fn store(
    conn: &mut PgConnection,
    books: &[&LockedBook],
    frames: &[NewFrame],
) -> Result<Option<Version>, sqlx::Error> {
    let column = |of: fn(&LockedBook) -> i64| -> Vec<i64> { books.iter().map(|b| of(b)).collect() };
    let nullable = |of: fn(&LockedBook) -> Option<i64>| -> Vec<Option<i64>> {
        books.iter().map(|b| of(b)).collect()
    };
    let ids: Vec<Uuid> = books.iter().map(|b| b.id).collect();
    let frames = Columns::of(frames);
    let version = sqlx::query_scalar!(
        r#"WITH minted AS (
               INSERT INTO frames (book_id, position, event, data)
               SELECT unnest($17::uuid[]), unnest($18::bigint[]), unnest($19::text[]),
                      unnest($20::text[]))
           UPDATE books b
           SET position = u.position, oldest = u.oldest, revision = u.revision,
               watermark_ms = u.watermark_ms, newest_event_ms = u.newest_event_ms,
               last_received_ms = u.last_received_ms, due_ms = u.due_ms,
               received = u.received, on_time = u.on_time, late = u.late, dropped = u.dropped,
               duplicates = u.duplicates, filtered = u.filtered, rejected = u.rejected,
               next_seq = u.next_seq
           FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                       $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[],
                       $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
                       $16::bigint[])
                AS u(id, position, oldest, revision, watermark_ms, newest_event_ms,
                     last_received_ms, due_ms, received, on_time, late, dropped, duplicates, filtered,
                     rejected, next_seq)
           WHERE b.id = u.id
           RETURNING b.xmin::text::bigint AS "version!""#,
        &ids,
        &column(|b| b.position),
        &column(|b| b.oldest),
        &column(|b| b.revision),
        &nullable(|b| b.progress.watermark.stored()) as &[Option<i64>],
        &nullable(|b| b.progress.newest_event_ms) as &[Option<i64>],
        &nullable(|b| b.last_received_ms) as &[Option<i64>],
        &nullable(|b| b.due.stored()) as &[Option<i64>],
        &column(|b| b.totals.received),
        &column(|b| b.totals.on_time),
        &column(|b| b.totals.late),
        &column(|b| b.totals.dropped),
        &column(|b| b.totals.duplicates),
        &column(|b| b.totals.filtered),
        &column(|b| b.totals.rejected),
        &column(|b| b.next_seq),
        &frames.books,
        &frames.positions,
        &frames.events as &[&str],
        &frames.data as &[&str],
    )
    .fetch_optional(conn)
    .await?;
    Ok(version.map(Version))
}

/// Frames column by column, as the statements that store them want them.
pub struct Columns<'a> {
    books: Vec<Uuid>,
    /// Of each, its position.
    pub positions: Vec<i64>,
    /// Of each, its name on the stream.
    pub events: Vec<&'a str>,
    /// Of each, its line of JSON.
    pub data: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    /// The columns of `frames`.
    #[must_use]
    pub fn of(frames: &'a [NewFrame]) -> Self {
        Self {
            books: frames.iter().map(|f| f.book).collect(),
            positions: frames.iter().map(|f| f.position).collect(),
            events: frames.iter().map(|f| f.event).collect(),
            data: frames.iter().map(|f| f.data.as_str()).collect(),
        }
    }
}
