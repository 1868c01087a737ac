//! A job's steps: what it hands to the write path, until it is committed, and its place.

use std::sync::Arc;
use std::time::Duration;

use super::{Job, JobError};
use crate::book::Totals;
use crate::checkpoint::{self, CommitMode, State};
use crate::engine::Status;
use crate::ingest::commit::{Batch, Fate, Refusal};
use crate::ingest::lane::{SubmitError, Work};
use crate::ingest::retry::Retries;
use crate::telemetry;
use crate::time::Timestamp;

/// How long the database may take to keep a place.
const PATIENCE: Duration = Duration::from_secs(5);

impl Job {
    /// Has the clicks committed, however long the database is away, and gives the job's state with
    /// them; `None` if it was asked to end before. `state` is the job's without them, `to` the byte
    /// after them.
    pub(super) async fn commit(
        &self,
        mut batch: Batch,
        mut state: State,
        to: u64,
    ) -> Result<Option<State>, JobError> {
        let nothing = batch.clicks.is_empty() && batch.rejected == 0;
        if nothing && batch.checkpoint.is_none() {
            return Ok(Some(state));
        }
        let book = || self.config.book.clone();
        let mut failures = 0;
        loop {
            let work = Work::Clicks(Arc::new(batch.clone()));
            let error = match self.lanes.submit(self.book(), work).await {
                Ok(receipt) => {
                    state.add(&totals(&receipt.fates, batch.rejected));
                    return Ok(Some(state));
                }
                Err(error) => error,
            };
            match error {
                SubmitError::QueueFull
                | SubmitError::SpoolFull
                | SubmitError::Busy
                | SubmitError::Unavailable => {}
                SubmitError::LostLease => return self.is_taken(to).await,
                SubmitError::Refused(Refusal::Closed) => return Err(JobError::Closed(book())),
                SubmitError::Refused(_) => return Err(JobError::NoSuchBook(book())),
                SubmitError::Failed => {
                    let from = self.stored.offset;
                    return Err(JobError::Failed { from, to });
                }
            }
            // It may have been committed all the same, and then the ids are known.
            for click in &mut batch.clicks {
                click.id.fresh = false;
            }
            failures += 1;
            if self.stopped_within(failures).await {
                return Ok(None);
            }
        }
    }

    /// Waits before the next try. True: the job was asked to end.
    async fn stopped_within(&self, failures: u32) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => true,
            () = tokio::time::sleep(Retries::default().wait_before(failures)) => false,
        }
    }

    /// A step was refused: either an earlier try of it was committed without our knowing it, and the
    /// row says how it went, or the job is another process's.
    async fn is_taken(&self, to: u64) -> Result<Option<State>, JobError> {
        let mut failures = 0;
        loop {
            let job = (self.book(), self.config.name.as_str());
            match checkpoint::read(&self.pool, job).await {
                Ok(Some(row)) if row.epoch == self.stored.epoch && row.offset == to => {
                    return Ok(Some(row.state));
                }
                Ok(_) => return Err(JobError::Lost(self.config.name.clone())),
                Err(error) => tell(&error),
            }
            failures += 1;
            if self.stopped_within(failures).await {
                return Ok(None);
            }
        }
    }

    /// Keeps the job's place, and its state where the mode says so. In a transaction with the clicks
    /// it is kept already.
    pub(super) async fn keep_place(&mut self) -> Result<(), JobError> {
        self.since_kept = 0;
        let state = match self.config.mode {
            CommitMode::Transactional => return Ok(()),
            CommitMode::Auto => None,
            CommitMode::CheckpointAdd | CommitMode::CheckpointPut => Some(self.stored.state),
        };
        let mut failures = 0;
        loop {
            let job = (self.book(), self.config.name.as_str(), self.stored.epoch);
            let offset = self.stored.offset;
            let keeping = checkpoint::keep(&self.pool, job, offset, state, Timestamp::now());
            let kept = tokio::time::timeout(PATIENCE, keeping).await;
            match kept.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(JobError::Lost(self.config.name.clone())),
                Err(error) => tell(&error),
            }
            failures += 1;
            if self.stopped_within(failures).await {
                return Err(JobError::NotKept);
            }
        }
    }
}

fn tell(error: &sqlx::Error) {
    tracing::warn!(error = %telemetry::chain(error), "the job's row is out of reach; trying again");
}

/// How the clicks of a step fared.
fn totals(fates: &[Fate], rejected: usize) -> Totals {
    let to_i64 = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let mut totals = Totals {
        received: to_i64(fates.len() + rejected),
        rejected: to_i64(rejected),
        ..Totals::default()
    };
    for fate in fates {
        *match fate {
            Fate::Judged { status, .. } => match status {
                Status::OnTime => &mut totals.on_time,
                Status::Late => &mut totals.late,
                Status::Dropped => &mut totals.dropped,
            },
            Fate::Duplicate { .. } => &mut totals.duplicates,
            Fate::Debounced => &mut totals.filtered,
            Fate::DeadLetter => &mut totals.rejected,
        } += 1;
    }
    totals
}
