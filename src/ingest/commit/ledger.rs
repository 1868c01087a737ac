//! Ledgers: what a transaction does for one of its books, between what it loads and what it writes.
//! No database.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use uuid::Uuid;

use super::{Batch, CommitError, Fate, Missed, Receipt, Refusal, clicks, windows};
use crate::book::hot::{LockedBook, WindowSet};
use crate::book::{self, PlanError, Totals};
use crate::click::Click;
use crate::engine::{self, Logged, MissedWindow, Plan, Reach, Status};
use crate::frame::{self, NewFrame};
use crate::ingest::debounce::{self, Judge};
use crate::structure::Structure;
use crate::time::Timestamp;

/// The work of one book in one transaction.
pub(super) struct Ledger<'a> {
    pub(super) book: LockedBook,
    pub(super) plan: Plan,
    /// All clicks of its requests, in order of arrival.
    pub(super) sent: Vec<&'a Click>,
    rejected: usize,
    filtered: usize,
    pub(super) debounced: usize,
    pub(super) judge: Judge<'a>,
    /// Those of them that are new and not left out, in the same order.
    pub(super) fresh: Vec<Logged<'a>>,
    /// What the fresh clicks need of the windows.
    reach: Reach<'a>,
    /// One for each sent click; taken from the front as requests are answered.
    fates: VecDeque<Fate>,
    pub(super) totals: Totals,
}

/// What all books of a transaction write, statement by statement.
#[derive(Default)]
pub(super) struct Written<'a> {
    pub(super) clicks: Vec<clicks::Row<'a>>,
    pub(super) windows: windows::Changes<'a>,
    pub(super) frames: Vec<NewFrame>,
}

pub(super) fn open_ledgers<'a>(
    locked: Vec<LockedBook>,
    requests: &[(Uuid, &'a Batch)],
    mut structures: HashMap<Uuid, Arc<Structure>>,
    debounce: &'a debounce::Memory,
) -> Result<HashMap<Uuid, Ledger<'a>>, PlanError> {
    let mut ledgers = HashMap::with_capacity(locked.len());
    for book in locked {
        let structure = structures.remove(&book.id).unwrap_or_default();
        ledgers.insert(book.id, Ledger::open(book, structure, debounce)?);
    }
    for (book, batch) in requests {
        if let Some(ledger) = ledgers.get_mut(book) {
            ledger.take(batch);
        }
    }
    Ok(ledgers)
}

impl<'a> Ledger<'a> {
    pub(super) fn open(
        book: LockedBook,
        structure: Arc<Structure>,
        debounce: &'a debounce::Memory,
    ) -> Result<Self, PlanError> {
        let plan = book::plan(&book.settings, &book.rollups)?;
        Ok(Self {
            reach: Reach::due(book.progress.watermark),
            judge: Judge::new(debounce, book.id, &book.settings),
            book,
            plan: Plan { structure, ..plan },
            sent: Vec::new(),
            rejected: 0,
            filtered: 0,
            debounced: 0,
            fresh: Vec::new(),
            fates: VecDeque::new(),
            totals: Totals::default(),
        })
    }

    /// Takes a request in, if the book takes it.
    pub(super) fn take(&mut self, batch: &'a Batch) {
        if self.takes(batch) {
            self.sent.extend(&batch.clicks);
            self.rejected += batch.rejected;
            self.filtered += batch.filtered;
        }
    }

    /// The input of a closed book has ended, save for what was acknowledged before: every window
    /// has closed, so that is dropped.
    fn takes(&self, batch: &Batch) -> bool {
        !self.book.closed || batch.acknowledged
    }

    /// Separates new clicks from those whose id is in the log or came earlier in this transaction,
    /// and from those that the book's debounce leaves out.
    pub(super) fn sort_out(&mut self, known: Option<&HashMap<Uuid, String>>) {
        let mut seen: HashMap<Uuid, &str> = HashMap::with_capacity(self.sent.len());
        for click in self.sent.iter().copied() {
            let id = click.id.uuid;
            let in_log = known.and_then(|k| k.get(&id)).map(String::as_str);
            if let Some(page) = in_log.or_else(|| seen.get(&id).copied()) {
                let differs = page != click.page;
                self.fates.push_back(Fate::Duplicate { differs });
                self.judge.note(click);
                continue;
            }
            if self.judge.filters(click) {
                self.debounced += 1;
                self.fates.push_back(Fate::Debounced);
                continue;
            }
            seen.insert(id, &click.page);
            let seq = self.book.next_seq;
            self.book.next_seq += 1;
            self.fresh.push(Logged { seq, click });
            // Judged later; its place is kept.
            self.fates.push_back(Fate::Judged {
                status: Status::OnTime,
                missed: Vec::new(),
            });
        }
        self.reach = engine::reach(&self.plan, self.book.progress, &self.fresh);
    }

    /// The windows that the fresh clicks need.
    pub(super) fn reach(&self) -> (WindowSet, &Plan, &Reach<'a>) {
        (self.book.windows(), &self.plan, &self.reach)
    }

    /// The book, and what it logs.
    pub(super) fn logged(&self) -> (&LockedBook, &[Logged<'a>]) {
        (&self.book, &self.fresh)
    }

    /// Counts the fresh clicks into `windows`, moves the book, and notes what is to be written.
    pub(super) fn count(
        &mut self,
        windows: engine::Windows<'a>,
        now: Timestamp,
        written: &mut Written<'a>,
    ) -> Result<(), CommitError> {
        let reach = mem::replace(&mut self.reach, Reach::due(self.book.progress.watermark));
        let outcome = engine::apply(&self.plan, self.book.progress, &self.fresh, reach, windows);
        self.settle(&outcome.verdicts);
        if self.totals == Totals::default() {
            return Ok(());
        }
        let book = &mut self.book;
        book.totals.add(&self.totals);
        book.revision += 1;
        // Of duplicates too: a sender that catches up is not idleness.
        let received = self.sent.iter().map(|c| c.received_at.millis()).max();
        book.last_received_ms = book.last_received_ms.max(received);
        if self.fresh.is_empty() {
            return Ok(());
        }
        book.progress = outcome.progress;
        let rows = self.fresh.iter().zip(&outcome.verdicts);
        let rows = rows.map(|(logged, verdict)| clicks::Row {
            book: book.id,
            logged: *logged,
            watermark_before: verdict.watermark_before,
        });
        written.clicks.extend(rows);
        let frames = frame::mint_counts(book, now, &self.plan.rollups, &outcome.changed)?;
        written.frames.extend(frames);
        let set = book.windows();
        written.windows.note(set, &self.plan, outcome.changed);
        Ok(())
    }

    /// Fills the fates of the fresh clicks in, and adds everything up.
    fn settle(&mut self, verdicts: &[engine::Verdict]) {
        let to_i64 = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let totals = &mut self.totals;
        totals.rejected = to_i64(self.rejected);
        totals.filtered = to_i64(self.filtered + self.debounced);
        totals.received = to_i64(self.sent.len() + self.rejected + self.filtered);
        let mut verdicts = verdicts.iter();
        for fate in &mut self.fates {
            let (status, missed) = match fate {
                Fate::Judged { status, missed } => (status, missed),
                Fate::Duplicate { .. } => {
                    totals.duplicates += 1;
                    continue;
                }
                Fate::Debounced | Fate::DeadLetter => continue,
            };
            let Some(verdict) = verdicts.next() else {
                break;
            };
            *status = verdict.status;
            let windows = verdict.missed.iter();
            *missed = windows.map(|w| Missed::of(w, &self.plan)).collect();
            match verdict.status {
                Status::OnTime => totals.on_time += 1,
                Status::Late => totals.late += 1,
                Status::Dropped => totals.dropped += 1,
            }
        }
    }

    /// The answer to the book's next request.
    pub(super) fn reply(&mut self, batch: &Batch) -> Result<Receipt, Refusal> {
        if !self.takes(batch) {
            return Err(Refusal::Closed);
        }
        Ok(Receipt {
            fates: self.fates.drain(..batch.clicks.len()).collect(),
            position: self.book.position,
            revision: self.book.revision,
            watermark: self.book.progress.watermark,
            chapters: None,
            note: None,
        })
    }
}

impl Missed {
    fn of(window: &MissedWindow, plan: &Plan) -> Self {
        Self {
            rollup: plan.rollups[usize::from(window.rollup)].name.clone(),
            start: Timestamp::saturating_from_millis(window.bounds.start_ms),
            end: Timestamp::saturating_from_millis(window.bounds.end_ms),
        }
    }
}
