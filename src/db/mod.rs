//! The database: how it is reached, and its schema.

pub mod embedded;

use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::memo::ReadError;

static MIGRATIONS: Migrator = sqlx::migrate!();

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a reading waits for a connection. A database that refuses connections over TCP is asked
/// again and again for this long, so it is how soon a client learns of it.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);

/// Oldest Postgres that is supported, as `server_version_num`.
const OLDEST_VERSION: i32 = 140_000;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It does not answer, or refuses us.
    #[error("the database cannot be reached")]
    Connect(#[source] sqlx::Error),
    /// It is older than [`OLDEST_VERSION`].
    #[error("Postgres 14 or newer is needed, this one is {0}")]
    TooOld(String),
    /// The schema cannot be brought up to date.
    #[error("the schema cannot be brought up to date")]
    Migrate(#[from] MigrateError),
}

/// Brings the schema up to date. Two processes that start at once wait for one another.
///
/// # Errors
/// The database cannot be reached, is too old, or has a schema newer than this program's.
pub async fn migrate(options: &PgConnectOptions) -> Result<(), DatabaseError> {
    let mut conn = connect(options).await.map_err(DatabaseError::Connect)?;
    let version = sqlx::query!(
        r#"SELECT current_setting('server_version') AS "shown!",
                  current_setting('server_version_num')::int AS "number!""#
    )
    .fetch_one(&mut conn)
    .await
    .map_err(DatabaseError::Connect)?;
    if version.number < OLDEST_VERSION {
        return Err(DatabaseError::TooOld(version.shown));
    }
    MIGRATIONS.run(&mut conn).await?;
    Ok(())
}

/// Which database this is, however it is reached.
///
/// # Errors
/// What the database says.
pub async fn identity(pool: &PgPool) -> Result<Uuid, sqlx::Error> {
    let id = sqlx::query_scalar!("SELECT id FROM installation LIMIT 1");
    id.fetch_one(pool).await
}

/// Whether an error means that the database does not answer, so that nothing else would fare better
/// either.
#[must_use]
pub fn is_unreachable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_outage(&code)),
        _ => false,
    }
}

impl ReadError for sqlx::Error {
    fn is_outage(&self) -> bool {
        is_unreachable(self)
    }
}

/// Whether an SQLSTATE (`PostgreSQL` documentation, appendix A) is one of a server that is no use:
/// connection exceptions; operator intervention (shutdown, starting up), save for a statement that was
/// cancelled; insufficient resources (too many connections, disk full, out of memory); a system error
/// (an unreadable disk); who we are is not believed; no such database.
fn is_outage(code: &str) -> bool {
    let classes = ["08", "57", "53", "58", "28", "3D"];
    code != "57014" && classes.iter().any(|class| code.starts_with(class))
}

/// A pool for everything but the write path. Connections are made when they are needed, so this
/// does not fail while the database is away.
#[must_use]
pub fn read_pool(options: &PgConnectOptions, connections: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_lazy_with(quiet(options))
}

/// A transaction that writes.
pub const WRITE: &str = "BEGIN";

/// A transaction that reads, all of it from one snapshot.
pub const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Begins a transaction ([`READ`], [`WRITE`]) on a connection of `pool`.
///
/// A request whose client went away is dropped where it waits; where it waits for `BEGIN`, sqlx 0.9
/// gives the connection back inside the transaction, and whoever gets it next would read an old
/// snapshot and commit nothing. So a task of its own waits, and what nobody takes any more is rolled
/// back.
///
/// # Errors
/// What the database says.
pub async fn begin(
    pool: &PgPool,
    statement: &'static str,
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let pool = pool.clone();
    #[allow(clippy::disallowed_methods, reason = "this is where it is allowed")]
    let beginning = tokio::spawn(async move { pool.begin_with(statement).await });
    beginning.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// A connection for the write path, which keeps it.
///
/// Its planner may only walk indexes in nested loops: whatever the statistics say, every statement of
/// the transaction looks up by key what it was given in arrays. A row that another transaction holds
/// for long makes it fail early, so that other books need not wait; and a statement that nobody waits for
/// any more ([`crate::ingest::pulse`]) ends by itself, for it holds its books' rows as long as it goes on.
///
/// # Errors
/// What the database says.
pub async fn write_connection(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut conn = connect(options).await?;
    let settings = sqlx::raw_sql(
        "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
         SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off; \
         SET lock_timeout = '2s'; SET statement_timeout = '30s'",
    );
    settings.execute(&mut conn).await?;
    Ok(conn)
}

/// A connection of its own.
///
/// # Errors
/// What the database says; after two seconds of silence, a timeout.
pub async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let options = quiet(options);
    let connecting = PgConnection::connect_with(&options);
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(elapsed) => Err(sqlx::Error::Io(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            elapsed,
        ))),
    }
}

/// Takes an advisory lock, which is let go when the connection ends; says whether it did.
///
/// # Errors
/// What the database says.
pub async fn try_advisory_lock(conn: &mut PgConnection, key: i64) -> Result<bool, sqlx::Error> {
    let lock = sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "taken!""#, key);
    lock.fetch_one(conn).await
}

/// Statements are no news; what fails is logged where it is handled.
fn quiet(options: &PgConnectOptions) -> PgConnectOptions {
    options
        .clone()
        .application_name("pagetide")
        .disable_statement_logging()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_no_use_is_told_from_a_statement_that_failed() {
        for code in [
            "57P01", "57P03", "08006", "53300", "53100", "58030", "28P01", "3D000",
        ] {
            assert!(is_outage(code), "{code}");
        }
        for code in ["57014", "40001", "23505", "55P03", "25006", "42P01"] {
            assert!(!is_outage(code), "{code}");
        }
    }
}
