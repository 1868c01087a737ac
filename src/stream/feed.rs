//! One watched book: what is known of its row, and its newest frames, for all its readers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::PgPool;
use tokio::sync::watch;
use uuid::Uuid;

use super::cursor::Bounds;
use super::ring::{Encoded, Page, RING_BYTES, Ring};
use super::state;
use crate::engine::Watermark;

/// Most bytes of frames that are kept for all books, as long as each may keep [`LEAST_BYTES`].
const ALL_RINGS_BYTES: usize = 256 * 1024 * 1024;

/// What every watched book may keep.
const LEAST_BYTES: usize = 64 * 1024;

/// Most frames that one query brings.
pub(super) const PAGE_FRAMES: i64 = 512;

/// Most bytes of frames that one query brings, unless a single frame has more.
pub(super) const PAGE_BYTES: i64 = 1024 * 1024;

/// What was read of a book's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The bounds of its buffer.
    pub bounds: Bounds,
    /// Its revision.
    pub revision: i64,
    /// Version of its chapters.
    pub structure_version: i64,
    /// How far event time has come.
    pub watermark: Watermark,
    /// Whether the book was deleted.
    pub deleted: bool,
    /// Every wake-up up to this one had come before the row was read.
    pub as_of: u64,
}

impl Head {
    /// The head of a book of which nothing was read but that it is not there.
    pub(super) const NOWHERE: Self = Self {
        bounds: Bounds {
            position: 0,
            oldest: 1,
            barrier: 0,
            at_rest: false,
        },
        revision: 0,
        structure_version: 0,
        watermark: Watermark::MINUS_INFINITY,
        deleted: true,
        as_of: 0,
    };
}

/// One watched book.
#[derive(Debug)]
pub struct Feed {
    /// Which book.
    pub book: Uuid,
    pub(super) watchers: AtomicUsize,
    pub(super) head: watch::Sender<Option<Head>>,
    /// Wake-ups so far.
    wakes: AtomicU64,
    ring: Mutex<Ring>,
    /// Held while older frames are read, so that many readers cost one query.
    backfill: tokio::sync::Mutex<()>,
    /// The snapshot that was read last, for all readers that begin with one.
    pub(super) snapshot: tokio::sync::Mutex<Option<state::Encoded>>,
}

impl Feed {
    pub(super) fn new(book: Uuid) -> Self {
        Self {
            book,
            watchers: AtomicUsize::new(0),
            head: watch::Sender::new(None),
            wakes: AtomicU64::new(1),
            ring: Mutex::new(Ring::unknown()),
            backfill: tokio::sync::Mutex::new(()),
            snapshot: tokio::sync::Mutex::new(None),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a wake-up; the head is stale until it was read after it.
    pub(super) fn wake(&self) -> u64 {
        self.wakes.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::SeqCst)
    }

    /// The position after which frames are to be read.
    pub(super) fn upto(&self) -> i64 {
        self.ring().upto()
    }

    /// Takes in what one statement read: the head, and the frames after [`Feed::upto`]. Gives
    /// whether there are more. The book is one of `feeds` that share the memory.
    pub(super) fn refresh(&self, head: Head, frames: Vec<Encoded>, feeds: usize) -> bool {
        let limit = (ALL_RINGS_BYTES / feeds.max(1)).clamp(LEAST_BYTES, RING_BYTES);
        let more = self.ring().append(frames, head.bounds, limit);
        self.head.send_replace(Some(head));
        more
    }

    /// Takes in that the book is not there any more.
    pub(super) fn gone(&self, as_of: u64) {
        self.head.send_modify(|head| {
            *head = Some(Head {
                deleted: true,
                as_of,
                ..head.unwrap_or(Head::NOWHERE)
            });
        });
    }

    /// The frames after `cursor`, at most `most` bytes of them but at least one.
    #[must_use]
    pub fn page(&self, cursor: i64, most: usize) -> Page {
        self.ring().page(cursor, most)
    }

    /// The frames after `cursor`, which the ring does not reach back to, at most `most` bytes of
    /// them but at least one. Reads a block of the newest frames before the ring, for whoever else
    /// comes back; where the ring is full, a page for this reader alone.
    ///
    /// # Errors
    /// What the database says.
    pub async fn older(
        &self,
        pool: &PgPool,
        cursor: i64,
        most: usize,
    ) -> Result<Page, sqlx::Error> {
        let _one_at_a_time = self.backfill.lock().await;
        loop {
            match self.page(cursor, most) {
                Page::Older => {}
                page => return Ok(page),
            }
            let (after, room) = {
                let ring = self.ring();
                (ring.after(), ring.room())
            };
            let full = room == 0;
            let span = Span {
                book: self.book,
                after: cursor,
                upto: after,
            };
            let block = if full {
                span.oldest_first(pool, most).await?
            } else {
                span.newest_first(pool, room).await?
            };
            let Some((oldest, frames)) = block else {
                // The book is gone; the next reading of its row says so.
                return Ok(Page::CaughtUp);
            };
            if cursor < oldest - 1 {
                return Ok(Page::Pruned { oldest });
            }
            if !full {
                let mut ring = self.ring();
                if ring.after() == after {
                    let first = frames.last().map_or(oldest, |f| f.position);
                    ring.prepend(frames, first - 1);
                }
                continue;
            }
            if frames.is_empty() {
                // All of the span has gone into a newer frame, which the ring holds.
                return Ok(self.page(after, most));
            }
            return Ok(Page::Frames(frames));
        }
    }
}

/// A stretch of a book's buffer.
struct Span {
    book: Uuid,
    after: i64,
    upto: i64,
}

/// The book's `oldest`, and frames; `None` if there is no such book.
type Block = Option<(i64, Vec<Encoded>)>;

impl Span {
    /// The newest frames up to the end of the span, wherever it begins, about `most` bytes of them,
    /// newest first.
    async fn newest_first(&self, pool: &PgPool, most: usize) -> Result<Block, sqlx::Error> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT b.oldest, f.position AS "position?", f.event AS "event?", f.data AS "data?"
               FROM books b
               LEFT JOIN LATERAL (
                   SELECT n.position, n.event, n.data
                   FROM (SELECT position, event, data,
                                sum(octet_length(data)) OVER (ORDER BY position DESC)
                                - octet_length(data) AS bytes_before
                         FROM frames
                         WHERE book_id = b.id AND position >= b.oldest AND position <= $2
                         ORDER BY position DESC LIMIT $3) n
                   WHERE n.bytes_before < $4) f ON true
               WHERE b.id = $1 AND NOT b.deleted
               ORDER BY f.position DESC"#,
            self.book,
            self.upto,
            PAGE_FRAMES,
            PAGE_BYTES.min(i64::try_from(most).unwrap_or(i64::MAX)),
        )
        .fetch_all(pool)
        .await?;
        Ok(block(rows))
    }

    /// The oldest frames of the span, about `most` bytes of them, oldest first.
    async fn oldest_first(&self, pool: &PgPool, most: usize) -> Result<Block, sqlx::Error> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT b.oldest, f.position AS "position?", f.event AS "event?", f.data AS "data?"
               FROM books b
               LEFT JOIN LATERAL (
                   SELECT n.position, n.event, n.data
                   FROM (SELECT position, event, data,
                                sum(octet_length(data)) OVER (ORDER BY position)
                                - octet_length(data) AS bytes_before
                         FROM frames
                         WHERE book_id = b.id AND position > $2 AND position <= $3
                         ORDER BY position LIMIT $4) n
                   WHERE n.bytes_before < $5) f ON true
               WHERE b.id = $1 AND NOT b.deleted
               ORDER BY f.position"#,
            self.book,
            self.after,
            self.upto,
            PAGE_FRAMES,
            i64::try_from(most).unwrap_or(i64::MAX),
        )
        .fetch_all(pool)
        .await?;
        Ok(block(rows))
    }
}

struct Row {
    oldest: i64,
    position: Option<i64>,
    event: Option<String>,
    data: Option<String>,
}

fn block(rows: Vec<Row>) -> Block {
    let oldest = rows.first()?.oldest;
    let frames = rows.into_iter().filter_map(|row| {
        let (position, event, data) = (row.position?, row.event?, row.data?);
        Some(Encoded::new(position, &event, &data))
    });
    Some((oldest, frames.collect()))
}
