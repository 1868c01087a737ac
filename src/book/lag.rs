//! How far books are behind the clock, for whoever watches the service.

use sqlx::PgPool;

use crate::time::Timestamp;

/// Most books that are told of, those that received clicks last: every label costs whoever scrapes.
const MOST: i64 = 100;

/// How far a book is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lag {
    /// Which book.
    pub slug: String,
    /// How far the watermark is behind the clock, in milliseconds.
    pub watermark_lag_ms: Option<i64>,
    /// When the oldest window that has not fired ends.
    pub oldest_open_end: Option<Timestamp>,
}

/// The live books that received clicks last.
///
/// # Errors
/// What the database says.
pub async fn newest(pool: &PgPool, now: Timestamp) -> Result<Vec<Lag>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT b.slug, b.watermark_ms,
                  (SELECT min(w.end_ms) FROM windows w
                   WHERE w.book_id = b.id AND w.generation = b.generation AND NOT w.fired) AS end_ms
           FROM (SELECT id, slug, generation, watermark_ms FROM books
                 WHERE NOT deleted AND NOT closed AND last_received_ms IS NOT NULL
                 ORDER BY last_received_ms DESC LIMIT $1) b
           ORDER BY b.slug"#,
        MOST
    )
    .fetch_all(pool)
    .await?;
    let lags = rows.into_iter().map(|row| Lag {
        slug: row.slug,
        watermark_lag_ms: row.watermark_ms.map(|ms| now.millis().saturating_sub(ms)),
        oldest_open_end: row.end_ms.map(Timestamp::saturating_from_millis),
    });
    Ok(lags.collect())
}
