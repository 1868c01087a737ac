//! What a lane remembers of the books that it has written: the row, and the windows that clicks fell
//! into, as the table has them.
//!
//! **Promises.** It holds as long as the book's row has the version that is remembered with it: who
//! changes anything of a book, changes its row in the same transaction. Whoever uses it asks for that
//! in the statement that writes. Bounded in bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::windows::Changes;
use crate::book::hot::{LockedBook, Version};
use crate::engine::{Bounds, Reach, Watermark, Window, WindowKey, Windows};

/// Most bytes that a lane remembers, roughly.
const CAPACITY_BYTES: usize = 4 * 1024 * 1024;

/// A book's row with its settings and rollups, roughly.
const BOOK_BYTES: usize = 4096;

/// A window in the maps, less its name and what its state points to, roughly.
const WINDOW_BYTES: usize = 160;

/// The books of a lane that are remembered.
#[derive(Debug, Default)]
pub struct Memory {
    books: HashMap<Uuid, Remembered>,
}

/// A book as this lane's last commit left it.
#[derive(Debug)]
pub struct Remembered {
    /// The row, with the version that the commit gave it.
    pub book: LockedBook,
    /// See [`Memory::fires_from`].
    pub fires_from_ms: i64,
    /// The commit before was this lane's too. A book that other processes write as well changes under
    /// its hands too often to try.
    is_ours_alone: bool,
    /// Tumbling and sliding ones that clicks fell into, not all.
    windows: BTreeMap<Place, HashMap<Box<str>, Window>>,
    bytes: usize,
}

/// Of the windows of all groups: end, start, rollup. Those that ended first are forgotten first.
type Place = (i64, i64, u16);

fn place(rollup: u16, bounds: Bounds) -> Place {
    (bounds.end_ms, bounds.start_ms, rollup)
}

impl Memory {
    /// The book as it was left here, if it is likely that nobody has changed it since.
    #[must_use]
    pub fn get(&self, book: Uuid) -> Option<&Remembered> {
        self.books.get(&book).filter(|book| book.is_ours_alone)
    }

    /// Forgets a book, which somebody else has changed.
    pub fn forget(&mut self, book: Uuid) {
        self.books.remove(&book);
    }

    /// Forgets everything: perhaps this is another server with another history.
    pub fn clear(&mut self) {
        self.books.clear();
    }

    /// Before when no window ends that had not fired when the book's row was locked with this version;
    /// `None` if that is not known, or if the watermark has come there.
    #[must_use]
    pub fn fires_from(&self, book: Uuid, locked: Version, watermark: Watermark) -> Option<i64> {
        let book = self.books.get(&book)?;
        let is_current = book.book.version == locked && !watermark.ended(book.fires_from_ms);
        is_current.then_some(book.fires_from_ms)
    }

    /// Remembers a book as a commit leaves it that found its row with the version `locked` and gave it
    /// the version `now`. But for what `changes` put, no window that has not fired ends before
    /// `fires_from_ms`.
    pub fn keep(
        &mut self,
        book: &LockedBook,
        (locked, now): (Version, Version),
        fires_from_ms: i64,
        changes: &Changes<'_>,
    ) {
        let before = self.books.remove(&book.id);
        let before = before.filter(|before| before.book.version == locked);
        let mut remembered = Remembered {
            is_ours_alone: before.is_some(),
            book: LockedBook {
                version: now,
                locked_at: book.position,
                ..book.clone()
            },
            fires_from_ms: changes.first_unfired_ms().min(fires_from_ms),
            windows: BTreeMap::new(),
            bytes: BOOK_BYTES,
        };
        if let Some(before) = before {
            remembered.windows = before.windows;
            remembered.bytes = before.bytes;
        }
        for (key, window) in changes.aligned() {
            remembered.put(key, window);
        }
        remembered.shrink_to(CAPACITY_BYTES);
        self.make_room(remembered.bytes);
        self.books.insert(book.id, remembered);
    }

    /// Other books make room for one that was just written.
    fn make_room(&mut self, bytes: usize) {
        let mut held: usize = self.books.values().map(|book| book.bytes).sum();
        self.books.retain(|_, book| {
            let stays = held + bytes <= CAPACITY_BYTES;
            held -= if stays { 0 } else { book.bytes };
            stays
        });
    }
}

impl Remembered {
    /// The windows that a batch needs, if all that it needs is remembered and nothing fires.
    #[must_use]
    pub fn windows<'a>(&self, reach: &Reach<'_>) -> Option<Windows<'a>> {
        if reach.spans().next().is_some() || reach.due.ended(self.fires_from_ms) {
            return None;
        }
        let windows = reach.touched().map(|touched| {
            let groups = self.windows.get(&place(touched.rollup, touched.bounds))?;
            let window = groups.get(touched.group)?.clone();
            let group = Cow::Owned(touched.group.to_owned());
            Some((
                WindowKey::new(touched.rollup, touched.bounds, group),
                window,
            ))
        });
        windows.collect()
    }

    fn put(&mut self, key: &WindowKey<'_>, window: &Window) {
        let groups = self.windows.entry(place(key.rollup, key.bounds()));
        let groups = groups.or_default();
        self.bytes += bytes(&key.group, window);
        match groups.get_mut(&*key.group) {
            Some(known) => {
                self.bytes -= bytes(&key.group, known);
                *known = window.clone();
            }
            None => {
                groups.insert((*key.group).into(), window.clone());
            }
        }
    }

    fn shrink_to(&mut self, most_bytes: usize) {
        while self.bytes > most_bytes
            && let Some((_, groups)) = self.windows.pop_first()
        {
            let groups = groups.iter();
            self.bytes -= groups
                .map(|(group, window)| bytes(group, window))
                .sum::<usize>();
        }
    }
}

fn bytes(group: &str, window: &Window) -> usize {
    WINDOW_BYTES + group.len() + window.state.heap_bytes()
}
