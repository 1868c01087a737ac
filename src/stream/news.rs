//! What is new of watched books, read in one statement.

use sqlx::PgPool;
use uuid::Uuid;

use super::cursor::Bounds;
use super::feed::{Head, PAGE_BYTES, PAGE_FRAMES};
use super::ring::Encoded;
use crate::engine::Watermark;

/// The book's row, and one of its new frames if there are any.
pub(super) struct Row {
    /// Place of the book in the list that was asked for, from 1.
    pub(super) place: i64,
    position: Option<i64>,
    oldest: Option<i64>,
    barrier: Option<i64>,
    /// Its input has ended, and no run is live.
    closed: Option<bool>,
    revision: Option<i64>,
    structure_version: Option<i64>,
    watermark_ms: Option<i64>,
    frame: Option<i64>,
    event: Option<String>,
    data: Option<String>,
}

/// For each book its row and the first of its frames after a position, by place and position. The
/// bounds and the frames of a book come from one snapshot of the database, so they fit together.
pub(super) async fn read(
    pool: &PgPool,
    books: &[Uuid],
    after: &[i64],
) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"SELECT u.place AS "place!", b.position AS "position?", b.oldest AS "oldest?",
                  b.barrier AS "barrier?",
                  b.closed AND b.live_run IS NULL AS "closed?", b.revision AS "revision?",
                  b.structure_version AS "structure_version?", b.watermark_ms AS "watermark_ms?",
                  f.position AS "frame?", f.event AS "event?", f.data AS "data?"
           FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS u(id, after, place)
           LEFT JOIN books b ON b.id = u.id AND NOT b.deleted
           LEFT JOIN LATERAL (
               SELECT n.position, n.event, n.data
               FROM (SELECT position, event, data,
                            sum(octet_length(data)) OVER (ORDER BY position)
                            - octet_length(data) AS bytes_before
                     FROM frames
                     WHERE book_id = b.id AND position > u.after
                     ORDER BY position LIMIT $3) n
               WHERE n.bytes_before < $4) f ON true
           ORDER BY u.place, f.position"#,
        books,
        after,
        PAGE_FRAMES,
        PAGE_BYTES,
    )
    .fetch_all(pool)
    .await
}

impl Row {
    /// What the row says of the book; `None` if there is none. `owes`: before it was read, this
    /// process owed the book clicks.
    pub(super) fn head(&self, as_of: u64, owes: bool) -> Option<Head> {
        Some(Head {
            bounds: Bounds {
                position: self.position?,
                oldest: self.oldest?,
                barrier: self.barrier?,
                at_rest: self.closed? && !owes,
            },
            revision: self.revision?,
            structure_version: self.structure_version?,
            watermark: Watermark::from_stored(self.watermark_ms),
            deleted: false,
            as_of,
        })
    }

    /// The frame.
    pub(super) fn frame(&self) -> Option<Encoded> {
        let (event, data) = (self.event.as_deref()?, self.data.as_deref()?);
        Some(Encoded::new(self.frame?, event, data))
    }
}
