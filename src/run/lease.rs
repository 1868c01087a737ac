//! The lease of a run: one process at a time.
//!
//! An advisory lock on a connection of its own, which Postgres lets go as soon as the process is dead.
//! It keeps a second process from taking a run that is being done; that a first one, whose connection
//! was lost without its knowing, writes nothing any more, is the epoch's work
//! ([`super::table::take_over`]).

use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::db;

/// A run that this process holds, until it is dropped.
#[derive(Debug)]
pub struct Lease {
    _connection: PgConnection,
}

/// Takes the lease of a run; `None`: another has it.
///
/// # Errors
/// What the database says.
pub async fn take(options: &PgConnectOptions, run: Uuid) -> Result<Option<Lease>, sqlx::Error> {
    let mut connection = db::connect(options).await?;
    // The last half of a version 7 UUID is random.
    let (_, low) = run.as_u64_pair();
    let taken = db::try_advisory_lock(&mut connection, low.cast_signed()).await?;
    Ok(taken.then_some(Lease {
        _connection: connection,
    }))
}
