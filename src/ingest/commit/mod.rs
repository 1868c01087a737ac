//! The write transaction.
//!
//! **Promises.** Clicks, windows, frames, prune and watermark commit together or not at all; a
//! click id counts once; positions are minted under the row's lock, so their order is commit order;
//! the number of statements grows neither with clicks nor with books (windows are put ten thousand
//! at a time).
//!
//! **Called by** `committer` alone, the top of the write path: it retries, and it answers only after
//! the commit.

pub mod clicks;
mod ledger;
pub mod windows;

use std::collections::{HashMap, HashSet};

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use self::clicks::LookFor;
use self::ledger::{Ledger, Written, open_ledgers};
use super::debounce;
use super::pulse::Pulse;
use crate::book::chapters::{Chapters, Structures};
use crate::book::hot::{self, LockedBook};
use crate::book::{self, PlanError, Totals};
use crate::checkpoint::{self, Checkpoint};
use crate::click::Click;
use crate::engine::aggregate::StateError;
use crate::engine::{self, Plan, Reach, Status, Watermark};
use crate::frame::{self, Pruned, Pruning};
use crate::time::Timestamp;

/// The clicks of one request.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Batch {
    /// In the order in which they were sent.
    pub clicks: Vec<Click>,
    /// How many more admission rejected; they count in the book's totals.
    pub rejected: usize,
    /// How many more admission left out by a rule of the book; they count in its totals.
    pub filtered: usize,
    /// They were acknowledged before: a book that was closed meanwhile keeps them, as dropped.
    pub acknowledged: bool,
    /// The step of the job that they come from, to be committed with them. Such a batch has a
    /// transaction of its own.
    pub checkpoint: Option<Checkpoint>,
}

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
    /// The chapters are of another version than the request wants.
    #[error("the chapters are of version {0}")]
    OtherVersion(i64),
    /// Rollups of a book with clicks cannot be changed.
    #[error("the book has clicks already")]
    HasClicks,
}

/// Why a transaction was rolled back.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// What the database says.
    #[error("the transaction failed")]
    Database(#[from] sqlx::Error),
    /// A stored window cannot be read.
    #[error("a stored window cannot be read")]
    State(#[from] StateError),
    /// A book cannot be counted by.
    #[error("the book cannot be used")]
    Plan(#[from] PlanError),
    /// A frame cannot be written.
    #[error("a frame cannot be written as JSON")]
    Frame(#[from] serde_json::Error),
    /// A statement took too long, or the process is shutting down. Whether it was committed is not known.
    #[error("the transaction was given up")]
    GaveUp,
    /// The job that the clicks come from is another process's by now, or this very step of it was
    /// committed before.
    #[error("the job's lease is lost")]
    LostLease,
    /// A mistake in this program: only a click that stands alone becomes a dead letter.
    #[error("a dead letter is one click")]
    NotAlone,
    /// A mistake in this program.
    #[error("the transaction panicked")]
    Panicked,
}

/// A committed transaction.
#[derive(Debug)]
pub struct Committed {
    /// One for each request, in order.
    pub replies: Vec<Result<Receipt, Refusal>>,
    /// The books whose revision moved.
    pub woken: Vec<Uuid>,
    /// What it did, for the metrics.
    pub tally: Tally,
}

impl Committed {
    /// A request for one book that was refused; nothing was done.
    pub(super) fn refused(refusal: Refusal) -> Self {
        Self {
            replies: vec![Err(refusal)],
            woken: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// A request that was carried out without changing the book.
    pub(super) fn unchanged(book: &LockedBook) -> Self {
        Self {
            replies: vec![Ok(Receipt {
                fates: Vec::new(),
                position: book.position,
                revision: book.revision,
                watermark: book.progress.watermark,
                chapters: None,
            })],
            woken: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// A request whose clicks have these fates.
    pub(super) fn settled(book: &LockedBook, fates: Vec<Fate>, tally: Tally) -> Self {
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
    pub(super) fn moved(book: &LockedBook, minted: usize, pruned: Pruned) -> Self {
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
    pub(super) fn telling(mut self, chapters: Option<Chapters>) -> Self {
        if let [Ok(receipt)] = &mut *self.replies {
            receipt.chapters = chapters;
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
    /// Frames minted.
    pub minted: u64,
    /// What became of older ones.
    pub pruned: Pruned,
}

/// Commits the clicks of many requests in one transaction.
///
/// # Errors
/// Everything was rolled back.
pub async fn commit(
    conn: &mut PgConnection,
    now: Timestamp,
    requests: &[(Uuid, &Batch)],
    look_for: LookFor,
    (structures, debounce): (&Structures, &debounce::Memory),
    pulse: &Pulse,
) -> Result<Committed, CommitError> {
    let mut tx = conn.begin().await?;
    let locked = lock(&mut tx, requests).await?;
    pulse.beat();
    let structures = structures.of_locked(&mut tx, &locked).await?;
    let mut ledgers = open_ledgers(locked, requests, structures, debounce)?;
    let known = clicks::known(&mut tx, looked_for(&ledgers, look_for)).await?;
    pulse.beat();
    for ledger in ledgers.values_mut() {
        ledger.sort_out(known.get(&ledger.book.id));
    }

    let mut loaded = windows::load(&mut tx, reaches(&ledgers), pulse).await?;
    let mut written = Written::default();
    for ledger in ledgers.values_mut() {
        let windows = loaded.remove(&ledger.book.id).unwrap_or_default();
        ledger.count(windows, now, &mut written)?;
        pulse.beat();
    }
    windows::write(&mut tx, &written.clicks, &written.windows, now, pulse).await?;
    pulse.beat();
    take_steps(&mut tx, requests, &ledgers, now).await?;
    let books: Vec<&LockedBook> = ledgers.values().map(|l| &l.book).collect();
    frame::store(&mut tx, &books, &written.frames).await?;
    pulse.beat();
    let mut books: Vec<&mut LockedBook> = ledgers.values_mut().map(|l| &mut l.book).collect();
    let pruned = frame::prune(&mut tx, &mut books, Pruning::InTurn).await?;
    pulse.beat();
    tx.commit().await?;

    let mut tally = Tally {
        minted: written.frames.len() as u64,
        pruned,
        ..Tally::default()
    };
    for ledger in ledgers.values() {
        tally.totals.add(&ledger.totals);
        tally.debounced += ledger.debounced as u64;
    }
    // A book whose totals alone moved has no new frame, but its snapshot is another.
    let moved = ledgers.values().filter(|l| l.totals != Totals::default());
    let woken = moved.map(|l| l.book.id).collect();
    let replies = requests
        .iter()
        .map(|(book, batch)| match ledgers.get_mut(book) {
            None => Err(Refusal::NoSuchBook),
            Some(ledger) => ledger.reply(batch),
        });
    let replies = replies.collect();
    for ledger in ledgers.into_values() {
        ledger.judge.remember();
    }
    Ok(Committed {
        replies,
        woken,
        tally,
    })
}

/// Writes the places of the jobs that the clicks come from; a book that takes no clicks moves none.
async fn take_steps(
    conn: &mut PgConnection,
    requests: &[(Uuid, &Batch)],
    ledgers: &HashMap<Uuid, Ledger<'_>>,
    now: Timestamp,
) -> Result<(), CommitError> {
    for (book, batch) in requests {
        let ledger = ledgers.get(book).filter(|ledger| !ledger.book.closed);
        let (Some(step), Some(ledger)) = (&batch.checkpoint, ledger) else {
            continue;
        };
        // Alone in its transaction, so the book's ledger is that of the batch.
        let mut state = step.state;
        state.add(&ledger.totals);
        if !checkpoint::step(conn, *book, step, state, now).await? {
            return Err(CommitError::LostLease);
        }
    }
    Ok(())
}

async fn lock(
    conn: &mut PgConnection,
    requests: &[(Uuid, &Batch)],
) -> Result<Vec<LockedBook>, sqlx::Error> {
    let ids: HashSet<Uuid> = requests.iter().map(|(book, _)| *book).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    hot::lock(conn, &ids).await
}

/// The clicks (book, id) to look for.
fn looked_for(ledgers: &HashMap<Uuid, Ledger<'_>>, look_for: LookFor) -> Vec<(Uuid, Uuid)> {
    let of_ledger = |ledger: &Ledger<'_>| {
        let book = ledger.book.id;
        let sent = ledger.sent.iter().filter(|c| match look_for {
            // One that was sent twice and is left out now is not logged again, so nothing objects.
            LookFor::Nothing => ledger.judge.may_filter() && !c.id.fresh,
            LookFor::Sent => !c.id.fresh,
            LookFor::All => true,
        });
        sent.map(|click| (book, click.id.uuid)).collect::<Vec<_>>()
    };
    ledgers.values().flat_map(of_ledger).collect()
}

/// The windows that the fresh clicks need.
fn reaches<'a, 'b>(
    ledgers: &'b HashMap<Uuid, Ledger<'a>>,
) -> Vec<(&'b LockedBook, &'b Plan, Reach<'a>)> {
    let of_ledger = |ledger: &'b Ledger<'a>| {
        let reach = engine::reach(&ledger.plan, ledger.book.progress, &ledger.fresh);
        (&ledger.book, &ledger.plan, reach)
    };
    ledgers.values().map(of_ledger).collect()
}
