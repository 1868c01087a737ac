//! Taking a request apart that cannot be committed as a whole: halved until the click that stands
//! in the way is alone, which becomes a dead letter; the others are counted.
//!
//! **Called by** `committer`, once a request stands alone and fails in a way that does not pass.

use std::ops::Range;

use super::commit::{Batch, CommitError, Committed, Fate, Receipt};
use super::committer::{Attempt, Committer};
use super::lane::{Queued, SubmitError, Work};
use super::retry::{self, Kind};
use crate::telemetry;

/// What has become of a request's clicks so far.
#[derive(Default)]
struct Settled {
    fates: Vec<Fate>,
    last: Option<Receipt>,
}

impl Settled {
    /// Takes in what a transaction for the request said.
    fn take(&mut self, committed: Committed) -> Result<(), SubmitError> {
        for reply in committed.replies {
            let mut receipt = reply?;
            self.fates.append(&mut receipt.fates);
            self.last = Some(receipt);
        }
        Ok(())
    }

    /// The receipt of the whole request, as the book stands after its last part.
    fn receipt(self) -> Result<Receipt, SubmitError> {
        let last = self.last.ok_or(SubmitError::Failed)?;
        Ok(Receipt {
            fates: self.fates,
            ..last
        })
    }
}

impl Committer {
    /// Commits a request part by part; `error` is why it cannot be as a whole.
    pub(super) async fn take_apart(
        &mut self,
        request: &Queued,
        error: CommitError,
    ) -> Result<Receipt, SubmitError> {
        let batch = match &request.work {
            // A book that this version cannot count by is no fault of its clicks.
            Work::Clicks(batch) if !matches!(error, CommitError::Plan(_)) => &**batch,
            _ => {
                tracing::error!(error = %telemetry::chain(&error), "a request cannot be committed");
                return Err(SubmitError::Failed);
            }
        };
        let mut settled = Settled::default();
        if batch.checkpoint.is_some() {
            // Half of it would leave the job's place behind: the job cuts its steps itself.
            if batch.clicks.len() != 1 {
                return Err(SubmitError::Failed);
            }
            let committed = match self.part(request, batch).await {
                Err(error) if retry::kind(&error) == Kind::Permanent => {
                    self.dead_letter(request, batch, &error).await
                }
                other => other,
            };
            settled.take(committed.map_err(|error| give_up(&error))?)?;
            return settled.receipt();
        }
        let left_out = Batch {
            clicks: Vec::new(),
            ..batch.clone()
        };
        if left_out.rejected + left_out.filtered > 0 {
            // Counted once, whatever becomes of the clicks.
            let committed = self.part(request, &left_out).await;
            settled.take(committed.map_err(|error| give_up(&error))?)?;
        }
        let mut known = Some(error);
        let mut tried = None;
        let mut waiting: Vec<Range<usize>> = Vec::new();
        waiting.push(0..batch.clicks.len());
        while let Some(range) = waiting.pop() {
            let committed = match known.take() {
                Some(error) => Err(error),
                None => self.part(request, &part_of(batch, range.clone())).await,
            };
            match committed {
                Ok(committed) => settled.take(committed)?,
                Err(error) if retry::kind(&error) != Kind::Permanent => {
                    return Err(give_up(&error));
                }
                Err(error) if range.len() == 1 && tried != Some(range.start) => {
                    // Once more by itself, with a new connection: what the old one brought along is
                    // no reason to set a click aside.
                    tracing::debug!(error = %telemetry::chain(&error), "one click is left");
                    tried = Some(range.start);
                    waiting.push(range);
                }
                Err(error) if range.len() == 1 => {
                    let part = part_of(batch, range);
                    let letter = self.dead_letter(request, &part, &error).await;
                    settled.take(letter.map_err(|error| give_up(&error))?)?;
                }
                Err(_) if range.is_empty() => return Err(SubmitError::Failed),
                Err(_) => {
                    let middle = range.start + range.len() / 2;
                    waiting.extend([middle..range.end, range.start..middle]);
                }
            }
        }
        settled.receipt()
    }

    async fn part(&mut self, request: &Queued, part: &Batch) -> Result<Committed, CommitError> {
        self.attempt_alone(Attempt::Part(request.book, part)).await
    }

    async fn dead_letter(
        &mut self,
        request: &Queued,
        part: &Batch,
        error: &CommitError,
    ) -> Result<Committed, CommitError> {
        let reason = retry::reason(error);
        let click = part.clicks.first().map(|click| click.id.uuid);
        tracing::error!(
            error = %telemetry::chain(error), book = %request.book, ?click,
            "a click cannot be committed; it is kept as a dead letter"
        );
        let attempt = Attempt::DeadLetter(request.book, part, &reason);
        self.attempt_alone(attempt).await
    }
}

fn part_of(batch: &Batch, range: Range<usize>) -> Batch {
    Batch {
        clicks: batch.clicks[range].to_vec(),
        rejected: 0,
        filtered: 0,
        ..batch.clone()
    }
}

/// What is left of the request is not acknowledged; what was committed falls out as duplicates when
/// it is sent again.
fn give_up(error: &CommitError) -> SubmitError {
    tracing::error!(error = %telemetry::chain(error), "gave up; the request is told to come back");
    match retry::kind(error) {
        Kind::Permanent => SubmitError::Failed,
        Kind::LostLease => SubmitError::LostLease,
        Kind::Passing | Kind::RowHeld | Kind::GaveUp => SubmitError::Busy,
        Kind::Unreachable => SubmitError::Unavailable,
    }
}
