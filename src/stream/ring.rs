//! The newest frames of a book: a run without a hole, bounded in bytes.
//!
//! A [`Ring`] holds what every frame after `after` up to `upto` says, whatever numbers they have. It
//! merges none: frames stay as they were when they were taken in, so it may hold some that went into
//! newer ones in the buffer meanwhile, and merged ones from before. A merged frame may say again
//! what was said before it, and never less than all since the frame before it; so whoever stands
//! anywhere in a ring, or comes to it from the buffer, misses nothing. Pure: what it takes in was
//! read elsewhere.

use std::collections::VecDeque;

use bytes::Bytes;

use super::cursor::Bounds;

/// Most bytes of frames that are kept for one book.
pub(super) const RING_BYTES: usize = 4 * 1024 * 1024;

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

/// What a reader gets.
#[derive(Debug)]
pub enum Page {
    /// The frames after its cursor; at least one.
    Frames(Vec<Encoded>),
    /// Nothing yet.
    CaughtUp,
    /// What comes after its cursor is older than what is at hand.
    Older,
    /// What comes after its cursor was pruned, up to `oldest`.
    Pruned {
        /// One more than the highest position that was pruned away.
        oldest: i64,
    },
    /// The counts were replaced after its cursor.
    Replaced {
        /// The position of the replacement.
        barrier: i64,
    },
}

/// The newest frames of a book.
#[derive(Debug)]
pub(super) struct Ring {
    after: i64,
    upto: i64,
    /// Known together with the frames, so that none from behind it goes to a reader before it.
    barrier: i64,
    frames: VecDeque<Encoded>,
    bytes: usize,
    /// Most bytes that it may hold.
    limit: usize,
}

impl Ring {
    /// A ring of a book of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self {
            after: i64::MAX,
            upto: i64::MAX,
            barrier: 0,
            frames: VecDeque::new(),
            bytes: 0,
            limit: RING_BYTES,
        }
    }

    /// It holds all that was said after this position, up to [`Ring::upto`].
    pub(super) fn after(&self) -> i64 {
        self.after
    }

    /// The position after which it needs frames; `i64::MAX` while nothing is known.
    pub(super) fn upto(&self) -> i64 {
        self.upto
    }

    /// How many bytes of older frames fit: half of what it may hold is kept for newer ones.
    pub(super) fn room(&self) -> usize {
        (self.limit / 2).saturating_sub(self.bytes)
    }

    /// Takes in frames that were read after [`Ring::upto`] together with the bounds of the buffer;
    /// forgets what was pruned, or is more than `limit` bytes hold. Gives whether there are more.
    pub(super) fn append(&mut self, frames: Vec<Encoded>, bounds: Bounds, limit: usize) -> bool {
        let upto = frames.last().map_or(bounds.position, |f| f.position);
        let known = self.upto;
        self.limit = limit;
        self.barrier = bounds.barrier;
        if self.upto == i64::MAX {
            // The first reading: begin where the book stands; readers ask for what is older.
            (self.after, self.upto) = (upto, upto);
        } else {
            // Some may have come with a block from the buffer, while these were read.
            for frame in frames.into_iter().filter(|f| f.position > known) {
                self.bytes += frame.bytes.len();
                self.frames.push_back(frame);
            }
            self.upto = known.max(upto);
        }
        // What was pruned before it could be read leaves no hole: the ring begins behind it.
        self.forget_through(bounds.oldest - 1);
        while self.bytes > self.limit && self.frames.len() > 1 {
            let first = self.frames.front().map_or(self.upto, |f| f.position);
            self.forget_through(first);
        }
        self.upto < bounds.position
    }

    /// Takes in frames from before [`Ring::after`] up to the one that says what was said there,
    /// newest first; it then holds all after `after`. That one may stand for some that it holds.
    pub(super) fn prepend(&mut self, newest_first: Vec<Encoded>, after: i64) {
        if let Some(newest) = newest_first.first() {
            self.forget_through(newest.position);
        }
        for frame in newest_first {
            self.bytes += frame.bytes.len();
            self.frames.push_front(frame);
        }
        self.after = after;
    }

    /// The frames after `cursor`, at most `most` bytes of them but at least one.
    pub(super) fn page(&self, cursor: i64, most: usize) -> Page {
        if cursor < self.barrier {
            return Page::Replaced {
                barrier: self.barrier,
            };
        }
        if cursor < self.after {
            return Page::Older;
        }
        let from = self.frames.partition_point(|f| f.position <= cursor);
        let mut bytes = 0;
        let fits = |frame: &&Encoded| {
            let first = bytes == 0;
            bytes += frame.bytes.len();
            first || bytes <= most
        };
        let page: Vec<Encoded> = self
            .frames
            .range(from..)
            .take_while(fits)
            .cloned()
            .collect();
        if page.is_empty() {
            Page::CaughtUp
        } else {
            Page::Frames(page)
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(position: i64, oldest: i64) -> Bounds {
        Bounds {
            position,
            oldest,
            barrier: 0,
            at_rest: false,
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
        let mut ring = Ring::unknown();
        assert!(matches!(ring.page(5, 1000), Page::Older));
        ring.append(Vec::new(), bounds(5, 1), RING_BYTES);
        assert!(matches!(ring.page(5, 1000), Page::CaughtUp));
        assert!(matches!(ring.page(4, 1000), Page::Older));
        assert!(ring.append(frames(6..=7), bounds(9, 1), RING_BYTES));
        assert_eq!(ring.upto(), 7);
        assert!(!ring.append(frames(8..=9), bounds(9, 1), RING_BYTES));
        assert_eq!(positions(&ring.page(5, 10_000)), [6, 7, 8, 9]);
        assert_eq!(positions(&ring.page(7, 1)), [8]);
        ring.prepend(vec![Encoded::new(4, "counts", "{}")], 3);
        assert_eq!(positions(&ring.page(3, 10_000)), [4, 6, 7, 8, 9]);
        // 10 to 19 were pruned before they could be read.
        ring.append(frames(20..=30), bounds(30, 20), RING_BYTES);
        assert!(matches!(ring.page(9, 1000), Page::Older));
        assert_eq!(positions(&ring.page(19, 10_000)).len(), 11);
        // The frame at 31 replaces all before it.
        let replaced = Bounds {
            barrier: 31,
            ..bounds(31, 20)
        };
        ring.append(frames(31..=31), replaced, RING_BYTES);
        let page = ring.page(30, 10_000);
        assert!(matches!(page, Page::Replaced { barrier: 31 }));
        assert!(matches!(ring.page(31, 10_000), Page::CaughtUp));
    }

    #[test]
    fn a_ring_is_bounded_in_bytes() {
        let mut ring = Ring::unknown();
        ring.append(Vec::new(), bounds(0, 1), RING_BYTES);
        let data = "x".repeat(1024 * 1024);
        for position in 1..=10 {
            let frame = Encoded::new(position, "counts", &data);
            ring.append(vec![frame], bounds(position, 1), RING_BYTES);
        }
        assert!(ring.bytes <= RING_BYTES);
        assert_eq!(ring.frames.back().map(|f| f.position), Some(10));
        let first = ring.frames.front().map(|f| f.position - 1);
        assert_eq!(first, Some(ring.after));
        ring.append(Vec::new(), bounds(10, 1), 100);
        assert_eq!(ring.frames.len(), 1, "the newest stays, however long it is");
    }
}
