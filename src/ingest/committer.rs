//! A lane's way into the database: tries a group of requests, again where that helps, in smaller
//! groups where it does not, and answers each request once its fate is known.
//!
//! **Promises.** A request is answered only after its transaction has ended; what was not committed
//! is not acknowledged; one book whose row is held, or one click that cannot be committed, does
//! not take the others down: what cannot pass is halved, by book first, then by request and click,
//! until the click stands alone and becomes a dead letter.

use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::command;
use super::commit::clicks::{self, LookFor};
use super::commit::remembered::Memory;
use super::commit::{self, Batch, CommitError, Committed, Remember};
use super::in_hand::InHand;
use super::lane::{Queued, SubmitError, Work};
use super::pulse::Pulse;
use super::retry::{self, Kind, Retries};
use super::{dead_letters, debounce, idle};
use crate::book::chapters::Structures;
use crate::stream::hub::Hub;
use crate::telemetry;
use crate::time::Timestamp;

/// What all lanes remember, so that they need not ask.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) in_hand: Arc<InHand>,
    pub(super) structures: Structures,
    pub(super) debounce: debounce::Memory,
}

/// It owns its connection, so lanes never wait for one another.
pub(super) struct Committer {
    database: PgConnectOptions,
    connection: Option<PgConnection>,
    /// The books as they were left over this connection.
    memory: Memory,
    hub: Arc<Hub>,
    shared: Arc<Shared>,
    retries: Retries,
    /// Cancelled when there is no more time to wait for anything.
    hurry: CancellationToken,
    /// For how many more transactions ids that were sent are looked for first.
    wary: u32,
}

/// For how many transactions the lane is wary after a click that was sent twice: whoever sends one
/// often sends many.
const WARY: u32 = 100;

/// What one transaction is to commit.
#[derive(Clone, Copy)]
pub(super) enum Attempt<'a> {
    /// Whole requests.
    Requests(&'a [Queued]),
    /// Some of the clicks of one.
    Part(Uuid, &'a Batch),
    /// The click of a batch, which cannot be committed, and why.
    DeadLetter(Uuid, &'a Batch, &'a str),
}

impl Attempt<'_> {
    /// The span of the transaction: below that of its request, or, if it has several, after all
    /// of them.
    fn span(self) -> Span {
        let requests = match self {
            Self::Requests(requests) => requests,
            Self::Part(..) | Self::DeadLetter(..) => return tracing::info_span!("commit"),
        };
        if let [request] = requests {
            return tracing::info_span!(parent: &request.span, "commit");
        }
        let span = tracing::info_span!(parent: None, "commit", requests = requests.len());
        for request in requests {
            span.follows_from(&request.span);
        }
        span
    }
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
        shared: Arc<Shared>,
        retries: Retries,
        hurry: CancellationToken,
    ) -> Self {
        Self {
            database,
            connection: None,
            memory: Memory::default(),
            hub,
            shared,
            retries,
            hurry,
            wary: 0,
        }
    }

    /// Commits requests and answers them.
    pub(super) async fn serve(&mut self, requests: Vec<Queued>) {
        let mut groups = VecDeque::from([Group::new(requests)]);
        // Whether an earlier try may have been committed without our knowing it.
        let mut again = false;
        while let Some(mut group) = groups.pop_front() {
            let may_defer = !groups.is_empty() && !group.deferred;
            // Where another way is open, a held row is no reason to try the same again: the books
            // apart, or the others first.
            let other_way = may_defer || group.has_several_books();
            let attempt = Attempt::Requests(&group.requests);
            let error = match self
                .commit_with_retries(attempt, other_way, &mut again)
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
            } else if group.requests.len() > 1 && [Kind::Permanent, Kind::GaveUp].contains(&kind) {
                let second = group.requests.split_off(group.requests.len() / 2);
                groups.push_front(Group::new(second));
                groups.push_front(group);
            } else if kind != Kind::Permanent {
                tracing::error!(error = %line, "gave up; the requests are told to come back");
                group.tell(|| SubmitError::Busy);
            } else {
                tracing::warn!(error = %line, "a request cannot be committed as a whole");
                if let Some(request) = group.requests.pop() {
                    let span = request.span.clone();
                    let answer = self.take_apart(&request, error).instrument(span).await;
                    request.answer(answer);
                }
            }
        }
    }

    /// Commits what stands alone, and wakes the readers.
    pub(super) async fn attempt_alone(
        &mut self,
        attempt: Attempt<'_>,
    ) -> Result<Committed, CommitError> {
        // An earlier try may have been committed.
        let mut again = true;
        let committed = self.commit_with_retries(attempt, false, &mut again).await?;
        self.hub.tell(&committed.woken, committed.news.as_slice());
        Ok(committed)
    }

    async fn commit_with_retries(
        &mut self,
        attempt: Attempt<'_>,
        other_way: bool,
        again: &mut bool,
    ) -> Result<Committed, CommitError> {
        let mut retries = 0;
        loop {
            let look_for = self.look_for(*again);
            let error = match self.try_commit(attempt, *again, look_for).await {
                Ok(committed) => {
                    self.wary = match committed.tally.totals.duplicates {
                        0 => self.wary.saturating_sub(1),
                        _ => WARY,
                    };
                    return Ok(committed);
                }
                // Nothing is wrong: it was right to look.
                Err(CommitError::Database(error))
                    if look_for == LookFor::Nothing && clicks::is_known(&error) =>
                {
                    self.wary = WARY;
                    continue;
                }
                Err(error) => error,
            };
            // Whatever state the connection is in, the next try begins with a new one.
            self.connection = None;
            self.memory.clear();
            let again_helps = match retry::kind(&error) {
                Kind::Permanent | Kind::LostLease => return Err(error),
                Kind::GaveUp => false,
                Kind::RowHeld => !other_way,
                Kind::Unreachable | Kind::Passing => true,
            };
            *again = true;
            if !again_helps || retries == self.retries.tries || self.hurry.is_cancelled() {
                return Err(error);
            }
            retries += 1;
            telemetry::retried();
            tracing::warn!(error = %telemetry::chain(&error), retries, "a transaction failed; trying again");
            tokio::select! {
                () = tokio::time::sleep(self.retries.wait_before(retries)) => {}
                () = self.hurry.cancelled() => return Err(error),
            }
        }
    }

    /// What is looked for in the log.
    fn look_for(&self, again: bool) -> LookFor {
        match (again, self.wary) {
            (true, _) => LookFor::All,
            (false, 0) => LookFor::Nothing,
            (false, _) => LookFor::Sent,
        }
    }

    async fn try_commit(
        &mut self,
        attempt: Attempt<'_>,
        again: bool,
        look_for: LookFor,
    ) -> Result<Committed, CommitError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(crate::db::write_connection(&self.database).await?),
        };
        let now = Timestamp::now();
        let started = Instant::now();
        let pulse = Pulse::new();
        let known_here = (&*self.shared, &*self.hub);
        let span = attempt.span();
        let tries = (again, look_for);
        let memory = &mut self.memory;
        let work = transaction(connection, now, attempt, tries, known_here, memory, &pulse);
        let work = work.instrument(span.clone());
        // A panic in one transaction must not end the lane for everyone.
        let work = AssertUnwindSafe(work).catch_unwind();
        let committed = tokio::select! {
            committed = work => committed.unwrap_or(Err(CommitError::Panicked))?,
            () = pulse.stopped() => return Err(CommitError::GaveUp),
            () = self.hurry.cancelled() => return Err(CommitError::GaveUp),
        };
        let took = started.elapsed();
        span.in_scope(|| {
            tracing::debug!(clicks = committed.tally.totals.received, ?took, "committed");
        });
        telemetry::committed(&committed.tally, took);
        Ok(committed)
    }

    fn answer(&self, group: Group, committed: Committed) {
        self.hub.tell(&committed.woken, committed.news.as_slice());
        for (request, reply) in group.requests.into_iter().zip(committed.replies) {
            request.answer(reply.map_err(SubmitError::from));
        }
    }
}

/// Clicks are committed together; everything else stands alone.
async fn transaction(
    connection: &mut PgConnection,
    now: Timestamp,
    attempt: Attempt<'_>,
    (again, look_for): (bool, LookFor),
    (shared, hub): (&Shared, &Hub),
    memory: &mut Memory,
    pulse: &Pulse,
) -> Result<Committed, CommitError> {
    let batches: Vec<(Uuid, &Batch)> = match attempt {
        Attempt::DeadLetter(book, batch, reason) => {
            return dead_letters::keep(connection, now, book, batch, reason).await;
        }
        Attempt::Part(book, batch) => vec![(book, batch)],
        Attempt::Requests([Queued { book, work, .. }]) => match work {
            Work::Command(command) => {
                memory.forget(*book);
                return command::carry_out(connection, now, *book, command, again, pulse).await;
            }
            Work::Idle { slug } => {
                memory.forget(*book);
                // What waits in the spool was received too.
                let in_hand = || shared.in_hand.holds(*book, slug) || hub.owed().owes(*book);
                return idle::step(connection, now, *book, in_hand, pulse).await;
            }
            Work::Import(part) => {
                memory.forget(*book);
                let structures = &shared.structures;
                let part = (*book, &**part);
                return commit::import::commit(connection, now, part, look_for, structures, pulse)
                    .await;
            }
            Work::Clicks(batch) => vec![(*book, batch)],
        },
        Attempt::Requests(requests) => {
            let batches = requests.iter().filter_map(|request| match &request.work {
                Work::Clicks(batch) => Some((request.book, &**batch)),
                Work::Import(_) | Work::Command(_) | Work::Idle { .. } => None,
            });
            batches.collect()
        }
    };
    let remember = Remember {
        structures: &shared.structures,
        debounce: &shared.debounce,
        memory,
    };
    commit::commit(connection, now, &batches, look_for, remember, pulse).await
}
