//! How long books keep their clicks and counts, as their rows say it, and what the rows say of what
//! has gone. What goes is `ingest::retention`'s to remove.

use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use super::Settings;

/// A book that does not keep everything for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limited {
    /// Which book.
    pub id: Uuid,
    /// Which set of windows counts.
    pub generation: i32,
    /// For how many days it keeps clicks.
    pub click_days: Option<i64>,
    /// For how many days it keeps counts.
    pub count_days: Option<i64>,
}

/// The books that do not keep everything for ever, and at which no run is at work, oldest first.
///
/// # Errors
/// What the database says.
pub async fn limited(db: impl PgExecutor<'_>) -> Result<Vec<Limited>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT id, generation, settings AS "settings: Json<Settings>" FROM books
           WHERE NOT deleted AND live_run IS NULL
             AND (settings->>'click_retention_days' IS NOT NULL
                  OR settings->>'count_retention_days' IS NOT NULL)
           ORDER BY id"#
    );
    let rows = rows.fetch_all(db).await?.into_iter();
    let limited = rows.map(|row| limits(row.id, row.generation, &row.settings.0));
    Ok(limited.collect())
}

fn limits(id: Uuid, generation: i32, settings: &Settings) -> Limited {
    Limited {
        id,
        generation,
        click_days: settings.click_retention_days,
        count_days: settings.count_retention_days,
    }
}

/// Whether something may be removed of a book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It may: the row is held until the transaction ends.
    Free,
    /// Somebody else holds the row, or the book is gone.
    Held,
    /// Not now: a run is at work on the book, or it is not as it was found.
    Changed,
}

/// Takes the row of a book that was found as `book`, if nobody holds it: whoever waits for a row, or
/// holds it for long, keeps a lane waiting.
///
/// # Errors
/// What the database says.
pub async fn take(conn: &mut PgConnection, book: &Limited) -> Result<Taken, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT live_run IS NULL AS "idle!", generation, settings AS "settings: Json<Settings>"
           FROM books WHERE id = $1 AND NOT deleted
           FOR NO KEY UPDATE SKIP LOCKED"#,
        book.id
    );
    Ok(match row.fetch_optional(conn).await? {
        None => Taken::Held,
        Some(row) if row.idle && limits(book.id, row.generation, &row.settings.0) == *book => {
            Taken::Free
        }
        Some(_) => Taken::Changed,
    })
}

/// Notes in a row that is held that clicks were removed, of which the newest was at `newest_ms` of
/// event time.
///
/// # Errors
/// What the database says.
pub async fn clicks_went(
    conn: &mut PgConnection,
    id: Uuid,
    newest_ms: i64,
) -> Result<(), sqlx::Error> {
    let update = sqlx::query!(
        "UPDATE books SET clicks_removed_to_ms = GREATEST(clicks_removed_to_ms, $2) WHERE id = $1",
        id,
        newest_ms
    );
    update.execute(conn).await.map(drop)
}

/// Notes in a row that is held that windows were removed, which a snapshot may have shown.
///
/// # Errors
/// What the database says.
pub async fn windows_went(conn: &mut PgConnection, id: Uuid) -> Result<(), sqlx::Error> {
    let update = sqlx::query!("UPDATE books SET revision = revision + 1 WHERE id = $1", id);
    update.execute(conn).await.map(drop)
}
