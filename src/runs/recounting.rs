//! A recount: the book's own log, page by page, into windows of its own, and then the swap.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use super::{Held, RunError, stopped_within};
use crate::book::hot::{self, LockedBook};
use crate::db;
use crate::ingest::commit::{CommitError, Refusal};
use crate::ingest::lane::SubmitError;
use crate::ingest::pulse::Pulse;
use crate::ingest::recount::{self, Kept, left_alone};
use crate::ingest::retry::{self, Kind};
use crate::ingest::runs::RunCommand;
use crate::run::moving::Ending;
use crate::run::recount::{Place, Recount};
use crate::telemetry;
use crate::time::Timestamp;

/// Shortest time between two frames that tell how far it is.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// How often the swap is tried while more clicks come than it takes in.
const SWAPS: u32 = 100;

/// What has become of a recount.
enum Step {
    /// It goes on.
    On,
    /// It is over, or not ours any more.
    Over,
}

impl Held {
    /// Does the recount, to its end or as long as it is ours. While the database is away it waits.
    pub(super) async fn recount(&mut self) -> Result<(), RunError> {
        let mut failures = 0;
        loop {
            let error = match self.count_and_swap(&mut failures).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let line = telemetry::chain(&error);
            if retry::kind(&error) == Kind::Permanent {
                tracing::error!(error = %line, run = %self.run, "a recount cannot go on");
                let why = "the log cannot be counted again; the server's log says more";
                let ending = Ending::Failed(why.to_owned());
                return self
                    .runs
                    .end(self.book, self.run, Some(self.epoch), ending)
                    .await;
            }
            failures += 1;
            tracing::warn!(error = %line, run = %self.run, "a recount was interrupted; going on");
            if stopped_within(&self.runs.stop, failures).await {
                return Ok(());
            }
        }
    }

    async fn count_and_swap(&self, failures: &mut u32) -> Result<(), CommitError> {
        let mut conn = db::write_connection(&self.runs.database).await?;
        // Pages are read ahead of what is being counted.
        let mut reader = db::connect(&self.runs.database).await?;
        let mut swaps = 0;
        loop {
            let Some(recount) = self.stored(&mut conn).await? else {
                return Ok(());
            };
            let mut work = Work {
                recount,
                told: Instant::now(),
                held: self,
                page: 1,
                little: 0,
            };
            if let Step::Over = work.count(&mut conn, &mut reader).await? {
                return Ok(());
            }
            let (run, epoch) = (self.run, self.epoch);
            let swapped = self
                .runs
                .command(self.book, RunCommand::Swap { run, epoch });
            match swapped.await {
                // It was done, or the recount begins anew; the row says which.
                Ok(_) => *failures = 0,
                Err(SubmitError::Refused(Refusal::NotYet)) if swaps < SWAPS => swaps += 1,
                Err(SubmitError::Refused(Refusal::NotYet)) => {
                    let why = "clicks come faster than they can be counted again";
                    let ending = Ending::Failed(why.to_owned());
                    let _ = self.runs.end(self.book, run, Some(epoch), ending).await;
                    return Ok(());
                }
                Err(error) if super::passes(&error) => return Err(CommitError::GaveUp),
                Err(_) => return Ok(()),
            }
        }
    }

    async fn stored(&self, conn: &mut PgConnection) -> Result<Option<Recount>, sqlx::Error> {
        crate::run::recount::find(conn, self.book, (self.run, self.epoch)).await
    }
}

/// A recount that is being done.
struct Work<'h> {
    recount: Recount,
    told: Instant,
    held: &'h Held,
    /// Most clicks that one transaction takes.
    page: usize,
    /// Most that are left to the swap.
    little: usize,
}

impl Work<'_> {
    /// Counts until little is left.
    async fn count(
        &mut self,
        conn: &mut PgConnection,
        reader: &mut PgConnection,
    ) -> Result<Step, CommitError> {
        let Some(book) = self.book(conn).await? else {
            return Ok(Step::Over);
        };
        let counting = recount::counting(conn, &book, &self.recount).await?;
        (self.page, self.little) = (counting.page(), counting.little());
        if self.recount.total.is_none() {
            self.recount.total = Some(recount::clicks(&mut *reader, self.held.book).await?);
            left_alone::copy(conn, &book, &self.recount).await?;
        }
        let mut page = self.read(reader, self.recount.place).await?;
        loop {
            if self.held.runs.stop.is_cancelled() {
                return Ok(Step::Over);
            }
            let is_tail = self.recount.place.after_seq.is_some();
            if is_tail && page.len() <= self.little {
                return Ok(Step::On);
            }
            let place = self.place_after(&page);
            let (taken, next) =
                tokio::join!(self.take(conn, &page, place), self.read(reader, place));
            if !taken? {
                return Ok(Step::Over);
            }
            self.recount.place = place;
            self.recount.processed += i64::try_from(page.len()).unwrap_or(i64::MAX);
            page = next?;
            if self.told.elapsed() >= TELL_EVERY {
                self.told = Instant::now();
                let tell = RunCommand::Tell { run: self.held.run };
                // Readers are told again with the next page.
                let _ = self.held.runs.command(self.held.book, tell).await;
            }
        }
    }

    /// The book's row as it is; it is let go at once.
    async fn book(&self, conn: &mut PgConnection) -> Result<Option<LockedBook>, sqlx::Error> {
        Ok(hot::lock(conn, &[self.held.book]).await?.pop())
    }

    /// Where the recount stands once it is done with `page`: an empty one is the end of the log as it
    /// found it.
    fn place_after(&self, page: &[Kept]) -> Place {
        let place = self.recount.place;
        let last = page.last();
        match (place.after_seq, last) {
            (Some(_), Some(last)) => Place {
                after_seq: Some(last.seq),
                ..place
            },
            (None, Some(last)) => Place {
                after_click: Some(last.click.id.uuid),
                ..place
            },
            (None, None) => Place {
                after_seq: Some(self.recount.first_seq - 1),
                ..place
            },
            (Some(_), None) => place,
        }
    }

    /// The page after a place.
    async fn read(
        &self,
        reader: &mut PgConnection,
        place: Place,
    ) -> Result<Vec<Kept>, sqlx::Error> {
        let book = self.held.book;
        if let Some(after_seq) = place.after_seq {
            return recount::tail_page(reader, book, after_seq, self.page).await;
        }
        let first_seq = self.recount.first_seq;
        recount::log_page(reader, book, place.after_click, first_seq, self.page).await
    }

    /// Counts a page, in a transaction that moves the recount to `place`. False: it is over, or not
    /// ours any more.
    async fn take(
        &self,
        conn: &mut PgConnection,
        page: &[Kept],
        place: Place,
    ) -> Result<bool, CommitError> {
        let Some(book) = self.book(conn).await? else {
            return Ok(false);
        };
        let counting = recount::counting(conn, &book, &self.recount).await?;
        let pulse = Pulse::new();
        let mut tx = conn.begin().await?;
        recount::fold(&mut tx, &counting, page, Timestamp::now(), &pulse).await?;
        // Last, for whoever cancels the run waits for its row with the book's in hand.
        let processed = self.recount.processed + i64::try_from(page.len()).unwrap_or(i64::MAX);
        let moved =
            crate::run::recount::step(&mut tx, book.id, &self.recount, place, processed).await?;
        if !moved {
            tx.rollback().await?;
            return Ok(false);
        }
        tx.commit().await?;
        telemetry::recounted(page.len());
        Ok(true)
    }
}
