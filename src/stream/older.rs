//! Frames from before a ring, read from the buffer in Postgres.
//!
//! There a frame may have gone into a newer one since the ring took it in. What is read therefore
//! goes up to the frame that says what the ring's last position before its frames said: that of this
//! position, or the first behind it.
//!
//! Between the frames there are the dead rows of those that went into others. The index is walked
//! over them once, for it marks them then; a bitmap of it would have all of them fetched, each time.
//! A limit that the planner does not know keeps it from that: it expects a part of the rows.

use sqlx::PgPool;
use uuid::Uuid;

use super::feed::{PAGE_BYTES, PAGE_FRAMES};
use super::ring::Encoded;

/// A stretch of a book's buffer, read with the book's row in one statement.
pub(super) struct Block {
    /// The book's `oldest`.
    pub(super) oldest: i64,
    /// All of the buffer after this position; known where the newest were read first.
    pub(super) after: i64,
    pub(super) frames: Vec<Encoded>,
}

/// Where frames are kept that a ring does not reach back to. `None`: there is no such book.
pub(super) trait Older {
    /// Why it could not be read.
    type Error;

    /// The newest frames up to the one that says what position `upto` said, about `most` bytes of
    /// them, newest first.
    async fn newest_first(&self, upto: i64, most: usize) -> Result<Option<Block>, Self::Error>;

    /// The oldest frames after `after`, up to the same, about `most` bytes of them, oldest first.
    async fn oldest_first(
        &self,
        after: i64,
        upto: i64,
        most: usize,
    ) -> Result<Option<Block>, Self::Error>;
}

/// The buffer of a book.
pub(super) struct Buffer<'a> {
    pub(super) pool: &'a PgPool,
    pub(super) book: Uuid,
}

impl Older for Buffer<'_> {
    type Error = sqlx::Error;

    async fn newest_first(&self, upto: i64, most: usize) -> Result<Option<Block>, sqlx::Error> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT b.oldest, f.position AS "position?", f.event AS "event?", f.data AS "data?",
                      f.before AS "before?"
               FROM books b
               LEFT JOIN LATERAL (
                   SELECT n.position, n.event, n.data, n.before
                   FROM (SELECT position, event, data,
                                lead(position) OVER (ORDER BY position DESC) AS before,
                                sum(octet_length(data)) OVER (ORDER BY position DESC)
                                - octet_length(data) AS bytes_before
                         FROM frames
                         WHERE book_id = b.id AND position >= b.oldest
                           AND position <= (SELECT coalesce(min(u.position), $2) FROM frames u
                                            WHERE u.book_id = b.id AND u.position >= $2)
                         ORDER BY position DESC LIMIT (SELECT $3::bigint)) n
                   WHERE n.bytes_before < $4) f ON true
               WHERE b.id = $1 AND NOT b.deleted
               ORDER BY f.position DESC"#,
            self.book,
            upto,
            PAGE_FRAMES,
            PAGE_BYTES.min(i64::try_from(most).unwrap_or(i64::MAX)),
        )
        .fetch_all(self.pool)
        .await?;
        Ok(block(rows))
    }

    async fn oldest_first(
        &self,
        after: i64,
        upto: i64,
        most: usize,
    ) -> Result<Option<Block>, sqlx::Error> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT b.oldest, f.position AS "position?", f.event AS "event?", f.data AS "data?",
                      $2::bigint AS "before?"
               FROM books b
               LEFT JOIN LATERAL (
                   SELECT n.position, n.event, n.data
                   FROM (SELECT position, event, data,
                                sum(octet_length(data)) OVER (ORDER BY position)
                                - octet_length(data) AS bytes_before
                         FROM frames
                         WHERE book_id = b.id AND position > $2
                           AND position <= (SELECT coalesce(min(u.position), $3) FROM frames u
                                            WHERE u.book_id = b.id AND u.position >= $3)
                         ORDER BY position LIMIT (SELECT $4::bigint)) n
                   WHERE n.bytes_before < $5) f ON true
               WHERE b.id = $1 AND NOT b.deleted
               ORDER BY f.position"#,
            self.book,
            after,
            upto,
            PAGE_FRAMES,
            i64::try_from(most).unwrap_or(i64::MAX),
        )
        .fetch_all(self.pool)
        .await?;
        Ok(block(rows))
    }
}

struct Row {
    oldest: i64,
    position: Option<i64>,
    event: Option<String>,
    data: Option<String>,
    /// The position of the frame before it, if there is one.
    before: Option<i64>,
}

fn block(rows: Vec<Row>) -> Option<Block> {
    let oldest = rows.first()?.oldest;
    let before = rows.last().and_then(|row| row.before);
    let frames = rows.into_iter().filter_map(|row| {
        let (position, event, data) = (row.position?, row.event?, row.data?);
        Some(Encoded::new(position, &event, &data))
    });
    Some(Block {
        oldest,
        after: before.unwrap_or(oldest - 1),
        frames: frames.collect(),
    })
}
