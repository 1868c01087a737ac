//! The work of runs: imports read a log and hand it to the lanes, recounts read the book's own.
//!
//! **Promises.** A run that is live is held by a living process, or is looked after within seconds by
//! any that serves: an import whose process has died is ended as failed, a recount goes on
//! ([`keeper`]). What is committed of a run is committed with its place, so that nothing counts twice
//! whoever is killed.
//!
//! **Called by** `http` and by the commands of the terminal.

pub mod import;
pub mod keeper;
mod parse;
mod recounting;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::book::directory::Directory;
use crate::ingest::command::Command;
use crate::ingest::commit::{Receipt, Refusal};
use crate::ingest::lane::{Lanes, SubmitError, Work};
use crate::ingest::recount;
use crate::ingest::retry::Retries;
use crate::ingest::runs::RunCommand;
use crate::run::lease::{self, Lease};
use crate::run::moving::Ending;
use crate::run::{NewRun, Run, Spec, table};

/// The epoch of a run that has just begun.
const FIRST_EPOCH: i64 = 1;

/// How long a command that must not be lost is tried again.
const PATIENCE_TRIES: u32 = 8;

/// Why a run was not begun, or is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The book does not take it, or the database is out of reach.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// What the database says.
    #[error("the run cannot be read or written")]
    Database(#[from] sqlx::Error),
    /// It was deleted with its book.
    #[error("the run is gone")]
    Gone,
    /// A mistake in this program.
    #[error("the work of the run panicked")]
    Panicked,
}

/// The runs that this process does.
#[derive(Debug)]
pub struct Runs {
    pool: PgPool,
    database: PgConnectOptions,
    lanes: Arc<Lanes>,
    directory: Arc<Directory>,
    /// Ring when there may be something to do: for imports, and for recounts.
    bells: [Notify; 2],
    /// What is being done here.
    here: Mutex<HashSet<Uuid>>,
    /// Cancelled when what is being done is to end.
    stop: CancellationToken,
}

/// A run that this process holds.
#[derive(Debug)]
struct Held {
    runs: Arc<Runs>,
    book: Uuid,
    run: Uuid,
    epoch: i64,
    _lease: Lease,
    _here: Here,
}

/// A run that is being done here, or asked for, until this is dropped.
#[derive(Debug)]
struct Here {
    runs: Arc<Runs>,
    run: Uuid,
}

impl Drop for Here {
    fn drop(&mut self) {
        self.runs.here().remove(&self.run);
    }
}

impl Runs {
    /// Nothing is being done yet.
    #[must_use]
    pub fn new(
        pool: PgPool,
        database: PgConnectOptions,
        lanes: Arc<Lanes>,
        directory: Arc<Directory>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            pool,
            database,
            lanes,
            directory,
            bells: Default::default(),
            here: Mutex::default(),
            stop,
        }
    }

    /// Says that a run may have begun or ended.
    pub fn ring(&self) {
        for bell in &self.bells {
            bell.notify_one();
        }
    }

    /// Begins a recount of a book, by its own rollups; whoever looks after runs does it.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn recount(self: &Arc<Self>, book: Uuid) -> Result<Run, RunError> {
        self.settle(book).await?;
        let run = NewRun::new(Spec::Recount { rollups: None });
        let id = run.id;
        self.command(book, RunCommand::Begin(run)).await?;
        self.ring();
        self.find(book, id).await
    }

    /// Ends a live run because somebody wants it; one that has ended stays as it is.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn cancel(&self, book: Uuid, run: Uuid) -> Result<Run, RunError> {
        self.end(book, run, None, Ending::Cancelled).await?;
        self.ring();
        self.find(book, run).await
    }

    /// Removes what a recount that has ended has left behind.
    ///
    /// # Errors
    /// What the database says.
    pub async fn sweep(&self, book: Uuid, run: Uuid) -> Result<(), sqlx::Error> {
        recount::sweep(&self.pool, book, run).await
    }

    /// A run as it stands.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn find(&self, book: Uuid, run: Uuid) -> Result<Run, RunError> {
        let found = table::find(&self.pool, book, run).await?;
        found.ok_or(RunError::Gone)
    }

    /// Begins a run and holds it.
    async fn begin(self: &Arc<Self>, book: Uuid, spec: Spec) -> Result<Held, RunError> {
        self.settle(book).await?;
        let run = NewRun::new(spec);
        let id = run.id;
        // Before it is there, so that nobody finds it without its process.
        let mut held = self.hold(book, id).await?.ok_or(RunError::Gone)?;
        self.command(book, RunCommand::Begin(run)).await?;
        held.epoch = FIRST_EPOCH;
        Ok(held)
    }

    /// Takes the lease of a run; `None`: another process has it, or this one.
    async fn hold(self: &Arc<Self>, book: Uuid, run: Uuid) -> Result<Option<Held>, sqlx::Error> {
        if !self.here().insert(run) {
            return Ok(None);
        }
        let here = Here {
            runs: Arc::clone(self),
            run,
        };
        let lease = lease::take(&self.database, run).await?;
        Ok(lease.map(|lease| Held {
            runs: Arc::clone(self),
            book,
            run,
            epoch: 0,
            _lease: lease,
            _here: here,
        }))
    }

    /// Ends a run, however long the database is away, within bounds: what is left then, others find.
    async fn end(
        &self,
        book: Uuid,
        run: Uuid,
        epoch: Option<i64>,
        ending: Ending,
    ) -> Result<(), RunError> {
        let mut failures = 0;
        loop {
            let ending = ending.clone();
            let command = RunCommand::End { run, epoch, ending };
            match self.command(book, command).await {
                Ok(_) => return Ok(()),
                Err(error) if !passes(&error) || failures == PATIENCE_TRIES => {
                    return Err(error.into());
                }
                Err(_) => failures += 1,
            }
            tokio::time::sleep(Retries::default().wait_before(failures)).await;
        }
    }

    async fn command(&self, book: Uuid, command: RunCommand) -> Result<Receipt, SubmitError> {
        let work = Work::Command(Command::Run(command));
        self.lanes.submit(book, work).await
    }

    fn here(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        // Every change to the set is whole.
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the same may go well a moment later.
fn passes(error: &SubmitError) -> bool {
    match error {
        SubmitError::QueueFull
        | SubmitError::Busy
        | SubmitError::SpoolFull
        | SubmitError::Unavailable => true,
        SubmitError::Refused(refusal) => *refusal == Refusal::NotYet,
        SubmitError::LostLease | SubmitError::Failed => false,
    }
}

/// Waits before try number `failures`; true: there is to be none.
async fn stopped_within(stop: &CancellationToken, failures: u32) -> bool {
    let wait: Duration = Retries::default().wait_before(failures);
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(wait) => false,
    }
}
