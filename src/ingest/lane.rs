//! Lanes: bounded queues in front of the write transaction.
//!
//! **Promises.** A book's requests are committed in the order in which they came to this process;
//! a queue never holds more than its bound of clicks; a request is answered only after its
//! transaction has ended; at shutdown nothing is acknowledged that was not committed.
//!
//! While a lane's transaction runs, what arrives gathers; the next transaction takes it all, over
//! all the lane's books at once. A lone click on a quiet lane is committed at once.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Span;
use uuid::Uuid;

use super::command::Command;
use super::commit::import::Part;
use super::commit::{Batch, Receipt, Refusal};
use super::committer::{Committer, Shared};
use super::in_hand::Held;
use super::retry::Retries;
use crate::click::Click;
use crate::stream::hub::Hub;
use crate::telemetry;

/// Most clicks that one transaction takes, unless a single request has more.
const MAX_CLICKS: usize = 10_000;

/// Most books that one transaction takes.
const MAX_BOOKS: usize = 256;

/// What a request wants done to its book.
#[derive(Debug)]
pub enum Work {
    /// Count these.
    Clicks(Arc<Batch>),
    /// Bring these in, of long ago.
    Import(Box<Part>),
    /// Change the book.
    Command(Command),
    /// Let its event time go on, if it is idle.
    Idle {
        /// The name, besides its id, that requests know it by.
        slug: String,
    },
}

impl Work {
    fn clicks(&self) -> usize {
        match self {
            Self::Clicks(batch) => batch.clicks.len(),
            Self::Import(part) => part.clicks.len(),
            Self::Command(_) | Self::Idle { .. } => 0,
        }
    }

    /// How much room it takes in a queue.
    fn weight(&self) -> u32 {
        match self {
            Self::Clicks(batch) => weight(batch),
            // As many as one that imports has at a time, which is bounded there.
            Self::Import(_) | Self::Command(_) | Self::Idle { .. } => 1,
        }
    }

    /// Whether it has a transaction of its own.
    fn stands_alone(&self) -> bool {
        match self {
            // A job's step tells how its clicks fared.
            Self::Clicks(batch) => batch.checkpoint.is_some(),
            Self::Import(_) | Self::Command(_) | Self::Idle { .. } => true,
        }
    }
}

/// How much room clicks take in a queue, in clicks: one that is larger than a kibibyte counts as
/// several, so that the bound is one of memory too. Of those that were not let in, the reasons wait
/// for the answer.
pub(super) fn weight(batch: &Batch) -> u32 {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let bytes = batch.clicks.iter().map(|click| {
        let optional = [
            &click.visitor,
            &click.referrer,
            &click.source,
            &click.id.sent,
        ];
        size_of::<Click>() + click.page.len() + optional.map(length).iter().sum::<usize>()
    });
    let kibibytes = bytes.sum::<usize>() / 1024;
    let sent = batch.clicks.len() + batch.rejected + batch.filtered;
    u32::try_from(kibibytes.max(sent).max(1)).unwrap_or(u32::MAX)
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The lane's queue is full; nothing was done.
    #[error("the queue is full")]
    QueueFull,
    /// The database answers, but this could not be committed in time: the book's row is held, or
    /// the statement takes too long. Nothing was acknowledged.
    #[error("the book could not be written in time")]
    Busy,
    /// The database is out of reach, and the spool takes no more; nothing was acknowledged.
    #[error("the spool is full")]
    SpoolFull,
    /// The database is out of reach, or the process is shutting down; nothing was acknowledged.
    #[error("the database is out of reach")]
    Unavailable,
    /// The transaction went well, but not for this request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The job's step was not taken: another process has the job, or has an earlier try of this
    /// one been committed.
    #[error("the job's lease is lost")]
    LostLease,
    /// The request cannot be committed, however often it is tried.
    #[error("the request cannot be committed")]
    Failed,
}

/// How lanes are set up.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// How many.
    pub lanes: usize,
    /// How long a busy lane gathers before its next transaction.
    pub gather: Duration,
    /// Most clicks that wait in a lane.
    pub queue_clicks: usize,
    /// How often and how soon a failed transaction is tried again.
    pub retries: Retries,
}

/// A request that waits for its answer.
pub(super) struct Queued {
    pub(super) book: Uuid,
    pub(super) work: Work,
    /// Of the request, so that what is logged of its commit can be found by it.
    pub(super) span: Span,
    reply: oneshot::Sender<Result<Receipt, SubmitError>>,
    /// Its clicks are in hand until it is answered, even if the sender has gone away.
    _in_hand: Option<Held>,
    /// Gives the queue's room back when the request is answered.
    _room: OwnedSemaphorePermit,
}

impl Queued {
    /// The caller may have gone away; what it sent has its fate all the same.
    pub(super) fn answer(self, answer: Result<Receipt, SubmitError>) {
        let _ = self.reply.send(answer);
    }
}

/// The way in.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Lane {
    room: Arc<Semaphore>,
    queue: mpsc::Sender<Queued>,
}

impl Lanes {
    /// Starts the lanes. They end, each after what it has queued, when this is dropped. `hurry` ends
    /// them at once: what is queued then, and cannot be committed without waiting, is told to come
    /// back.
    #[must_use]
    pub fn start(
        config: &LaneConfig,
        database: &PgConnectOptions,
        hub: &Arc<Hub>,
        tasks: &TaskTracker,
        hurry: &CancellationToken,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let lanes = (0..config.lanes).map(|number| {
            // A request takes room for at least one click, so this channel never fills before
            // the room is gone.
            let (queue, requests) = mpsc::channel(config.queue_clicks);
            let worker = Worker {
                number: number.to_string(),
                requests,
                held_back: None,
                committer: Committer::new(
                    database.clone(),
                    Arc::clone(hub),
                    Arc::clone(&shared),
                    config.retries,
                    hurry.clone(),
                ),
                gather: config.gather,
                hurry: hurry.clone(),
            };
            tasks.spawn(worker.run());
            Lane {
                room: Arc::new(Semaphore::new(config.queue_clicks)),
                queue,
            }
        });
        Self {
            lanes: lanes.collect(),
            shared,
        }
    }

    /// Notes that clicks for the book `name`, an id or a slug, have been received; it is not idle
    /// until this is dropped. What is submitted is held by itself until it is answered.
    #[must_use]
    pub fn hold(&self, name: &str) -> Held {
        self.shared.in_hand.hold(name)
    }

    /// Queues `work` for `book` and waits until it is committed or refused.
    ///
    /// # Errors
    /// Nothing of it was acknowledged; see [`SubmitError`].
    pub async fn submit(&self, book: Uuid, work: Work) -> Result<Receipt, SubmitError> {
        self.enqueue(book, work)?.wait().await
    }

    /// Queues `work` for `book`: behind what was queued before, and before what comes later.
    ///
    /// # Errors
    /// The queue is full, or the process is shutting down.
    pub fn enqueue(&self, book: Uuid, work: Work) -> Result<Answer, SubmitError> {
        let lane = &self.lanes[lane_of(book, self.lanes.len())];
        let room = Arc::clone(&lane.room)
            .try_acquire_many_owned(work.weight())
            .map_err(|_| SubmitError::QueueFull)?;
        let in_hand = matches!(work, Work::Clicks(_)).then(|| self.hold(&book.to_string()));
        let (reply, answer) = oneshot::channel();
        let queued = Queued {
            book,
            work,
            span: Span::current(),
            reply,
            _in_hand: in_hand,
            _room: room,
        };
        let sent = lane.queue.try_send(queued);
        sent.map_err(|_| SubmitError::Unavailable)?;
        Ok(Answer(answer))
    }
}

/// The answer to what was queued.
#[derive(Debug)]
pub struct Answer(oneshot::Receiver<Result<Receipt, SubmitError>>);

impl Answer {
    /// Waits until it is committed or refused.
    ///
    /// # Errors
    /// As [`Lanes::submit`].
    pub async fn wait(self) -> Result<Receipt, SubmitError> {
        self.0.await.unwrap_or(Err(SubmitError::Unavailable))
    }
}

/// The lane that a book hashes to. The last bytes of a version 7 UUID are random.
fn lane_of(book: Uuid, lanes: usize) -> usize {
    let (_, low) = book.as_u64_pair();
    usize::try_from(low % lanes as u64).unwrap_or(0)
}

/// The task behind a lane.
struct Worker {
    number: String,
    requests: mpsc::Receiver<Queued>,
    /// A request that did not fit into the last group.
    held_back: Option<Queued>,
    committer: Committer,
    gather: Duration,
    hurry: CancellationToken,
}

impl Worker {
    async fn run(mut self) {
        let mut last_commit_clicks = 0;
        loop {
            let first = match self.held_back.take() {
                Some(request) => request,
                None => match self.next().await {
                    Some(request) => request,
                    None => return,
                },
            };
            let group = self.gather_group(first, last_commit_clicks).await;
            last_commit_clicks = group.iter().map(|r| r.work.clicks()).sum();
            telemetry::queue_depth(&self.number, self.requests.len());
            self.committer.serve(group).await;
        }
    }

    /// The next request; `None` when there will be no more. Once there is hurry, that is after those
    /// that are queued.
    async fn next(&mut self) -> Option<Queued> {
        tokio::select! {
            request = self.requests.recv() => return request,
            () = self.hurry.cancelled() => self.requests.close(),
        }
        self.requests.recv().await
    }

    /// Takes what is queued, up to the bounds of one transaction. What stands alone comes
    /// after the clicks before it and before those behind it.
    ///
    /// On a busy lane, whose last transaction had `expected` clicks, it waits a little until as many
    /// are there again: those who have just been answered are about to send their next, and a
    /// transaction costs about the same for one as for dozens.
    async fn gather_group(&mut self, first: Queued, expected: usize) -> Vec<Queued> {
        let alone = first.work.stands_alone();
        let expected = if expected > 1 { expected } else { 0 };
        let mut waited_for = pin!(tokio::time::sleep(self.gather));
        let mut clicks = first.work.clicks();
        let mut books = HashSet::from([first.book]);
        let mut group = vec![first];
        while !alone && clicks < MAX_CLICKS {
            let next = match self.requests.try_recv() {
                Ok(next) => Some(next),
                Err(_) if clicks >= expected => None,
                Err(_) => tokio::select! {
                    next = self.requests.recv() => next,
                    () = &mut waited_for => None,
                    () = self.hurry.cancelled() => None,
                },
            };
            let Some(next) = next else { break };
            let more = next.work.clicks();
            let new_book = !books.contains(&next.book);
            if next.work.stands_alone()
                || clicks + more > MAX_CLICKS
                || (new_book && books.len() == MAX_BOOKS)
            {
                self.held_back = Some(next);
                break;
            }
            clicks += more;
            books.insert(next.book);
            group.push(next);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_let_in_takes_room_for_its_reasons() {
        let batch = Batch {
            rejected: 9_000,
            filtered: 500,
            ..Batch::default()
        };
        assert_eq!(weight(&batch), 9_500);
        assert_eq!(weight(&Batch::default()), 1);
    }

    #[test]
    fn a_book_keeps_to_its_lane_and_books_spread() {
        let mut used = HashSet::new();
        for _ in 0..200 {
            let book = Uuid::now_v7();
            assert_eq!(lane_of(book, 8), lane_of(book, 8));
            used.insert(lane_of(book, 8));
        }
        assert_eq!(used.len(), 8);
    }
}
