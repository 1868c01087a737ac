//! How a run's row moves: steps of an import, what readers are told, the end.

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{RejectedLine, Skipped, State};
use crate::time::Timestamp;

/// A step of an import: lines that are done with, and how they fared.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Step {
    /// How many lines were done with before: a step that was taken already is not taken again.
    pub from: i64,
    /// How many are then.
    pub to: i64,
    /// Clicks that are new.
    pub counted: i64,
    /// Clicks that were in the log.
    pub duplicates: i64,
    /// Lines that could not be counted.
    pub rejected: i64,
    /// Those of them that are listed.
    pub rejections: Vec<RejectedLine>,
    /// Lines that a rule has left out so far.
    pub skipped: Skipped,
    /// The newest of the new clicks, in event time.
    pub newest_ms: Option<i64>,
}

/// What a run has come to.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Of an import: the newest of them, in event time.
    pub newest_ms: Option<i64>,
    /// When readers were told of it last.
    pub frame_ms: Option<i64>,
}

/// Takes a step of an import, inside the transaction that commits its clicks. `None`: the run is
/// another process's by now, or has ended, or the step was taken already.
///
/// # Errors
/// What the database says.
pub async fn step(
    conn: &mut PgConnection,
    book: Uuid,
    (run, epoch): (Uuid, i64),
    step: &Step,
) -> Result<Option<Moved>, sqlx::Error> {
    sqlx::query_as!(
        Moved,
        "UPDATE runs
         SET processed = $5, counted = counted + $6, duplicates = duplicates + $7,
             rejected = rejected + $8, rejections = rejections || $9, skipped = $10,
             newest_ms = GREATEST(newest_ms, $11)
         WHERE book_id = $1 AND id = $2 AND epoch = $3 AND processed = $4 AND state = 'running'
         RETURNING newest_ms, frame_ms",
        book,
        run,
        epoch,
        step.from,
        step.to,
        step.counted,
        step.duplicates,
        step.rejected,
        Json(&step.rejections) as _,
        Json(&step.skipped) as _,
        step.newest_ms,
    )
    .fetch_optional(conn)
    .await
}

/// Notes that readers are told of a run in the frame at `position`; gives the position of the one that
/// told them before, if one did, which says nothing any more.
///
/// # Errors
/// What the database says.
pub async fn tell(
    conn: &mut PgConnection,
    book: Uuid,
    run: Uuid,
    position: i64,
    now: Timestamp,
) -> Result<Option<i64>, sqlx::Error> {
    let before = sqlx::query_scalar!(
        r#"UPDATE runs r SET frame_position = $3, frame_ms = $4
           FROM (SELECT book_id, id, frame_position FROM runs WHERE book_id = $1 AND id = $2) b
           WHERE r.book_id = b.book_id AND r.id = b.id
           RETURNING b.frame_position AS "before?""#,
        book,
        run,
        position,
        now.millis(),
    );
    Ok(before.fetch_optional(conn).await?.flatten())
}

/// How a run ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All is done.
    Done,
    /// Not all, and why.
    Failed(String),
    /// Somebody wants it.
    Cancelled,
}

impl Ending {
    fn state(&self) -> State {
        match self {
            Self::Done => State::Done,
            Self::Failed(_) => State::Failed,
            Self::Cancelled => State::Cancelled,
        }
    }

    fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Done | Self::Cancelled => None,
        }
    }
}

/// Ends a live run of a locked book; with an `epoch`, only if it is still of that one. `None`: it is
/// not live, or another process's.
///
/// # Errors
/// What the database says.
pub async fn end(
    conn: &mut PgConnection,
    book: Uuid,
    (run, epoch): (Uuid, Option<i64>),
    ending: &Ending,
    now: Timestamp,
) -> Result<Option<Moved>, sqlx::Error> {
    sqlx::query_as!(
        Moved,
        "UPDATE runs SET state = $4, error = $5, finished_ms = $6
         WHERE book_id = $1 AND id = $2 AND epoch = coalesce($3, epoch) AND state = 'running'
         RETURNING newest_ms, frame_ms",
        book,
        run,
        epoch,
        ending.state().as_str(),
        ending.error(),
        now.millis(),
    )
    .fetch_optional(conn)
    .await
}
