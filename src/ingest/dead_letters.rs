//! Dead letters: clicks that cannot be committed, kept aside with the reason. Owns `dead_letters`.
//!
//! **Called by** `committer`, which has found the click by halving, and by the endpoints through
//! which people look at letters, send them again, or throw them away.

use sqlx::types::Json;
use sqlx::{Connection, PgConnection, PgExecutor};
use uuid::Uuid;

use super::commit::{Batch, CommitError, Committed, Fate, Refusal, Tally};
use crate::book::{Totals, hot};
use crate::checkpoint;
use crate::click::Click;
use crate::frame;
use crate::time::Timestamp;

/// A click that could not be committed.
#[derive(Clone, PartialEq, Debug)]
pub struct DeadLetter {
    /// Version 7.
    pub id: Uuid,
    /// The click as it was let in.
    pub click: Click,
    /// Why, in words that tell nothing of the database's insides.
    pub reason: String,
    /// When it was given up.
    pub failed_at: Timestamp,
}

struct Row {
    id: Uuid,
    click: Json<Click>,
    reason: String,
    failed_ms: i64,
}

impl From<Row> for DeadLetter {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            click: row.click.0,
            reason: row.reason,
            failed_at: Timestamp::saturating_from_millis(row.failed_ms),
        }
    }
}

/// Keeps the only click of `batch` aside and counts it as rejected, with what admission left out
/// and the step of the job that it comes from, in a transaction of its own. One that is kept already
/// stays as it is.
///
/// # Errors
/// Everything was rolled back.
pub async fn keep(
    conn: &mut PgConnection,
    now: Timestamp,
    book: Uuid,
    batch: &Batch,
    reason: &str,
) -> Result<Committed, CommitError> {
    let [click] = &*batch.clicks else {
        return Err(CommitError::NotAlone);
    };
    let mut tx = conn.begin().await?;
    let Some(mut locked) = hot::lock(&mut tx, &[book]).await?.pop() else {
        tx.rollback().await?;
        return Ok(Committed::refused(Refusal::NoSuchBook));
    };
    sqlx::query!(
        "INSERT INTO dead_letters (book_id, id, click_id, failed_ms, reason, click)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (book_id, click_id) DO NOTHING",
        book,
        Uuid::now_v7(),
        click.id.uuid,
        now.millis(),
        reason,
        Json(click) as _,
    )
    .execute(&mut *tx)
    .await?;
    let to_i64 = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let totals = Totals {
        received: to_i64(1 + batch.rejected + batch.filtered),
        rejected: to_i64(1 + batch.rejected),
        filtered: to_i64(batch.filtered),
        ..Totals::default()
    };
    if let Some(step) = &batch.checkpoint {
        let mut state = step.state;
        state.add(&totals);
        if !checkpoint::step(&mut tx, book, step, state, now).await? {
            return Err(CommitError::LostLease);
        }
    }
    locked.totals.add(&totals);
    locked.revision += 1;
    frame::store(&mut tx, &[&locked], &[]).await?;
    tx.commit().await?;
    let tally = Tally {
        totals,
        dead_letters: 1,
        ..Tally::default()
    };
    Ok(Committed::settled(&locked, vec![Fate::DeadLetter], tally))
}

/// Up to `limit` letters of a book after `after`, oldest first.
///
/// # Errors
/// What the database says.
pub async fn list(
    db: impl PgExecutor<'_>,
    book: Uuid,
    after: Uuid,
    limit: i64,
) -> Result<Vec<DeadLetter>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, click AS "click: Json<Click>", reason, failed_ms FROM dead_letters
           WHERE book_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
        book,
        after,
        limit,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(DeadLetter::from).collect())
}

/// The letter `id` of a book.
///
/// # Errors
/// What the database says.
pub async fn find(
    db: impl PgExecutor<'_>,
    book: Uuid,
    id: Uuid,
) -> Result<Option<DeadLetter>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, click AS "click: Json<Click>", reason, failed_ms FROM dead_letters
           WHERE book_id = $1 AND id = $2"#,
        book,
        id,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(DeadLetter::from))
}

/// Throws a letter away; says whether there was one.
///
/// # Errors
/// What the database says.
pub async fn delete(db: impl PgExecutor<'_>, book: Uuid, id: Uuid) -> Result<bool, sqlx::Error> {
    let deleted = sqlx::query!(
        "DELETE FROM dead_letters WHERE book_id = $1 AND id = $2",
        book,
        id
    );
    Ok(deleted.execute(db).await?.rows_affected() > 0)
}
