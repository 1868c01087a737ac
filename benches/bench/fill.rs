//! A past: put straight into the database where sending it would take too long.

use pagetide::time::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::Error;
use crate::load::clicks::PAGES;
use crate::service::Server;

/// How far apart the windows are that [`windows`] fills.
const WINDOW_MS: i64 = 10_000;

/// Sends a click on every page in each of the last `windows` windows of ten seconds, the oldest
/// first; says how many clicks.
pub(crate) async fn windows(server: &Server, book: &str, windows: i64) -> Result<u64, Error> {
    let now_ms = Timestamp::now().millis();
    for ago in (1..=windows).rev() {
        let at_ms = now_ms - ago * WINDOW_MS;
        let clicks = (0..PAGES)
            .map(|page| json!({"page": format!("/guide/chapter-{page:03}"), "at": at_ms}));
        let clicks: Vec<Value> = clicks.collect();
        let path = format!("books/{book}/clicks");
        server
            .ask(Method::POST, &path, Some(&clicks.into()))
            .await?;
    }
    Ok(u64::try_from(windows)? * u64::from(PAGES))
}

/// Makes `count` more books like `book`, with a few frames each.
pub(crate) async fn books(conn: &mut PgConnection, book: &str, count: i64) -> Result<(), Error> {
    let fill = sqlx::query(
        "WITH made AS (
             INSERT INTO books (id, slug, title, created_ms, settings, rollups, origins, position)
             SELECT gen_random_uuid(), slug || '-' || n, title, created_ms, settings, rollups, origins,
                    20
             FROM books CROSS JOIN generate_series(1, $2) AS n WHERE slug = $1
             RETURNING id, slug),
         framed AS (
             INSERT INTO frames (book_id, position, event, data)
             SELECT id, position, 'counts', '{}' FROM made CROSS JOIN generate_series(1, 20) AS position)
         INSERT INTO book_slugs (slug, book_id) SELECT slug, id FROM made",
    );
    fill.bind(book).bind(count).execute(conn).await?;
    Ok(())
}

/// Puts `count` more clicks into the log of a book, as they would lie there had they come over the
/// last thirty days: the same pages and readers as the load has, ids that grow with time. They are in
/// no window.
pub(crate) async fn log(conn: &mut PgConnection, book: &str, count: u64) -> Result<(), Error> {
    if count > 0 {
        let fill = sqlx::query(
            "WITH moved AS (
                 UPDATE books SET next_seq = next_seq + $2 WHERE slug = $1
                 RETURNING id, next_seq - $2 AS first_seq)
             INSERT INTO clicks (book_id, click_id, seq, at_ms, received_ms, watermark_before_ms,
                                 page, visitor, referrer)
             SELECT m.id,
                    (lpad(to_hex(t.ms), 12, '0') || '7' || substr(h.hash, 1, 3) || '8'
                     || substr(h.hash, 4, 15))::uuid,
                    m.first_seq + n, t.ms, t.ms, t.ms - 2000,
                    '/guide/chapter-' || lpad(((hashint8(n)::bigint + 2147483648) % 200)::text, 3, '0'),
                    'r' || lpad(((hashint8(-n)::bigint + 2147483648) % 20000)::text, 5, '0'),
                    CASE WHEN n % 4 = 0 THEN 'https://site-07.example/a/list' END
             FROM moved m
             CROSS JOIN generate_series(0, $2 - 1) AS n
             CROSS JOIN LATERAL (SELECT md5(n::text) AS hash) h
             CROSS JOIN LATERAL (
                 SELECT (extract(epoch FROM now()) * 1000)::bigint - 2592000000
                        + n * 2588400000 / $2 AS ms) t
             ORDER BY n",
        );
        let count = i64::try_from(count)?;
        fill.bind(book).bind(count).execute(&mut *conn).await?;
    }
    // What was written is no burden to what is measured next.
    sqlx::raw_sql("VACUUM ANALYZE clicks")
        .execute(&mut *conn)
        .await?;
    sqlx::raw_sql("CHECKPOINT").execute(&mut *conn).await?;
    Ok(())
}
