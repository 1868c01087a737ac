//! How long a buffer reaches back and how large it becomes, on a clock of its own.

use serde_json::json;

use super::MAX_FRAME_BYTES;
use super::buffer::{Pruning, STEP_FRAMES, Stretch, is_to_be_counted};
use super::merge::Stored;
use super::testing::{Read, Reader, at, book, frame, merge_in};
use crate::book::hot::LockedBook;

/// A book whose clicks come one by one; its buffer lies in a list.
struct Minting {
    book: LockedBook,
    buffer: Vec<Stored>,
    /// All that was minted.
    minted: Vec<Stored>,
    steps: usize,
}

impl Minting {
    fn new(buffer_frames: i64) -> Self {
        Self {
            book: book(buffer_frames),
            buffer: Vec::new(),
            minted: Vec::new(),
            steps: 0,
        }
    }

    fn size(&self) -> i64 {
        self.book.settings.buffer_frames
    }

    /// A commit that mints so many frames.
    fn commit(&mut self, ms: i64, frames: i64) {
        for _ in 0..frames {
            self.book.position += 1;
            let position = self.book.position;
            let values = json!({ format!("/{}", position % 7): position });
            let pane = json!({"rollup": "r", "start": at(0), "end": at(10), "pane": "early",
                              "values": values});
            self.minted.push(frame(position, ms, &json!([pane])));
            self.buffer.extend(self.minted.last().cloned());
        }
        self.prune(Pruning::InTurn);
        self.book.locked_at = self.book.position;
    }

    /// As [`super::prune`] does to the table.
    fn prune(&mut self, when: Pruning) {
        let book = &mut self.book;
        if let Some(Stretch { first, last }) = Stretch::due(book) {
            self.steps += 1;
            let from = self.buffer.partition_point(|f| f.position < first);
            let to = self.buffer.partition_point(|f| f.position <= last);
            let to = to.min(from + usize::try_from(STEP_FRAMES).unwrap());
            book.merged = self.buffer[to - 1].position;
            merge_in(&mut self.buffer, from..to, &["r"], MAX_FRAME_BYTES);
        }
        let mut oldest = book.oldest;
        if is_to_be_counted(book, when) {
            let keep = usize::try_from(book.settings.buffer_frames).unwrap();
            if let Some(first) = self.buffer.len().checked_sub(keep + 1) {
                oldest = self.buffer[first].position + 1;
            }
        }
        if oldest > book.oldest {
            book.oldest = oldest;
            self.buffer.retain(|frame| frame.position >= oldest);
        }
    }

    /// As after a PATCH.
    fn resize(&mut self, buffer_frames: i64) {
        self.book.settings.buffer_frames = buffer_frames;
        self.prune(Pruning::Now);
    }

    /// The buffer holds what it must, and is not too large.
    fn check_bounds(&self) {
        let frames = i64::try_from(self.buffer.len()).unwrap();
        let slack = if self.size() < 256 {
            1
        } else {
            self.size() / 4
        };
        assert!(
            frames < self.size() + slack,
            "{frames} at {}",
            self.book.position
        );
        let newest = self.buffer.last().map(|frame| frame.position);
        assert_eq!(newest, Some(self.book.position));
        assert!(self.buffer[0].position >= self.book.oldest);
    }

    /// Readers with cursors from all over what is kept end with what all frames teach.
    fn check_readers(&self) {
        let (minted, buffer) = (Read::all(&self.minted), Read::all(&self.buffer));
        let mut expected = Reader::default();
        for frame in &minted {
            expected.learn(frame, false);
        }
        let mut upto = Reader::default();
        for frame in &minted {
            upto.learn(frame, false);
            let cursor = frame.position;
            if cursor % 101 != 0 || cursor < self.book.oldest - 1 {
                continue;
            }
            let mut reader = upto.clone();
            for frame in buffer.iter().filter(|frame| frame.position > cursor) {
                reader.learn(frame, false);
            }
            assert_eq!(reader, expected, "after {cursor}");
        }
    }
}

/// A reader that has been away for 30 s is not told to begin anew, from when the book has been busy
/// for so long; without merging it would be after a second or five.
#[test]
fn five_hundred_frames_cover_half_a_minute_of_a_busy_book() {
    const AWAY_MS: i64 = 30_000;
    for frames_a_second in [100, 400] {
        let mut minting = Minting::new(512);
        let mut position_at = Vec::new();
        for n in 0..40 * frames_a_second {
            let ms = n * 1000 / frames_a_second;
            minting.commit(ms, 1);
            minting.check_bounds();
            position_at.push((ms, minting.book.position));
            let back = position_at.partition_point(|(then, _)| *then <= ms - AWAY_MS);
            if let Some(back) = back.checked_sub(1) {
                let cursor = position_at[back].1;
                assert!(cursor >= minting.book.oldest - 1, "at {ms} ms");
            }
        }
        assert!(
            minting.book.position > 4 * 512,
            "it would have been overrun"
        );
        minting.check_readers();
        // Most commits have nothing to do but mint.
        let commits = usize::try_from(minting.book.position).unwrap();
        assert!(minting.steps * 128 <= commits, "{} steps", minting.steps);
    }
}

#[test]
fn a_slow_book_keeps_its_newest_frames_one_by_one() {
    let mut minting = Minting::new(512);
    for n in 0..3000 {
        minting.commit(n * 250, 1);
        minting.check_bounds();
        let frames = i64::try_from(minting.buffer.len()).unwrap();
        let position = minting.book.position;
        assert!(frames >= position.min(512));
        assert_eq!(minting.book.oldest, position - frames + 1);
        assert_eq!(minting.buffer[0].position, minting.book.oldest);
    }
    assert!(
        minting
            .buffer
            .iter()
            .all(|frame| minting.minted.contains(frame))
    );
}

#[test]
fn the_newer_half_is_not_merged_and_small_buffers_are_not_at_all() {
    for size in [16, 255, 256, 1000] {
        let mut minting = Minting::new(size);
        for n in 0..3000 {
            minting.commit(n, 1 + n % 3);
            minting.check_bounds();
            let position = minting.book.position;
            let raw = if size < 256 { size } else { size / 2 + 1 };
            let raw = minting
                .buffer
                .iter()
                .rev()
                .take(usize::try_from(raw).unwrap());
            let expected = (1..=position).rev();
            assert!(
                raw.map(|frame| frame.position)
                    .zip(expected)
                    .all(|(a, b)| a == b)
            );
            if size < 256 {
                assert_eq!(minting.book.oldest, 1.max(position - size + 1));
            }
        }
        assert_eq!(minting.steps > 0, size >= 256);
        minting.check_readers();
    }
}

#[test]
fn a_buffer_whose_size_is_changed_holds_its_bounds_and_teaches_all() {
    let mut minting = Minting::new(4096);
    let mut ms = 0;
    for size in [4096, 256, 100, 16, 300, 65_536, 255, 512, 4096, 512] {
        minting.resize(size);
        for _ in 0..900 {
            ms += 3;
            minting.commit(ms, 1);
            minting.check_bounds();
        }
        minting.check_readers();
    }
}

#[test]
fn books_that_move_together_are_not_counted_together() {
    let due = |book: u128, position: i64| {
        let mut book = LockedBook {
            position,
            locked_at: position - 1,
            ..book_of(book)
        };
        book.settings.buffer_frames = 512;
        is_to_be_counted(&book, Pruning::InTurn)
    };
    for position in 513..700 {
        let due = (0..128).filter(|book| due(*book, position)).count();
        assert_eq!(due, 1, "at {position}");
    }
}

fn book_of(id: u128) -> LockedBook {
    LockedBook {
        id: uuid::Uuid::from_u128(id),
        ..book(512)
    }
}
