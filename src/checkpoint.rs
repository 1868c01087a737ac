//! Where jobs stand: the table `jobs`.
//!
//! A job reads a source for one book and keeps its place. Its row is written together with the clicks
//! (`ingest::commit`), or by itself (`job`), and only by the process that raised its epoch last.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::book::Totals;
use crate::time::Timestamp;

/// What is kept of a job's progress, and so what a crash may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CommitMode {
    /// The offset alone, now and then: clicks that are read again count twice.
    Auto,
    /// Offset and state, now and then: the state is right, clicks that are read again count twice.
    CheckpointAdd,
    /// The same, with ids from the place in the source: clicks that are read again are the same.
    CheckpointPut,
    /// Clicks, counts, frames, offset and state in one transaction.
    Transactional,
}

impl CommitMode {
    /// As the command line and the table name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::CheckpointAdd => "checkpoint-add",
            Self::CheckpointPut => "checkpoint-put",
            Self::Transactional => "transactional",
        }
    }
}

/// What a job has counted by itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Lines that said anything.
    pub processed: i64,
    /// How the clicks among them fared.
    #[serde(flatten)]
    pub totals: Totals,
    /// Lines of an access log that are no page views, by the first rule that says so.
    pub skipped: Skipped,
}

/// Lines that are no page views.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Skipped {
    /// Another method.
    pub methods: i64,
    /// Neither 2xx nor 304.
    pub errors: i64,
    /// Static assets.
    pub assets: i64,
    /// Bots.
    pub bots: i64,
}

impl State {
    /// Takes in how clicks fared.
    pub fn add(&mut self, totals: &Totals) {
        self.totals.add(totals);
        self.processed += totals.received;
    }
}

/// A step of a job, to be written in the transaction that commits its clicks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Name of the job.
    pub job: String,
    /// What the job's epoch must still be.
    pub epoch: i64,
    /// Where the job must still stand, in bytes: another try of the same step may have been committed
    /// without our knowing it.
    pub from: u64,
    /// Where it stands then.
    pub to: u64,
    /// Its state, all but how the clicks of this step fare.
    pub state: State,
}

/// A job as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// [`CommitMode::name`] of the first run.
    pub mode: String,
    /// Bytes of the source that are done with.
    pub offset: u64,
    /// Raised by each start.
    pub epoch: i64,
    /// What it has counted.
    pub state: State,
}

struct Row {
    commit_mode: String,
    source_offset: i64,
    epoch: i64,
    state: Json<State>,
}

impl From<Row> for Stored {
    fn from(row: Row) -> Self {
        Self {
            mode: row.commit_mode,
            offset: u64::try_from(row.source_offset).unwrap_or(0),
            epoch: row.epoch,
            state: row.state.0,
        }
    }
}

fn stored(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// Raises the epoch of a job, so that nobody else writes for it any more, and says where it stands:
/// at 0 if it is new. The caller holds its lease.
///
/// # Errors
/// What the database says.
pub async fn begin(
    conn: &mut PgConnection,
    (book, job): (Uuid, &str),
    mode: CommitMode,
    now: Timestamp,
) -> Result<Stored, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO jobs (book_id, name, commit_mode, source_offset, epoch, updated_ms, state)
           VALUES ($1, $2, $3, 0, 1, $4, $5)
           ON CONFLICT (book_id, name)
           DO UPDATE SET epoch = jobs.epoch + 1, updated_ms = excluded.updated_ms
           RETURNING commit_mode, source_offset, epoch, state AS "state: Json<State>""#,
        book,
        job,
        mode.name(),
        now.millis(),
        Json(State::default()) as _,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// Where a job stands.
///
/// # Errors
/// What the database says.
pub async fn read(
    db: impl PgExecutor<'_>,
    (book, job): (Uuid, &str),
) -> Result<Option<Stored>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT commit_mode, source_offset, epoch, state AS "state: Json<State>"
           FROM jobs WHERE book_id = $1 AND name = $2"#,
        book,
        job
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Stored::from))
}

/// Takes the step, inside the transaction that commits its clicks. False: the job is another
/// process's by now, or the step was taken already.
///
/// # Errors
/// What the database says.
pub async fn step(
    conn: &mut PgConnection,
    book: Uuid,
    step: &Checkpoint,
    state: State,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE jobs SET source_offset = $5, state = $6, updated_ms = $7
         WHERE book_id = $1 AND name = $2 AND epoch = $3 AND source_offset = $4",
        book,
        step.job,
        step.epoch,
        stored(step.from),
        stored(step.to),
        Json(state) as _,
        now.millis(),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Keeps a job's place, and its state if there is one, apart from its clicks. False: the job is
/// another process's by now.
///
/// # Errors
/// What the database says.
pub async fn keep(
    db: impl PgExecutor<'_>,
    (book, job, epoch): (Uuid, &str, i64),
    offset: u64,
    state: Option<State>,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE jobs SET source_offset = $4, state = coalesce($5, state), updated_ms = $6
         WHERE book_id = $1 AND name = $2 AND epoch = $3",
        book,
        job,
        epoch,
        stored(offset),
        state.map(Json) as _,
        now.millis(),
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}
