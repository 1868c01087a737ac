//! The lease of a job: one process at a time.
//!
//! An advisory lock on a connection of its own, which Postgres lets go as soon as the process is
//! dead; and the epoch in the job's row, raised at each start, under which alone the job is written.
//! The lock keeps a second process from starting; the epoch keeps a first one, whose connection was
//! lost without its knowing, from writing.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use super::JobError;
use crate::checkpoint::{self, CommitMode, Stored};
use crate::ingest::retry::Retries;
use crate::time::Timestamp;
use crate::{db, telemetry};

/// How often the lease is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tries at the start: the lock of a process that was killed a moment ago is let go in a moment.
const TRIES: u32 = 5;

/// Time between them.
const PAUSE: Duration = Duration::from_millis(200);

/// A lease that this process holds.
pub(super) struct Lease {
    options: PgConnectOptions,
    /// Holds the lock.
    connection: PgConnection,
    book: Uuid,
    job: String,
    epoch: i64,
}

impl Lease {
    /// Takes the lease of a job and raises its epoch; says where the job stands.
    pub(super) async fn take(
        options: &PgConnectOptions,
        book: Uuid,
        job: &str,
        mode: CommitMode,
    ) -> Result<(Self, Stored), JobError> {
        let mut connection = db::connect(options).await?;
        let mut tries = 1;
        while !lock(&mut connection, book, job).await? {
            if tries == TRIES {
                return Err(JobError::Taken(job.to_owned()));
            }
            tries += 1;
            tokio::time::sleep(PAUSE).await;
        }
        let stored =
            checkpoint::begin(&mut connection, (book, job), mode, Timestamp::now()).await?;
        let lease = Self {
            options: options.clone(),
            connection,
            book,
            job: job.to_owned(),
            epoch: stored.epoch,
        };
        Ok((lease, stored))
    }

    /// Looks after the lease; returns when it is lost. A lost connection is made again for as long
    /// as nobody else has the job.
    pub(super) async fn keep(mut self) -> JobError {
        let mut failures = 0;
        loop {
            let pause = match failures {
                0 => LOOK_EVERY,
                _ => Retries::default().wait_before(failures),
            };
            tokio::time::sleep(pause).await;
            let looked = if failures == 0 {
                patiently(self.is_ours()).await
            } else {
                patiently(self.take_again()).await
            };
            match looked {
                Ok(true) => failures = 0,
                Ok(false) => return JobError::Lost(self.job),
                Err(error) => {
                    failures += 1;
                    let error = telemetry::chain(&error);
                    tracing::warn!(%error, failures, "the lease of the job cannot be looked at");
                }
            }
        }
    }

    async fn is_ours(&mut self) -> Result<bool, sqlx::Error> {
        let stored = checkpoint::read(&mut self.connection, (self.book, &self.job)).await?;
        Ok(stored.is_some_and(|stored| stored.epoch == self.epoch))
    }

    /// The lock on a new connection. Where it is held, our old connection may still have it; whoever
    /// else takes it raises the epoch.
    async fn take_again(&mut self) -> Result<bool, sqlx::Error> {
        self.connection = db::connect(&self.options).await?;
        let locked = lock(&mut self.connection, self.book, &self.job).await?;
        let ours = self.is_ours().await?;
        if ours && !locked {
            return Err(sqlx::Error::PoolTimedOut);
        }
        Ok(ours)
    }
}

async fn lock(conn: &mut PgConnection, book: Uuid, job: &str) -> Result<bool, sqlx::Error> {
    db::try_advisory_lock(conn, key(book, job)).await
}

/// 64 bits that stand for a job of a book.
fn key(book: Uuid, job: &str) -> i64 {
    let hash = Sha256::new()
        .chain_update("pagetide job")
        .chain_update(book.as_bytes())
        .chain_update(job)
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    i64::from_be_bytes(first)
}

/// A database that says nothing is as good as away.
async fn patiently<T>(
    asking: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_books_are_told_apart() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(key(a, "x"), key(a, "x"));
        assert_ne!(key(a, "x"), key(a, "y"));
        assert_ne!(key(a, "x"), key(b, "x"));
    }
}
