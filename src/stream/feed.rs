//! One watched book: what is known of its row, and its newest frames, for all its readers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use super::cursor::Bounds;
use super::lent::Lent;
use super::older::Older;
use super::ring::{Encoded, Page, RING_BYTES, Ring};
use super::state;
use crate::engine::Watermark;
use crate::frame::News;

/// Most bytes of frames that are kept for all books, as long as each may keep [`LEAST_BYTES`].
const ALL_RINGS_BYTES: usize = 256 * 1024 * 1024;

/// What every watched book may keep.
const LEAST_BYTES: usize = 64 * 1024;

/// Most frames that one query brings.
pub(super) const PAGE_FRAMES: i64 = 512;

/// Most bytes of frames that one query brings, unless a single frame has more.
pub(super) const PAGE_BYTES: i64 = 1024 * 1024;

/// What was read of a book's row, or told of it by the commit that wrote it.
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
    /// Every wake-up up to this one had come before the row was read; of a row that was told, before
    /// it was last read.
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
    /// Commits that were told of so far; moved with the ring held.
    tells: AtomicU64,
    /// Held while older frames are read, so that many readers cost one query.
    backfill: tokio::sync::Mutex<Lent>,
    /// The snapshot that was read last, for all readers that begin with one.
    pub(super) snapshot: tokio::sync::Mutex<Option<state::Encoded>>,
}

/// What each of `feeds` may keep.
fn limit(feeds: usize) -> usize {
    (ALL_RINGS_BYTES / feeds.max(1)).clamp(LEAST_BYTES, RING_BYTES)
}

impl Feed {
    pub(super) fn new(book: Uuid) -> Self {
        Self {
            book,
            watchers: AtomicUsize::new(0),
            head: watch::Sender::new(None),
            wakes: AtomicU64::new(1),
            ring: Mutex::new(Ring::unknown()),
            tells: AtomicU64::new(0),
            backfill: tokio::sync::Mutex::default(),
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

    /// Takes in what a commit of this process left, if that goes on from what is known: nobody else
    /// has minted a frame in between, so the barrier is where it was. Gives whether it did. What it
    /// told is as good as a reading after the commit, but for wake-ups that came meanwhile.
    pub(super) fn extend(&self, news: &News, feeds: usize) -> bool {
        let mut ring = self.ring();
        let known = *self.head.borrow();
        let known = known.filter(|head| {
            !head.deleted
                && !news.closed
                && head.bounds.position == news.before
                && head.revision < news.revision
        });
        let Some(head) = known.filter(|_| ring.upto() == news.before) else {
            return false;
        };
        let bounds = Bounds {
            position: news.position,
            oldest: news.oldest,
            barrier: head.bounds.barrier,
            at_rest: false,
        };
        let frames = news.frames.iter();
        let frames = frames.map(|f| Encoded::new(f.position, f.event, &f.data));
        ring.append(frames.collect(), bounds, limit(feeds));
        // With the ring still held, so that no reading comes in between.
        self.tells.fetch_add(1, Ordering::SeqCst);
        self.head.send_replace(Some(Head {
            bounds,
            revision: news.revision,
            structure_version: news.structure_version,
            watermark: news.watermark,
            ..head
        }));
        true
    }

    /// Takes in what one statement read: the head, and the frames after [`Feed::upto`]. Gives
    /// whether there are more. The book is one of `feeds` that share the memory; before the statement,
    /// `tells` commits had been told of.
    pub(super) fn refresh(
        &self,
        (head, tells): (Head, u64),
        frames: Vec<Encoded>,
        feeds: usize,
    ) -> bool {
        let mut ring = self.ring();
        let more = ring.append(frames, head.bounds, limit(feeds));
        let told_meanwhile = self.tells() != tells;
        self.head.send_modify(|known| match known {
            // What was told is newer than what was read, and knows all that this knows.
            Some(known) if told_meanwhile && known.revision > head.revision => {
                known.as_of = known.as_of.max(head.as_of);
            }
            known => *known = Some(head),
        });
        more
    }

    /// How many commits were told of so far.
    pub(super) fn tells(&self) -> u64 {
        self.tells.load(Ordering::SeqCst)
    }

    /// Takes in that the book is not there any more.
    pub(super) fn gone(&self, as_of: u64) {
        let _untold = self.ring();
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
    /// comes back; where the ring is full, a page for this reader, and for whoever asks for the same
    /// while it holds it.
    ///
    /// # Errors
    /// What the buffer says.
    pub(super) async fn older<O: Older>(
        &self,
        buffer: &O,
        cursor: i64,
        most: usize,
    ) -> Result<Page, O::Error> {
        let mut one_at_a_time = self.backfill.lock().await;
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
            let oldest = self
                .head
                .borrow()
                .map_or(i64::MAX, |head| head.bounds.oldest);
            if full
                && oldest <= cursor + 1
                && let Some(frames) = one_at_a_time.find(cursor)
            {
                return Ok(Page::Frames(frames));
            }
            let block = if full {
                buffer.oldest_first(cursor, after, most).await?
            } else {
                buffer.newest_first(after, room).await?
            };
            let Some(block) = block else {
                // The book is gone; the next reading of its row says so.
                return Ok(Page::CaughtUp);
            };
            if cursor < block.oldest - 1 {
                return Ok(Page::Pruned {
                    oldest: block.oldest,
                });
            }
            if !full {
                let mut ring = self.ring();
                if ring.after() == after {
                    ring.prepend(block.frames, block.after);
                }
                continue;
            }
            if block.frames.is_empty() {
                // There is nothing up to the ring.
                return Ok(self.page(after, most));
            }
            return Ok(Page::Frames(one_at_a_time.lend(cursor, block.frames)));
        }
    }
}
