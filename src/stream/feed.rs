//! The newest frames of one watched book, encoded once for all its readers.
//!
//! A [`Ring`] is a run of frames without a hole: it holds every frame after `after` up to `upto`.
//! What it knows of the book (its [`Head`]) and the frames come from one statement.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sqlx::PgPool;
use tokio::sync::watch;
use uuid::Uuid;

use super::cursor::Bounds;
use crate::engine::Watermark;

/// Most bytes of frames that are kept for one book.
const RING_BYTES: usize = 4 * 1024 * 1024;

/// Most frames that one query brings.
pub(super) const PAGE_FRAMES: i64 = 512;

/// Most bytes of frames that one query brings, unless a single frame has more.
pub(super) const PAGE_BYTES: i64 = 1024 * 1024;

/// A frame as it goes over the wire.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Its position.
    pub position: i64,
    /// `event`, `data`, `id` and the blank line.
    pub bytes: Bytes,
}

impl Encoded {
    /// Encodes a history frame. `id` comes last, so that a frame cut in the middle cannot move a
    /// client's cursor past it.
    pub(super) fn new(position: i64, event: &str, data: &str) -> Self {
        Self {
            position,
            bytes: Bytes::from(format!("event: {event}\ndata: {data}\nid: {position}\n\n")),
        }
    }
}

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

/// What a reader gets from the ring.
#[derive(Debug)]
pub enum Page {
    /// The frames after its cursor; at least one.
    Frames(Vec<Encoded>),
    /// Nothing yet.
    CaughtUp,
    /// What comes after its cursor is older than what is at hand.
    Older,
    /// What comes after its cursor was pruned.
    Pruned,
}

#[derive(Debug)]
struct Ring {
    after: i64,
    upto: i64,
    frames: VecDeque<Encoded>,
    bytes: usize,
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
    pub(super) snapshot: tokio::sync::Mutex<Option<super::state::Encoded>>,
}

impl Feed {
    pub(super) fn new(book: Uuid) -> Self {
        Self {
            book,
            watchers: AtomicUsize::new(0),
            head: watch::Sender::new(None),
            wakes: AtomicU64::new(1),
            ring: Mutex::new(Ring {
                after: i64::MAX,
                upto: i64::MAX,
                frames: VecDeque::new(),
                bytes: 0,
            }),
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

    /// The position after which the ring needs frames; `i64::MAX` while nothing is known.
    pub(super) fn upto(&self) -> i64 {
        self.ring().upto
    }

    /// Takes in what one statement read: the head, and the frames after [`Feed::upto`], of which
    /// there may be more.
    pub(super) fn refresh(&self, head: Head, frames: Vec<Encoded>, more: bool) {
        {
            let mut ring = self.ring();
            if ring.upto == i64::MAX {
                // The first reading: begin where the book stands; readers ask for what is older.
                ring.after = head.bounds.position;
                ring.upto = head.bounds.position;
            } else {
                let newest = frames.last().map(|f| f.position);
                for frame in frames {
                    ring.bytes += frame.bytes.len();
                    ring.frames.push_back(frame);
                }
                let complete = if more {
                    None
                } else {
                    Some(head.bounds.position)
                };
                ring.upto = ring.upto.max(complete.or(newest).unwrap_or(ring.upto));
            }
            // What was pruned before it could be read leaves no hole: the ring begins behind it.
            ring.forget_through(head.bounds.oldest - 1);
            while ring.bytes > RING_BYTES && ring.frames.len() > 1 {
                let oldest = ring.frames.front().map_or(ring.upto, |f| f.position);
                ring.forget_through(oldest);
            }
        }
        self.head.send_replace(Some(head));
    }

    /// The frames after `cursor`, at most `most` bytes of them but at least one.
    #[must_use]
    pub fn page(&self, cursor: i64, most: usize) -> Page {
        let ring = self.ring();
        if cursor < ring.after {
            return Page::Older;
        }
        let from = ring.frames.partition_point(|f| f.position <= cursor);
        let mut bytes = 0;
        let page: Vec<Encoded> = ring
            .frames
            .range(from..)
            .take_while(|frame| {
                let fits = bytes == 0 || bytes + frame.bytes.len() <= most;
                bytes += frame.bytes.len();
                fits
            })
            .cloned()
            .collect();
        if page.is_empty() {
            Page::CaughtUp
        } else {
            Page::Frames(page)
        }
    }

    /// The frames after `cursor`, which the ring does not reach back to. Reads a block of the
    /// newest frames before the ring, for whoever else comes back; where the ring is full, a page
    /// for this reader alone.
    ///
    /// # Errors
    /// What the database says.
    pub async fn older(&self, pool: &PgPool, cursor: i64) -> Result<Page, sqlx::Error> {
        let _one_at_a_time = self.backfill.lock().await;
        loop {
            match self.page(cursor, RING_BYTES) {
                Page::Older => {}
                page => return Ok(page),
            }
            let (after, full) = {
                let ring = self.ring();
                (ring.after, ring.bytes >= RING_BYTES / 2)
            };
            let span = Span {
                book: self.book,
                after: cursor,
                upto: after,
            };
            let block = if full {
                span.oldest_first(pool).await?
            } else {
                span.newest_first(pool).await?
            };
            let Some((oldest, frames)) = block else {
                // The book is gone; the next reading of its row says so.
                return Ok(Page::CaughtUp);
            };
            if cursor < oldest - 1 {
                return Ok(Page::Pruned);
            }
            if full {
                // All of the span may have gone into a newer frame, which the ring holds.
                let nothing = frames.is_empty();
                let from_ring = || self.page(after, RING_BYTES);
                return Ok(if nothing {
                    from_ring()
                } else {
                    Page::Frames(frames)
                });
            }
            let mut ring = self.ring();
            if ring.after == after {
                ring.after = frames.last().map_or(oldest - 1, |f| f.position - 1);
                for frame in frames {
                    ring.bytes += frame.bytes.len();
                    ring.frames.push_front(frame);
                }
            }
        }
    }
}

impl Ring {
    /// Forgets every frame up to `position`.
    fn forget_through(&mut self, position: i64) {
        while let Some(frame) = self.frames.front()
            && frame.position <= position
        {
            self.bytes -= frame.bytes.len();
            self.frames.pop_front();
        }
        self.after = self.after.max(position);
        self.upto = self.upto.max(position);
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
    /// The newest frames up to the end of the span, wherever it begins, newest first.
    async fn newest_first(&self, pool: &PgPool) -> Result<Block, sqlx::Error> {
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
            PAGE_BYTES,
        )
        .fetch_all(pool)
        .await?;
        Ok(block(rows))
    }

    /// The oldest frames of the span, oldest first.
    async fn oldest_first(&self, pool: &PgPool) -> Result<Block, sqlx::Error> {
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
            PAGE_BYTES,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn head(position: i64, oldest: i64) -> Head {
        Head {
            bounds: Bounds {
                position,
                oldest,
                barrier: 0,
                at_rest: false,
            },
            revision: 0,
            structure_version: 0,
            watermark: Watermark::MINUS_INFINITY,
            deleted: false,
            as_of: 1,
        }
    }

    fn frames(positions: std::ops::RangeInclusive<i64>) -> Vec<Encoded> {
        positions.map(|p| Encoded::new(p, "counts", "{}")).collect()
    }

    fn positions(page: &Page) -> Vec<i64> {
        match page {
            Page::Frames(frames) => frames.iter().map(|f| f.position).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_ring_has_no_hole() {
        let feed = Feed::new(Uuid::nil());
        assert!(matches!(feed.page(5, 1000), Page::Older));
        feed.refresh(head(5, 1), Vec::new(), false);
        assert!(matches!(feed.page(5, 1000), Page::CaughtUp));
        assert!(matches!(feed.page(4, 1000), Page::Older));
        feed.refresh(head(9, 1), frames(6..=7), true);
        assert_eq!(feed.upto(), 7);
        feed.refresh(head(9, 1), frames(8..=9), false);
        assert_eq!(positions(&feed.page(5, 10_000)), [6, 7, 8, 9]);
        assert_eq!(positions(&feed.page(7, 1)), [8]);
        // 10 to 19 were pruned before they could be read.
        feed.refresh(head(30, 20), frames(20..=30), false);
        assert!(matches!(feed.page(9, 1000), Page::Older));
        assert_eq!(positions(&feed.page(19, 10_000)).len(), 11);
    }

    #[test]
    fn a_ring_is_bounded_in_bytes() {
        let feed = Feed::new(Uuid::nil());
        feed.refresh(head(0, 1), Vec::new(), false);
        let data = "x".repeat(1024 * 1024);
        for position in 1..=10 {
            let frame = Encoded::new(position, "counts", &data);
            feed.refresh(head(position, 1), vec![frame], false);
        }
        let ring = feed.ring();
        assert!(ring.bytes <= RING_BYTES);
        assert_eq!(ring.frames.back().map(|f| f.position), Some(10));
        assert_eq!(
            ring.frames.front().map(|f| f.position - 1),
            Some(ring.after)
        );
    }
}
