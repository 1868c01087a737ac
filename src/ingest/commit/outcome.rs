//! What comes of a transaction: what its requests are answered, and what readers are told.

use uuid::Uuid;

use crate::book::chapters::Chapters;
use crate::book::hot::LockedBook;
use crate::book::notes::Note;
use crate::book::{self, Totals};
use crate::engine::{Status, Watermark};
use crate::frame::{News, Pruned};
use crate::time::Timestamp;

/// What became of a request's clicks.
#[derive(Clone, PartialEq, Debug)]
pub struct Receipt {
    /// One for each click of the batch, in order.
    pub fates: Vec<Fate>,
    /// The newest position of the book.
    pub position: i64,
    /// The book's revision.
    pub revision: i64,
    /// How far event time has come.
    pub watermark: Watermark,
    /// The book's chapters, where the request was about them.
    pub chapters: Option<Chapters>,
    /// The note that the request was about, as it now is, or as it was.
    pub note: Option<Note>,
}

/// What became of one click.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Counted, or dropped for being too late; in the log either way.
    Judged {
        /// Over all rollups.
        status: Status,
        /// The windows that it came too late for, when it was counted in others.
        missed: Vec<Missed>,
    },
    /// Its id was there before.
    Duplicate {
        /// Whether the click that is known has another page.
        differs: bool,
    },
    /// The same reader's click on the same page was counted shortly before.
    Debounced,
    /// It cannot be committed, and is kept aside.
    DeadLetter,
}

/// A window that a click came too late for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missed {
    /// Name of the rollup.
    pub rollup: String,
    /// First moment.
    pub start: Timestamp,
    /// First moment after it.
    pub end: Timestamp,
}

/// Why a request was not carried out, although the transaction went well.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// No such book, or it was deleted.
    #[error("there is no such book")]
    NoSuchBook,
    /// It takes no clicks.
    #[error("the book is closed")]
    Closed,
    /// The change does not fit the book.
    #[error("the change does not fit the book")]
    Invalid(Vec<book::FieldError>),
    /// The book has no such note.
    #[error("there is no such note")]
    NoSuchNote,
    /// The chapters are of another version than the request wants.
    #[error("the chapters are of version {0}")]
    OtherVersion(i64),
    /// Another run of the book is live.
    #[error("another run of the book is live; wait until it has ended, or cancel it")]
    RunLive,
    /// No such run.
    #[error("there is no such run")]
    NoSuchRun,
    /// More clicks have come than a recount takes in while the book waits; it takes them before.
    #[error("more clicks have come")]
    NotYet,
}

/// A committed transaction.
#[derive(Debug)]
pub struct Committed {
    /// One for each request, in order.
    pub replies: Vec<Result<Receipt, Refusal>>,
    /// The books whose revision moved.
    pub woken: Vec<Uuid>,
    /// And those of them of which all is known that readers are told.
    pub news: Vec<News>,
    /// What it did, for the metrics.
    pub tally: Tally,
}

impl Committed {
    /// A request for one book that was refused; nothing was done.
    pub(in crate::ingest) fn refused(refusal: Refusal) -> Self {
        Self {
            replies: vec![Err(refusal)],
            woken: Vec::new(),
            news: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// A request that was carried out without changing the book.
    pub(in crate::ingest) fn unchanged(book: &LockedBook) -> Self {
        Self {
            replies: vec![Ok(Receipt {
                fates: Vec::new(),
                position: book.position,
                revision: book.revision,
                watermark: book.progress.watermark,
                chapters: None,
                note: None,
            })],
            woken: Vec::new(),
            news: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// A request whose clicks have these fates.
    pub(in crate::ingest) fn settled(book: &LockedBook, fates: Vec<Fate>, tally: Tally) -> Self {
        let mut settled = Self::unchanged(book);
        if let [Ok(receipt)] = &mut *settled.replies {
            receipt.fates = fates;
        }
        Self {
            woken: vec![book.id],
            tally,
            ..settled
        }
    }

    /// A request that changed the book.
    pub(in crate::ingest) fn moved(book: &LockedBook, minted: usize, pruned: Pruned) -> Self {
        let tally = Tally {
            minted: minted as u64,
            pruned,
            ..Tally::default()
        };
        Self {
            woken: vec![book.id],
            tally,
            ..Self::unchanged(book)
        }
    }

    /// The same with the book's chapters in the answer.
    pub(in crate::ingest) fn telling(mut self, chapters: Option<Chapters>) -> Self {
        if let [Ok(receipt)] = &mut *self.replies {
            receipt.chapters = chapters;
        }
        self
    }

    /// The same with a note in the answer.
    pub(in crate::ingest) fn telling_note(mut self, note: Option<Note>) -> Self {
        if let [Ok(receipt)] = &mut *self.replies {
            receipt.note = note;
        }
        self
    }
}

/// What a transaction did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// How the clicks fared.
    pub totals: Totals,
    /// How many of those filtered were debounced.
    pub debounced: u64,
    /// Clicks kept aside because they cannot be committed.
    pub dead_letters: u64,
    /// It was one statement (`single_statement`).
    pub single_statement: bool,
    /// Frames minted.
    pub minted: u64,
    /// What became of older ones.
    pub pruned: Pruned,
}
