//! Lanes: bounded queues in front of the write transaction.
//!
//! **Promises.** A book's requests are committed in the order in which they came to this process;
//! a queue never holds more than its bound of clicks; a request is answered only after its
//! transaction has ended; at shutdown nothing is acknowledged that was not committed.
//!
//! While a lane's transaction runs, what arrives gathers; the next transaction takes it all, over
//! all the lane's books at once. A lone click on a quiet lane is committed at once.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::command::{self, Command};
use super::commit::{self, Batch, CommitError, Committed, Receipt, Refusal};
use super::retry;
use crate::stream::hub::Hub;
use crate::telemetry;
use crate::time::Timestamp;

/// Most clicks that one transaction takes, unless a single request has more.
const MAX_CLICKS: usize = 10_000;

/// Most books that one transaction takes.
const MAX_BOOKS: usize = 256;

/// How long a transaction may take, waiting for books that another process holds included: behind
/// one that hangs, every request of the lane would.
const LONGEST_COMMIT: Duration = Duration::from_secs(10);

/// What a request wants done to its book.
#[derive(Debug)]
pub enum Work {
    /// Count these.
    Clicks(Batch),
    /// Change the book.
    Command(Command),
}

impl Work {
    fn clicks(&self) -> usize {
        match self {
            Self::Clicks(batch) => batch.clicks.len(),
            Self::Command(_) => 0,
        }
    }
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The lane's queue is full; nothing was done.
    #[error("the queue is full")]
    QueueFull,
    /// The database is out of reach, or the process is shutting down; nothing was acknowledged.
    #[error("the database is out of reach")]
    Unavailable,
    /// The transaction went well, but not for this request.
    #[error(transparent)]
    Refused(#[from] Refusal),
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
}

struct Queued {
    book: Uuid,
    work: Work,
    reply: oneshot::Sender<Result<Receipt, SubmitError>>,
    /// Gives the queue's room back when the request is answered.
    _room: OwnedSemaphorePermit,
}

/// The way in.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    room: Arc<Semaphore>,
    queue: mpsc::Sender<Queued>,
}

impl Lanes {
    /// Starts the lanes. They end, each after what it has queued, when this is dropped; `hurry`
    /// cuts short what they wait for.
    #[must_use]
    pub fn start(
        config: &LaneConfig,
        database: &PgConnectOptions,
        hub: &Arc<Hub>,
        tasks: &TaskTracker,
        hurry: &CancellationToken,
    ) -> Self {
        let lanes = (0..config.lanes).map(|number| {
            // A request takes room for at least one click, so this channel never fills before
            // the room is gone.
            let (queue, requests) = mpsc::channel(config.queue_clicks);
            let worker = Worker {
                number: number.to_string(),
                requests,
                held_back: None,
                database: database.clone(),
                connection: None,
                gather: config.gather,
                hub: Arc::clone(hub),
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
        }
    }

    /// Queues `work` for `book` and waits until it is committed or refused.
    ///
    /// # Errors
    /// Nothing of it was acknowledged; see [`SubmitError`].
    pub async fn submit(&self, book: Uuid, work: Work) -> Result<Receipt, SubmitError> {
        let lane = &self.lanes[lane_of(book, self.lanes.len())];
        let room = u32::try_from(work.clicks().max(1)).unwrap_or(u32::MAX);
        let room = Arc::clone(&lane.room)
            .try_acquire_many_owned(room)
            .map_err(|_| SubmitError::QueueFull)?;
        let (reply, answer) = oneshot::channel();
        let queued = Queued {
            book,
            work,
            reply,
            _room: room,
        };
        let sent = lane.queue.try_send(queued);
        sent.map_err(|_| SubmitError::Unavailable)?;
        answer.await.unwrap_or(Err(SubmitError::Unavailable))
    }
}

/// The lane that a book hashes to. The last bytes of a version 7 UUID are random.
fn lane_of(book: Uuid, lanes: usize) -> usize {
    let (_, low) = book.as_u64_pair();
    usize::try_from(low % lanes as u64).unwrap_or(0)
}

/// The task behind a lane. It owns its connection, so lanes never wait for one another.
struct Worker {
    number: String,
    requests: mpsc::Receiver<Queued>,
    /// A request that did not fit into the last group.
    held_back: Option<Queued>,
    database: PgConnectOptions,
    connection: Option<PgConnection>,
    gather: Duration,
    hub: Arc<Hub>,
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
            if last_commit_clicks > 1 && first.work.clicks() < MAX_CLICKS {
                tokio::select! {
                    () = tokio::time::sleep(self.gather) => {}
                    () = self.hurry.cancelled() => {}
                }
            }
            let group = self.gather_group(first);
            last_commit_clicks = group.iter().map(|r| r.work.clicks()).sum();
            telemetry::queue_depth(&self.number, self.requests.len());
            self.serve(group).await;
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

    /// Takes what is queued, up to the bounds of one transaction. A command stands alone: it comes
    /// after the clicks before it and before those behind it.
    fn gather_group(&mut self, first: Queued) -> Vec<Queued> {
        let alone = matches!(first.work, Work::Command(_));
        let mut clicks = first.work.clicks();
        let mut books = HashSet::from([first.book]);
        let mut group = vec![first];
        while !alone && clicks < MAX_CLICKS {
            let Ok(next) = self.requests.try_recv() else {
                break;
            };
            let more = next.work.clicks();
            let new_book = !books.contains(&next.book);
            if matches!(next.work, Work::Command(_))
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

    /// Commits a group and answers it. A group that cannot be committed is cut in two, until the
    /// request that stands in the way is alone.
    async fn serve(&mut self, group: Vec<Queued>) {
        let mut groups = vec![group];
        // Whether an earlier try may have been committed without our knowing it.
        let mut again = false;
        while let Some(mut group) = groups.pop() {
            match self.commit_with_retries(&group, &mut again).await {
                Ok(committed) => self.answer(group, committed),
                Err(error) if retry::can_pass(&error) => {
                    tracing::error!(error = %telemetry::chain(&error), requests = group.len(),
                        "gave up on a transaction; its requests are told to come back");
                    for request in group {
                        let _ = request.reply.send(Err(SubmitError::Unavailable));
                    }
                }
                Err(_) if group.len() > 1 => {
                    let second = group.split_off(group.len() / 2);
                    groups.extend([second, group]);
                }
                Err(error) => {
                    tracing::error!(error = %telemetry::chain(&error), "a request cannot be committed");
                    for request in group {
                        let _ = request.reply.send(Err(SubmitError::Failed));
                    }
                }
            }
        }
    }

    async fn commit_with_retries(
        &mut self,
        group: &[Queued],
        again: &mut bool,
    ) -> Result<Committed, CommitError> {
        let mut retries = 0;
        loop {
            let error = match self.try_commit(group, *again).await {
                Ok(committed) => return Ok(committed),
                Err(error) => error,
            };
            // Whatever state the connection is in, the next try begins with a new one.
            self.connection = None;
            let again_helps = retry::can_pass(&error) && !matches!(error, CommitError::GaveUp);
            if !again_helps || retries == retry::RETRIES || self.hurry.is_cancelled() {
                return Err(error);
            }
            *again = true;
            retries += 1;
            telemetry::retried();
            tracing::warn!(error = %telemetry::chain(&error), retries, "a transaction failed; trying again");
            tokio::select! {
                () = tokio::time::sleep(retry::wait_before(retries)) => {}
                () = self.hurry.cancelled() => return Err(error),
            }
        }
    }

    async fn try_commit(
        &mut self,
        group: &[Queued],
        again: bool,
    ) -> Result<Committed, CommitError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(crate::db::write_connection(&self.database).await?),
        };
        let now = Timestamp::now();
        let started = Instant::now();
        let work = async {
            if let [
                Queued {
                    book,
                    work: Work::Command(command),
                    ..
                },
            ] = group
            {
                return command::carry_out(connection, now, *book, command).await;
            }
            let batches: Vec<(Uuid, &Batch)> = group
                .iter()
                .filter_map(|request| match &request.work {
                    Work::Clicks(batch) => Some((request.book, batch)),
                    Work::Command(_) => None,
                })
                .collect();
            commit::commit(connection, now, &batches, again).await
        };
        // A panic in one transaction must not end the lane for everyone.
        let work = AssertUnwindSafe(work).catch_unwind();
        let committed = tokio::select! {
            committed = work => committed.unwrap_or(Err(CommitError::Panicked))?,
            () = tokio::time::sleep(LONGEST_COMMIT) => return Err(CommitError::GaveUp),
            () = self.hurry.cancelled() => return Err(CommitError::GaveUp),
        };
        telemetry::committed(&committed.tally, started.elapsed());
        Ok(committed)
    }

    fn answer(&self, group: Vec<Queued>, committed: Committed) {
        self.hub.wake(&committed.woken);
        for (request, reply) in group.into_iter().zip(committed.replies) {
            // The caller may have gone away; what it sent is committed all the same.
            let _ = request.reply.send(reply.map_err(SubmitError::from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
