//! What a sender of clicks is told: the receipt, and the reasons why not.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::problem::{Code, Problem};
use crate::book::FieldError;
use crate::click::ClickId;
use crate::engine::Status;
use crate::ingest::admission::{Admitted, Filtered, Rejection};
use crate::ingest::commit::{Batch, Fate, Missed, Receipt};
use crate::time::Timestamp;

/// What became of the clicks. The counts add up to `received`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClicksReceipt)]
pub(super) struct ReceiptBody {
    received: usize,
    on_time: usize,
    late: usize,
    dropped: usize,
    duplicates: usize,
    filtered: usize,
    rejected: usize,
    /// The newest position of the book.
    position: i64,
    revision: i64,
    #[schema(value_type = Option<String>, format = DateTime)]
    watermark: Option<Timestamp>,
    /// Whatever is not plainly on time, by index.
    exceptions: Vec<Exception>,
}

/// A click that is not plainly on time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClickException)]
pub(super) struct Exception {
    /// Its place in the request.
    index: usize,
    id: Option<String>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// With `partly_too_late`: the windows that it was not counted in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    windows: Vec<MissedBody>,
}

/// A window that a click came too late for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MissedWindow)]
pub(super) struct MissedBody {
    rollup: String,
    #[schema(value_type = String, format = DateTime)]
    start: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    end: Timestamp,
}

/// The clicks are safe in the spool: they are counted once the database is back.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SpooledReceipt)]
pub(super) struct SpooledBody {
    received: usize,
    /// How many wait.
    spooled: usize,
    filtered: usize,
    rejected: usize,
    /// Whatever does not wait, by index.
    exceptions: Vec<Exception>,
}

/// A request whose clicks have been let in: what is needed to answer it.
pub(super) struct Sent {
    batch: Arc<Batch>,
    /// The place in the request of each click of the batch.
    places: Vec<usize>,
    rejections: Vec<Rejection>,
    filtered: Vec<Filtered>,
}

impl Sent {
    /// What goes on, and what is kept for the answer.
    pub(super) fn of(admitted: Admitted) -> (Arc<Batch>, Self) {
        let batch = Arc::new(admitted.batch);
        let sent = Self {
            batch: Arc::clone(&batch),
            places: admitted.places,
            rejections: admitted.rejections,
            filtered: admitted.filtered,
        };
        (batch, sent)
    }

    /// Whether every click was rejected.
    pub(super) fn nothing_good(&self) -> bool {
        self.places.is_empty() && self.filtered.is_empty() && !self.rejections.is_empty()
    }

    /// Whether no click goes on, though some were good.
    pub(super) fn nothing_to_commit(&self) -> bool {
        self.places.is_empty() && !self.filtered.is_empty()
    }

    pub(super) fn all_rejected(self) -> Problem {
        let errors = self.rejections.into_iter().map(FieldError::from).collect();
        Problem::with_errors(Code::AllRejected, errors)
    }

    /// The answer where the clicks wait in the spool.
    pub(super) fn spooled(self) -> SpooledBody {
        SpooledBody {
            received: self.received(),
            spooled: self.places.len(),
            filtered: self.filtered.len(),
            rejected: self.rejections.len(),
            exceptions: left_out(self.rejections, self.filtered),
        }
    }

    fn received(&self) -> usize {
        self.places.len() + self.rejections.len() + self.filtered.len()
    }

    /// The answer where the clicks have their fates; a problem if none could be accepted.
    pub(super) fn committed(mut self, receipt: Receipt) -> Result<ReceiptBody, Problem> {
        let received = self.received();
        let clicks = self.places.iter().zip(&self.batch.clicks);
        let mut exceptions = Vec::new();
        let mut body = ReceiptBody {
            received,
            on_time: 0,
            late: 0,
            dropped: 0,
            duplicates: 0,
            filtered: self.filtered.len(),
            rejected: 0,
            position: receipt.position,
            revision: receipt.revision,
            watermark: receipt.watermark.shown(),
            exceptions: Vec::new(),
        };
        for ((index, click), fate) in clicks.zip(receipt.fates) {
            if fate == Fate::DeadLetter {
                self.rejections.push(dead_letter(*index, click.id.shown()));
            } else {
                exceptions.extend(body.count(*index, &click.id, fate));
            }
        }
        body.rejected = self.rejections.len();
        if body.rejected == received && received > 0 {
            self.rejections.sort_by_key(|rejection| rejection.index);
            return Err(self.all_rejected());
        }
        exceptions.extend(left_out(self.rejections, self.filtered));
        exceptions.sort_by_key(|exception| exception.index);
        body.exceptions = exceptions;
        Ok(body)
    }
}

fn dead_letter(index: usize, id: String) -> Rejection {
    Rejection {
        index,
        id: Some(id),
        reason: "dead_letter",
        detail: "it cannot be committed; it is kept among the book's dead letters".to_owned(),
    }
}

fn left_out(rejections: Vec<Rejection>, filtered: Vec<Filtered>) -> Vec<Exception> {
    let rejected = rejections.into_iter().map(Exception::from);
    let mut all: Vec<Exception> = rejected
        .chain(filtered.into_iter().map(Exception::from))
        .collect();
    all.sort_by_key(|exception| exception.index);
    all
}

impl ReceiptBody {
    /// Counts a click; what is said of it if it is not plainly on time.
    fn count(&mut self, index: usize, id: &ClickId, fate: Fate) -> Option<Exception> {
        let (status, reason, windows) = match fate {
            Fate::Judged { status, missed } => {
                let partly = (!missed.is_empty()).then_some("partly_too_late");
                match status {
                    Status::OnTime => {
                        self.on_time += 1;
                        partly?;
                        ("on_time", partly, missed)
                    }
                    Status::Late => {
                        self.late += 1;
                        ("late", partly, missed)
                    }
                    Status::Dropped => {
                        self.dropped += 1;
                        ("dropped", Some("too_late"), missed)
                    }
                }
            }
            Fate::Duplicate { differs } => {
                self.duplicates += 1;
                ("duplicate", differs.then_some("differs"), Vec::new())
            }
            Fate::Debounced => {
                self.filtered += 1;
                ("filtered", Some("debounced"), Vec::new())
            }
            Fate::DeadLetter => return None,
        };
        Some(Exception {
            index,
            id: Some(id.shown()),
            status,
            reason,
            detail: None,
            windows: windows.into_iter().map(MissedBody::from).collect(),
        })
    }
}

impl From<Filtered> for Exception {
    fn from(filtered: Filtered) -> Self {
        Self {
            index: filtered.index,
            id: Some(filtered.id),
            status: "filtered",
            reason: Some(filtered.reason),
            detail: None,
            windows: Vec::new(),
        }
    }
}

impl From<Rejection> for Exception {
    fn from(rejection: Rejection) -> Self {
        Self {
            index: rejection.index,
            id: rejection.id,
            status: "rejected",
            reason: Some(rejection.reason),
            detail: Some(rejection.detail),
            windows: Vec::new(),
        }
    }
}

impl From<Rejection> for FieldError {
    fn from(rejection: Rejection) -> Self {
        Self {
            index: Some(rejection.index),
            field: None,
            code: rejection.reason.to_owned(),
            detail: rejection.detail,
        }
    }
}

impl From<Missed> for MissedBody {
    fn from(missed: Missed) -> Self {
        Self {
            rollup: missed.rollup,
            start: missed.start,
            end: missed.end,
        }
    }
}
