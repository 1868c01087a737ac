//! A lane's way into the database: tries a group of requests, again where that helps, in smaller
//! groups where it does not, and answers each request once its fate is known.
//!
//! **Promises.** A request is answered only after its transaction has ended; what was not committed
//! is not acknowledged; one book whose row is held, or one request that cannot be committed, does
//! not take the others down.

use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::command;
use super::commit::{self, Batch, CommitError, Committed};
use super::idle;
use super::in_hand::InHand;
use super::lane::{Queued, SubmitError, Work};
use super::pulse::Pulse;
use super::retry::{self, Kind};
use crate::book::chapters::Structures;
use crate::stream::hub::Hub;
use crate::telemetry;
use crate::time::Timestamp;

/// It owns its connection, so lanes never wait for one another.
pub(super) struct Committer {
    database: PgConnectOptions,
    connection: Option<PgConnection>,
    hub: Arc<Hub>,
    in_hand: Arc<InHand>,
    structures: Arc<Structures>,
    /// Cancelled when there is no more time to wait for anything.
    hurry: CancellationToken,
}

/// Requests that are tried together.
struct Group {
    requests: Vec<Queued>,
    /// It has let others go first.
    deferred: bool,
}

impl Group {
    fn new(requests: Vec<Queued>) -> Self {
        Self {
            requests,
            deferred: false,
        }
    }

    fn has_several_books(&self) -> bool {
        let first = self.requests.first().map(|r| r.book);
        self.requests.iter().any(|r| Some(r.book) != first)
    }

    fn is_idle_step(&self) -> bool {
        let mut works = self.requests.iter().map(|r| &r.work);
        works.all(|work| matches!(work, Work::Idle { .. }))
    }

    /// One group for each book; the requests of a book stay in order.
    fn by_book(self) -> Vec<Self> {
        let mut seen = HashSet::new();
        let books = self.requests.iter().map(|r| r.book);
        let books: Vec<Uuid> = books.filter(|book| seen.insert(*book)).collect();
        let mut rest = self.requests;
        let groups = books.into_iter().map(|book| {
            let (mine, others) = std::mem::take(&mut rest)
                .into_iter()
                .partition(|r| r.book == book);
            rest = others;
            Self::new(mine)
        });
        groups.collect()
    }

    fn tell(self, error: impl Fn() -> SubmitError) {
        for request in self.requests {
            request.answer(Err(error()));
        }
    }
}

impl Committer {
    pub(super) fn new(
        database: PgConnectOptions,
        hub: Arc<Hub>,
        in_hand: Arc<InHand>,
        structures: Arc<Structures>,
        hurry: CancellationToken,
    ) -> Self {
        Self {
            database,
            connection: None,
            hub,
            in_hand,
            structures,
            hurry,
        }
    }

    /// Commits requests and answers them.
    pub(super) async fn serve(&mut self, requests: Vec<Queued>) {
        let mut groups = VecDeque::from([Group::new(requests)]);
        // Whether an earlier try may have been committed without our knowing it.
        let mut again = false;
        while let Some(mut group) = groups.pop_front() {
            let may_defer = !groups.is_empty() && !group.deferred;
            let error = match self
                .commit_with_retries(&group, may_defer, &mut again)
                .await
            {
                Ok(committed) => {
                    self.answer(group, committed);
                    continue;
                }
                Err(error) => error,
            };
            let line = telemetry::chain(&error);
            let kind = retry::kind(&error);
            if group.is_idle_step() && kind != Kind::Permanent {
                // Nobody waits for it; the next look finds the book again.
                tracing::debug!(error = %line, "an idle step was not taken");
                group.tell(|| SubmitError::Unavailable);
            } else if kind == Kind::LostLease {
                group.tell(|| SubmitError::LostLease);
            } else if kind == Kind::Unreachable {
                // Whatever is left would fare no better.
                groups.push_front(group);
                let requests: usize = groups.iter().map(|g| g.requests.len()).sum();
                tracing::error!(error = %line, requests, "gave up; the requests are told to come back");
                for group in groups.drain(..) {
                    group.tell(|| SubmitError::Unavailable);
                }
            } else if group.has_several_books() {
                tracing::warn!(error = %line, "a transaction failed; trying its books one by one");
                groups.extend(group.by_book());
            } else if kind == Kind::RowHeld && may_defer {
                group.deferred = true;
                groups.push_back(group);
            } else if kind != Kind::Permanent {
                tracing::error!(error = %line, "gave up; the requests are told to come back");
                group.tell(|| SubmitError::Unavailable);
            } else if group.requests.len() > 1 {
                let second = group.requests.split_off(group.requests.len() / 2);
                groups.push_front(Group::new(second));
                groups.push_front(group);
            } else {
                tracing::error!(error = %line, "a request cannot be committed");
                group.tell(|| SubmitError::Failed);
            }
        }
    }

    /// Where another way is open, a held row is no reason to try the same again: the books apart,
    /// or the others first.
    async fn commit_with_retries(
        &mut self,
        group: &Group,
        may_defer: bool,
        again: &mut bool,
    ) -> Result<Committed, CommitError> {
        let other_way = may_defer || group.has_several_books();
        let mut retries = 0;
        loop {
            let error = match self.try_commit(&group.requests, *again).await {
                Ok(committed) => return Ok(committed),
                Err(error) => error,
            };
            // Whatever state the connection is in, the next try begins with a new one.
            self.connection = None;
            let again_helps = match retry::kind(&error) {
                Kind::Permanent | Kind::LostLease => return Err(error),
                Kind::GaveUp => false,
                Kind::RowHeld => !other_way,
                Kind::Unreachable | Kind::Passing => true,
            };
            *again = true;
            if !again_helps || retries == retry::RETRIES || self.hurry.is_cancelled() {
                return Err(error);
            }
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
        requests: &[Queued],
        again: bool,
    ) -> Result<Committed, CommitError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(crate::db::write_connection(&self.database).await?),
        };
        let now = Timestamp::now();
        let started = Instant::now();
        let pulse = Pulse::new();
        let remembered = (&*self.in_hand, &*self.structures);
        let work = transaction(connection, now, requests, again, remembered, &pulse);
        // A panic in one transaction must not end the lane for everyone.
        let work = AssertUnwindSafe(work).catch_unwind();
        let committed = tokio::select! {
            committed = work => committed.unwrap_or(Err(CommitError::Panicked))?,
            () = pulse.stopped() => return Err(CommitError::GaveUp),
            () = self.hurry.cancelled() => return Err(CommitError::GaveUp),
        };
        telemetry::committed(&committed.tally, started.elapsed());
        Ok(committed)
    }

    fn answer(&self, group: Group, committed: Committed) {
        self.hub.wake(&committed.woken);
        for (request, reply) in group.requests.into_iter().zip(committed.replies) {
            request.answer(reply.map_err(SubmitError::from));
        }
    }
}

/// Clicks are committed together; everything else stands alone.
async fn transaction(
    connection: &mut PgConnection,
    now: Timestamp,
    requests: &[Queued],
    again: bool,
    (in_hand, structures): (&InHand, &Structures),
    pulse: &Pulse,
) -> Result<Committed, CommitError> {
    if let [Queued { book, work, .. }] = requests {
        match work {
            Work::Command(command) => {
                return command::carry_out(connection, now, *book, command, again, pulse).await;
            }
            Work::Idle { slug } => {
                return idle::step(connection, now, (*book, slug), in_hand, pulse).await;
            }
            Work::Clicks(_) => {}
        }
    }
    let batches = requests.iter().filter_map(|request| match &request.work {
        Work::Clicks(batch) => Some((request.book, batch)),
        Work::Command(_) | Work::Idle { .. } => None,
    });
    let batches: Vec<(Uuid, &Batch)> = batches.collect();
    commit::commit(connection, now, &batches, again, structures, pulse).await
}
