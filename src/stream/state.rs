//! The snapshot: what a reader begins with.
//!
//! One database snapshot: it contains what all frames up to its `position` announced.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use super::sessions;
use crate::book::notes::{self, Note};
use crate::book::{self, Book, BookBody, Here, PlanError, chapters};
use crate::db;
use crate::engine::Watermark;
use crate::engine::aggregate::{State, StateError, Value};
use crate::rollup::{Rollup, WindowSpec};
use crate::run::{self, Run};
use crate::structure::Chapter;
use crate::time::Timestamp;

/// How many of each rollup's closed windows a snapshot shows.
pub(super) const CLOSED_WINDOWS: i64 = 60;

/// How many of a window's groups a snapshot shows.
pub(super) const GROUPS: i64 = 1000;

/// A book and its newest windows at one moment.
#[derive(Debug, Serialize, ToSchema)]
pub struct Snapshot {
    book: BookBody,
    position: i64,
    oldest: i64,
    revision: i64,
    structure_version: i64,
    #[schema(value_type = Option<String>, format = DateTime)]
    watermark: Option<Timestamp>,
    at_rest: bool,
    chapters: Vec<Chapter>,
    /// The newest ten; the one that is live is among them.
    runs: Vec<Run>,
    /// By the moments that they are about.
    notes: Vec<Note>,
    windows: Vec<WindowBody>,
}

/// The groups of one window that are in the same state.
#[derive(Debug, Serialize, ToSchema)]
pub struct WindowBody {
    rollup: String,
    #[schema(value_type = String, format = DateTime)]
    start: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    end: Timestamp,
    state: WindowState,
    values: BTreeMap<String, Value>,
    /// The window has more groups than are shown; these are the greatest. On the session that
    /// ended first of those that are shown: there are more sessions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    truncated: bool,
}

/// How far a window has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowState {
    /// It has not fired.
    Open,
    /// It has fired and still takes late clicks.
    Fired,
    /// It takes no clicks any more.
    Closed,
}

impl WindowState {
    /// The state of a window of `rollup` that ends at `end_ms`.
    #[must_use]
    pub fn of(fired: bool, end_ms: i64, rollup: &Rollup, watermark: Watermark) -> Self {
        if !fired {
            Self::Open
        } else if watermark.gone(end_ms, rollup.closes_after_ms()) {
            Self::Closed
        } else {
            Self::Fired
        }
    }
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// What the database says.
    #[error("the snapshot could not be read")]
    Database(#[from] sqlx::Error),
    /// The book cannot be used.
    #[error("the book cannot be used")]
    Plan(#[from] PlanError),
    /// A stored window cannot be read.
    #[error("a stored window cannot be read")]
    State(#[from] StateError),
    /// It cannot be written.
    #[error("the snapshot cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// A snapshot, encoded once for all readers that want it.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The newest position that it contains.
    pub position: i64,
    /// The book's revision.
    pub revision: i64,
    /// JSON on one line.
    pub data: Bytes,
}

/// Reads the snapshot of a book: of each rollup the windows not yet closed and the newest closed
/// ones, or all that end after `since`. `None`: there is no such book.
///
/// # Errors
/// See [`SnapshotError`].
pub async fn snapshot(
    pool: &PgPool,
    id: Uuid,
    since: Option<Timestamp>,
    here: Here,
) -> Result<Option<Snapshot>, SnapshotError> {
    let mut tx = db::begin(pool, db::READ).await?;
    let Some(book) = book::table::find(&mut *tx, id).await? else {
        return Ok(None);
    };
    let plan = book.plan()?;
    let chapters = chapters::of_book(&mut *tx, id).await?.unwrap_or_default();
    let runs = run::table::recent(&mut *tx, id).await?;
    let notes = notes::all(&mut *tx, id).await?;
    let mut windows = Vec::new();
    for (place, rollup) in (0_i16..).zip(&plan.rollups) {
        windows.extend(windows_of(&mut tx, &book, place, rollup, since).await?);
    }
    tx.commit().await?;
    Ok(Some(Snapshot {
        position: book.position,
        oldest: book.oldest,
        revision: book.revision,
        structure_version: book.structure_version,
        watermark: book.watermark.shown(),
        at_rest: book.at_rest(here),
        chapters: chapters.list,
        runs,
        notes,
        windows,
        book: book.into_body(here),
    }))
}

/// The snapshot of a book as a stream sends it.
///
/// # Errors
/// As [`snapshot`].
pub async fn encoded(
    pool: &PgPool,
    id: Uuid,
    here: Here,
) -> Result<Option<Encoded>, SnapshotError> {
    let Some(snapshot) = snapshot(pool, id, None, here).await? else {
        return Ok(None);
    };
    Ok(Some(Encoded {
        position: snapshot.position,
        revision: snapshot.revision,
        data: serde_json::to_vec(&snapshot)?.into(),
    }))
}

/// A window of a group, as it is stored.
pub(super) struct Shown {
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
    pub(super) group_key: String,
    pub(super) fired: bool,
    pub(super) state: Vec<u8>,
    /// The window has more groups than are shown.
    pub(super) more: bool,
}

/// The windows of a rollup that are not yet closed and the newest closed ones, or all that end
/// after `since`, by start and end.
async fn windows_of(
    conn: &mut PgConnection,
    book: &Book,
    place: i16,
    rollup: &Rollup,
    since: Option<Timestamp>,
) -> Result<Vec<WindowBody>, SnapshotError> {
    let watermark = book.watermark.stored().unwrap_or(i64::MIN);
    let bounds = sessions::Bounds {
        closed_until: watermark.saturating_sub(rollup.closes_after_ms()),
        since: since.map(Timestamp::millis),
    };
    let rows = match rollup.window {
        WindowSpec::Session { .. } => sessions::newest(conn, book, place, bounds).await?,
        WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } => {
            newest(conn, book, place, bounds).await?
        }
    };
    let mut windows: BTreeMap<(i64, i64, WindowState), WindowBody> = BTreeMap::new();
    for row in rows {
        let state = WindowState::of(row.fired, row.end_ms, rollup, book.watermark);
        let window = windows
            .entry((row.start_ms, row.end_ms, state))
            .or_insert_with(|| WindowBody {
                rollup: rollup.name.clone(),
                start: Timestamp::saturating_from_millis(row.start_ms),
                end: Timestamp::saturating_from_millis(row.end_ms),
                state,
                values: BTreeMap::new(),
                truncated: row.more,
            });
        let value = State::from_bytes(rollup.aggregate, &row.state)?.value();
        window.values.insert(row.group_key, value);
    }
    Ok(windows.into_values().collect())
}

/// Walks the windows of a rollup from the newest to the oldest that is wanted, by index, one step
/// a window however many groups each has, and takes the greatest groups of each.
async fn newest(
    conn: &mut PgConnection,
    book: &Book,
    place: i16,
    bounds: sessions::Bounds,
) -> Result<Vec<Shown>, sqlx::Error> {
    sqlx::query_as!(
        Shown,
        r#"WITH RECURSIVE bounds AS (
               (SELECT start_ms, end_ms, (end_ms <= $4)::int::bigint AS closed
                FROM windows
                WHERE book_id = $1 AND generation = $2 AND rollup = $3
                ORDER BY start_ms DESC, end_ms DESC LIMIT 1)
               UNION ALL
               SELECT older.start_ms, older.end_ms,
                      b.closed + (older.end_ms <= $4)::int::bigint
               FROM bounds b
               CROSS JOIN LATERAL (
                   SELECT w.start_ms, w.end_ms
                   FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                     AND (w.start_ms, w.end_ms) < (b.start_ms, b.end_ms)
                   ORDER BY w.start_ms DESC, w.end_ms DESC LIMIT 1) older
               WHERE CASE WHEN $5::bigint IS NULL THEN b.closed < $6 OR older.end_ms > $4
                          ELSE older.end_ms > $5 END)
           SELECT b.start_ms AS "start_ms!", b.end_ms AS "end_ms!", g.group_key, g.fired, g.state,
                  g.more AS "more!"
           FROM bounds b
           CROSS JOIN LATERAL (
               SELECT w.group_key, w.fired, w.state, count(*) OVER () > $7 AS more
               FROM windows w
               WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                 AND w.start_ms = b.start_ms AND w.end_ms = b.end_ms
               ORDER BY w.weight DESC, w.group_key LIMIT $7) g
           WHERE $5::bigint IS NULL OR b.end_ms > $5
           ORDER BY b.start_ms, b.end_ms"#,
        book.id,
        book.generation,
        place,
        bounds.closed_until,
        bounds.since,
        CLOSED_WINDOWS,
        GROUPS,
    )
    .fetch_all(conn)
    .await
}
