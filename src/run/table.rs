//! The table `runs`: what imports and recounts have in common.

use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use super::recount::Beginning;
use super::{Kind, NewRun, RejectedLine, Run, Skipped, Spec, State};
use crate::rollup::RollupSpec;
use crate::time::Timestamp;

/// How many ended runs a snapshot shows.
const RECENT: i64 = 10;

/// A row, before its columns become types.
struct Row {
    id: Uuid,
    kind: String,
    state: String,
    processed: i64,
    total: Option<i64>,
    counted: i64,
    duplicates: i64,
    rejected: i64,
    skipped: Json<Skipped>,
    started_ms: i64,
    finished_ms: Option<i64>,
    error: Option<String>,
    rejections: Option<Json<Vec<RejectedLine>>>,
}

impl From<Row> for Run {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            kind: match row.kind.as_str() {
                "import" => Kind::Import,
                _ => Kind::Recount,
            },
            state: match row.state.as_str() {
                "running" => State::Running,
                "done" => State::Done,
                "cancelled" => State::Cancelled,
                _ => State::Failed,
            },
            processed: row.processed,
            total: row.total,
            counted: row.counted,
            duplicates: row.duplicates,
            rejected: row.rejected,
            rejections: row.rejections.map(|rejections| rejections.0),
            skipped: row.skipped.0,
            started_at: Timestamp::saturating_from_millis(row.started_ms),
            finished_at: row.finished_ms.map(Timestamp::saturating_from_millis),
            error: row.error,
        }
    }
}

/// Stores a run that begins, a recount with where that is.
///
/// # Errors
/// What the database says.
pub async fn insert(
    conn: &mut PgConnection,
    book: Uuid,
    run: &NewRun,
    recount: Option<Beginning>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO runs (book_id, id, kind, state, spec, started_ms, generation, first_seq,
                           first_watermark_ms, swept)
         VALUES ($1, $2, $3, 'running', $4, $5, $6, $7, $8, $9)",
        book,
        run.id,
        run.spec.kind().as_str(),
        Json(&run.spec) as _,
        now.millis(),
        recount.map(|recount| recount.generation),
        recount.map(|recount| recount.first_seq),
        recount.and_then(|recount| recount.watermark.stored()),
        recount.is_none(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A run of a book, with the lines that it lists.
///
/// # Errors
/// What the database says.
pub async fn find(
    db: impl PgExecutor<'_>,
    book: Uuid,
    id: Uuid,
) -> Result<Option<Run>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, kind, state, processed, total, counted, duplicates, rejected,
                  skipped AS "skipped: Json<Skipped>", started_ms, finished_ms, error,
                  rejections AS "rejections: Json<Vec<RejectedLine>>"
           FROM runs WHERE book_id = $1 AND id = $2"#,
        book,
        id
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Run::from))
}

/// Up to `limit` runs of a book after `after`, oldest first.
///
/// # Errors
/// What the database says.
pub async fn list(
    db: impl PgExecutor<'_>,
    book: Uuid,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Run>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, kind, state, processed, total, counted, duplicates, rejected,
                  skipped AS "skipped: Json<Skipped>", started_ms, finished_ms, error,
                  NULL::jsonb AS "rejections: Json<Vec<RejectedLine>>"
           FROM runs WHERE book_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
        book,
        after,
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Run::from).collect())
}

/// The newest runs of a book, oldest first; the live one is among them.
///
/// # Errors
/// What the database says.
pub async fn recent(db: impl PgExecutor<'_>, book: Uuid) -> Result<Vec<Run>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, kind, state, processed, total, counted, duplicates, rejected,
                  skipped AS "skipped: Json<Skipped>", started_ms, finished_ms, error,
                  NULL::jsonb AS "rejections: Json<Vec<RejectedLine>>"
           FROM runs WHERE book_id = $1 ORDER BY id DESC LIMIT $2"#,
        book,
        RECENT
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().rev().map(Run::from).collect())
}

/// By which rollups the live recount `run` of a book counts, if not by the book's.
///
/// # Errors
/// What the database says.
pub async fn recounts_by(
    db: impl PgExecutor<'_>,
    book: Uuid,
    run: Uuid,
) -> Result<Option<Vec<RollupSpec>>, sqlx::Error> {
    let spec = sqlx::query_scalar!(
        r#"SELECT spec AS "spec: Json<Spec>" FROM runs WHERE book_id = $1 AND id = $2"#,
        book,
        run
    );
    Ok(match spec.fetch_optional(db).await?.map(|spec| spec.0) {
        Some(Spec::Recount { rollups }) => rollups,
        Some(Spec::Import { .. }) | None => None,
    })
}

/// A run that somebody has to look after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// Of which book.
    pub book: Uuid,
    /// Which run.
    pub run: Uuid,
    /// What it does.
    pub kind: Kind,
    /// It goes on; otherwise only what it left behind is to be removed.
    pub live: bool,
}

/// All runs that somebody has to look after.
///
/// # Errors
/// What the database says.
pub async fn pending(db: impl PgExecutor<'_>) -> Result<Vec<Pending>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT r.book_id, r.id, r.kind, r.state = 'running' AS "live!"
           FROM runs r JOIN books b ON b.id = r.book_id AND NOT b.deleted
           WHERE r.state = 'running' OR NOT r.swept
           ORDER BY r.book_id, r.id"#
    )
    .fetch_all(db)
    .await?;
    let pending = rows.into_iter().map(|row| Pending {
        book: row.book_id,
        run: row.id,
        kind: match row.kind.as_str() {
            "import" => Kind::Import,
            _ => Kind::Recount,
        },
        live: row.live,
    });
    Ok(pending.collect())
}

/// Raises the epoch of a live run, so that nobody else writes for it any more; the caller holds its
/// lease. `None`: it is not live.
///
/// # Errors
/// What the database says.
pub async fn take_over(
    db: impl PgExecutor<'_>,
    book: Uuid,
    run: Uuid,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!(
        "UPDATE runs SET epoch = epoch + 1
         WHERE book_id = $1 AND id = $2 AND state = 'running' RETURNING epoch",
        book,
        run
    )
    .fetch_optional(db)
    .await
}
