//! Books as people make, read and delete them.

use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::{Book, Settings, Totals};
use crate::engine::Watermark;
use crate::rollup::RollupSpec;
use crate::time::Timestamp;

/// A new book.
#[derive(Clone, Debug)]
pub struct NewBook {
    /// Version 7.
    pub id: Uuid,
    /// Unique.
    pub slug: String,
    /// For people.
    pub title: String,
    /// Checked.
    pub settings: Settings,
    /// Checked.
    pub rollups: Vec<RollupSpec>,
    /// Checked.
    pub origins: Vec<String>,
}

/// Why a book was not made.
#[derive(Debug, thiserror::Error)]
pub enum InsertError {
    /// Another book has this slug.
    #[error("another book has this slug")]
    SlugTaken,
    /// What the database says.
    #[error("the book could not be stored")]
    Database(#[from] sqlx::Error),
}

/// Makes a book, inside the caller's transaction. Mints no frame: its position is 0.
///
/// # Errors
/// The slug is taken, or what the database says.
pub async fn insert(
    conn: &mut PgConnection,
    book: &NewBook,
    now: Timestamp,
) -> Result<(), InsertError> {
    let slug = sqlx::query!(
        "INSERT INTO book_slugs (slug, book_id) VALUES ($1, $2)",
        book.slug,
        book.id
    );
    slug.execute(&mut *conn).await.map_err(|error| {
        let taken = error
            .as_database_error()
            .is_some_and(|e| e.constraint() == Some("book_slugs_pkey"));
        if taken {
            InsertError::SlugTaken
        } else {
            InsertError::Database(error)
        }
    })?;
    sqlx::query!(
        "INSERT INTO books (id, slug, title, created_ms, settings, rollups, origins)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        book.id,
        book.slug,
        book.title,
        now.millis(),
        Json(&book.settings) as _,
        Json(&book.rollups) as _,
        &book.origins,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A row of `books`, before its columns become types.
struct Row {
    id: Uuid,
    slug: String,
    title: String,
    created_ms: i64,
    closed: bool,
    position: i64,
    oldest: i64,
    revision: i64,
    structure_version: i64,
    generation: i32,
    live_run: Option<Uuid>,
    watermark_ms: Option<i64>,
    settings: Json<Settings>,
    rollups: Json<Vec<RollupSpec>>,
    origins: Vec<String>,
    received: i64,
    on_time: i64,
    late: i64,
    dropped: i64,
    duplicates: i64,
    filtered: i64,
    rejected: i64,
}

impl From<Row> for Book {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            slug: row.slug,
            title: row.title,
            created_at: Timestamp::saturating_from_millis(row.created_ms),
            closed: row.closed,
            position: row.position,
            oldest: row.oldest,
            revision: row.revision,
            structure_version: row.structure_version,
            generation: row.generation,
            live_run: row.live_run,
            watermark: Watermark::from_stored(row.watermark_ms),
            rollups: row.rollups.0,
            settings: row.settings.0,
            origins: row.origins,
            totals: Totals {
                received: row.received,
                on_time: row.on_time,
                late: row.late,
                dropped: row.dropped,
                duplicates: row.duplicates,
                filtered: row.filtered,
                rejected: row.rejected,
            },
        }
    }
}

/// The book `id`, unless it was deleted.
///
/// # Errors
/// What the database says.
pub async fn find(db: impl PgExecutor<'_>, id: Uuid) -> Result<Option<Book>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, slug, title, created_ms, closed, position, oldest, revision,
                  structure_version, generation, live_run, watermark_ms,
                  settings AS "settings: Json<Settings>",
                  rollups AS "rollups: Json<Vec<RollupSpec>>", origins,
                  received, on_time, late, dropped, duplicates, filtered, rejected
           FROM books WHERE id = $1 AND NOT deleted"#,
        id
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Book::from))
}

/// The book with `slug`, unless it was deleted.
///
/// # Errors
/// What the database says.
pub async fn find_by_slug(
    db: impl PgExecutor<'_>,
    slug: &str,
) -> Result<Option<Book>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, slug, title, created_ms, closed, position, oldest, revision,
                  structure_version, generation, live_run, watermark_ms,
                  settings AS "settings: Json<Settings>",
                  rollups AS "rollups: Json<Vec<RollupSpec>>", origins,
                  received, on_time, late, dropped, duplicates, filtered, rejected
           FROM books
           WHERE id = (SELECT book_id FROM book_slugs WHERE slug = $1) AND NOT deleted"#,
        slug
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Book::from))
}

/// The id of the book `name`, an id or a slug, if its counter is public. The same statement, of the
/// same cost, where there is none of that name.
///
/// # Errors
/// What the database says.
pub async fn find_public(db: impl PgExecutor<'_>, name: &str) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT id FROM books
           WHERE id = coalesce($1, (SELECT book_id FROM book_slugs WHERE slug = $2))
             AND NOT deleted AND settings @> '{"public_counter": true}'"#,
        Uuid::try_parse(name).ok(),
        name,
    )
    .fetch_optional(db)
    .await
}

/// The position of the last wholesale replacement of a book's counts; 0 if there was none.
///
/// # Errors
/// What the database says.
pub async fn barrier(db: impl PgExecutor<'_>, id: Uuid) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!("SELECT barrier FROM books WHERE id = $1", id)
        .fetch_one(db)
        .await
}

/// The id of the book with `slug`.
///
/// # Errors
/// What the database says.
pub async fn id_of_slug(db: impl PgExecutor<'_>, slug: &str) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar!("SELECT book_id FROM book_slugs WHERE slug = $1", slug)
        .fetch_optional(db)
        .await
}

/// The books, by id and slug, that have been idle for as long as they say, and in which by now a
/// window would fire or close, or may.
///
/// # Errors
/// What the database says.
pub async fn idle_and_due(
    db: impl PgExecutor<'_>,
    now: Timestamp,
) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT id, slug FROM books
         WHERE NOT closed AND NOT deleted
           AND $1 - last_received_ms >= (settings->>'idle_timeout_ms')::bigint
           AND LEAST(newest_event_ms + ($1 - last_received_ms), $1)
               - (settings->>'delay_ms')::bigint >= GREATEST(due_ms, watermark_ms + 1)
         ORDER BY id",
        now.millis(),
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.slug)).collect())
}

/// Up to `limit` books after `after`, oldest first; of all, or of those in `only`.
///
/// # Errors
/// What the database says.
pub async fn list(
    db: impl PgExecutor<'_>,
    only: Option<&[Uuid]>,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Book>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, slug, title, created_ms, closed, position, oldest, revision,
                  structure_version, generation, live_run, watermark_ms,
                  settings AS "settings: Json<Settings>",
                  rollups AS "rollups: Json<Vec<RollupSpec>>", origins,
                  received, on_time, late, dropped, duplicates, filtered, rejected
           FROM books
           WHERE id > $1 AND NOT deleted AND ($2::uuid[] IS NULL OR id = ANY($2))
           ORDER BY id LIMIT $3"#,
        after,
        only,
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Book::from).collect())
}

/// Hides the book `id` from everyone and frees its slug, inside the caller's transaction; its rows
/// go later ([`purge`]). False: there is none.
///
/// # Errors
/// What the database says.
pub async fn delete(conn: &mut PgConnection, id: Uuid) -> Result<bool, sqlx::Error> {
    let slug = sqlx::query_scalar!(
        "UPDATE books SET deleted = true WHERE id = $1 AND NOT deleted RETURNING slug",
        id
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(slug) = slug else { return Ok(false) };
    sqlx::query!("DELETE FROM book_slugs WHERE slug = $1", slug)
        .execute(conn)
        .await?;
    Ok(true)
}

/// Removes what is left of deleted books, in pieces, so that no transaction is long. Ends when
/// nothing is left; whatever interrupts it, the next call goes on.
///
/// # Errors
/// What the database says.
pub async fn purge(pool: &PgPool) -> Result<(), sqlx::Error> {
    let deleted = sqlx::query_scalar!("SELECT id FROM books WHERE deleted")
        .fetch_all(pool)
        .await?;
    for id in deleted {
        // First: whoever does one, writes only as long as it is there.
        sqlx::query!("DELETE FROM runs WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        loop {
            let clicks = sqlx::query!(
                "DELETE FROM clicks WHERE book_id = $1 AND ctid = ANY(ARRAY(
                 SELECT ctid FROM clicks WHERE book_id = $1 LIMIT 10000))",
                id
            );
            if clicks.execute(pool).await?.rows_affected() == 0 {
                break;
            }
        }
        loop {
            let windows = sqlx::query!(
                "DELETE FROM windows WHERE book_id = $1 AND ctid = ANY(ARRAY(
                 SELECT ctid FROM windows WHERE book_id = $1 LIMIT 10000))",
                id
            );
            if windows.execute(pool).await?.rows_affected() == 0 {
                break;
            }
        }
        sqlx::query!("DELETE FROM frames WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        sqlx::query!("DELETE FROM dead_letters WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        sqlx::query!("DELETE FROM book_log WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        sqlx::query!("DELETE FROM chapters WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        sqlx::query!("DELETE FROM notes WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        sqlx::query!("DELETE FROM jobs WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        sqlx::query!("DELETE FROM recount_tail WHERE book_id = $1", id)
            .execute(pool)
            .await?;
        // Last: as long as the row stands, an interrupted purge is found again.
        sqlx::query!("DELETE FROM books WHERE id = $1 AND deleted", id)
            .execute(pool)
            .await?;
    }
    Ok(())
}

/// Whether any book lists `origin`.
///
/// # Errors
/// What the database says.
pub async fn lists_origin(db: impl PgExecutor<'_>, origin: &str) -> Result<bool, sqlx::Error> {
    let origin = [origin.to_owned()];
    let any = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM books WHERE origins @> $1 AND NOT deleted) AS "any!""#,
        &origin,
    );
    any.fetch_one(db).await
}
