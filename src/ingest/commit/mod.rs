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
pub mod import;
mod ledger;
mod outcome;
pub mod remembered;
mod single_statement;
pub mod windows;

pub use self::outcome::{Committed, Fate, Missed, Receipt, Refusal, Tally};

use std::collections::{HashMap, HashSet};

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use self::clicks::LookFor;
use self::ledger::{Ledger, Written, open_ledgers};
use self::remembered::Memory;
use super::debounce;
use super::pulse::Pulse;
use super::recount;
use crate::book::chapters::Structures;
use crate::book::hot::{self, LockedBook};
use crate::book::{PlanError, Totals};
use crate::checkpoint::{self, Checkpoint};
use crate::click::Click;
use crate::engine::aggregate::StateError;
use crate::frame::{self, NewFrame, News, Pruned, Pruning};
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

/// What lanes remember, so that a commit need not ask.
#[derive(Debug)]
pub struct Remember<'a> {
    /// The chapters of books.
    pub structures: &'a Structures,
    /// What readers have just clicked.
    pub debounce: &'a debounce::Memory,
    /// The books as this lane left them.
    pub memory: &'a mut Memory,
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
    mut remember: Remember<'_>,
    pulse: &Pulse,
) -> Result<Committed, CommitError> {
    if look_for == LookFor::Nothing {
        let committed = single_statement::commit(conn, now, requests, &mut remember).await?;
        if let Some(committed) = committed {
            return Ok(committed);
        }
        pulse.beat();
    }
    let mut tx = conn.begin().await?;
    let locked = lock(&mut tx, requests).await?;
    pulse.beat();
    let structures = remember.structures.of_locked(&mut tx, &locked).await?;
    let mut ledgers = open_ledgers(locked, requests, structures, remember.debounce)?;
    let known = clicks::known(&mut tx, looked_for(&ledgers, look_for)).await?;
    pulse.beat();
    for ledger in ledgers.values_mut() {
        ledger.sort_out(known.get(&ledger.book.id));
    }

    let reaches: Vec<_> = ledgers.values().map(Ledger::reach).collect();
    let mut loaded = windows::load(&mut tx, &reaches, pulse).await?;
    let mut written = Written::default();
    for ledger in ledgers.values_mut() {
        let windows = loaded.remove(&ledger.book.id).unwrap_or_default();
        ledger.count(windows, now, &mut written)?;
        pulse.beat();
    }
    windows::write(&mut tx, &written.clicks, &written.windows, now, pulse).await?;
    pulse.beat();
    take_steps(&mut tx, requests, &ledgers, now).await?;
    recount::note(&mut tx, ledgers.values().map(Ledger::logged)).await?;
    let books: Vec<&LockedBook> = ledgers.values().map(|l| &l.book).collect();
    let version = frame::store(&mut tx, &books, &written.frames).await?;
    pulse.beat();
    let mut books: Vec<&mut LockedBook> = ledgers.values_mut().map(|l| &mut l.book).collect();
    let pruned = frame::prune(&mut tx, &mut books, Pruning::InTurn).await?;
    pulse.beat();
    let left = left_alone(&mut tx, &ledgers, remember.memory).await?;
    tx.commit().await?;

    for book in ledgers.keys().filter(|_| left.is_none()) {
        remember.memory.forget(*book);
    }
    if let Some(((book, fires_from_ms), version)) = left.zip(version) {
        let versions = (book.version, version);
        let memory = remember.memory;
        memory.keep(book, versions, fires_from_ms, &written.windows);
    }
    Ok(settled(requests, ledgers, written.frames, pruned))
}

/// What is told of a transaction that was committed.
fn settled(
    requests: &[(Uuid, &Batch)],
    mut ledgers: HashMap<Uuid, Ledger<'_>>,
    frames: Vec<NewFrame>,
    pruned: Pruned,
) -> Committed {
    let mut tally = Tally {
        minted: frames.len() as u64,
        pruned,
        ..Tally::default()
    };
    for ledger in ledgers.values() {
        tally.totals.add(&ledger.totals);
        tally.debounced += ledger.debounced as u64;
    }
    let mut frames_of: HashMap<Uuid, Vec<NewFrame>> = HashMap::new();
    for frame in frames {
        frames_of.entry(frame.book).or_default().push(frame);
    }
    // A book whose totals alone moved has no new frame, but its snapshot is another.
    let moved = ledgers.values().filter(|l| l.totals != Totals::default());
    let news = moved.map(|ledger| {
        let frames = frames_of.remove(&ledger.book.id).unwrap_or_default();
        News::of(&ledger.book, frames)
    });
    let news: Vec<News> = news.collect();
    let woken = news.iter().map(|news| news.book).collect();
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
    Committed {
        replies,
        woken,
        news,
        tally,
    }
}

/// The book of a transaction that has no other, and before when no window of it ends that has not
/// fired: it is worth remembering.
async fn left_alone<'l>(
    conn: &mut PgConnection,
    ledgers: &'l HashMap<Uuid, Ledger<'_>>,
    memory: &Memory,
) -> Result<Option<(&'l LockedBook, i64)>, sqlx::Error> {
    let alone = ledgers.values().next().filter(|_| ledgers.len() == 1);
    let Some(Ledger { book, .. }) = alone else {
        return Ok(None);
    };
    let watermark = book.progress.watermark;
    let fires_from_ms = match memory.fires_from(book.id, book.version, watermark) {
        Some(known_ms) => known_ms,
        None => windows::fires_from(conn, book, watermark).await?,
    };
    Ok(Some((book, fires_from_ms)))
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
