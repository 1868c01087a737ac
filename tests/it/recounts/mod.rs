//! Recounts: all clicks of a log are counted again, beside the counts that hold meanwhile, and swapped
//! in at once, whatever is killed.

mod beside;
mod equal;
mod killed;
mod memory;
mod readers;
mod rollups;
mod terminal;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::Row;

use crate::harness::steps::execute;
use crate::harness::{Api, Database};

const DAY_MS: i64 = 86_400_000;

/// Longest time that a recount of a test may take, on a machine that does other things.
const LONG: Duration = Duration::from_mins(2);

/// Begins a recount of the book; gives its id.
async fn begin(api: &Api, book: &str) -> String {
    let path = format!("/v1/books/{book}/runs");
    let run = api.post(&path, &json!({"kind": "recount"})).await;
    let run = run.expect(202);
    assert_eq!(run["kind"], "recount", "{run}");
    run["id"].as_str().unwrap().to_owned()
}

/// A run as it stands.
async fn run(api: &Api, book: &str, id: &str) -> Value {
    let path = format!("/v1/books/{book}/runs/{id}");
    api.get(&path).await.expect(200)
}

/// Waits until a run has ended, and gives it.
async fn ended(api: &Api, book: &str, id: &str) -> Value {
    let began = Instant::now();
    loop {
        let run = run(api, book, id).await;
        if run["state"] != "running" {
            return run;
        }
        assert!(began.elapsed() < LONG, "it does not end: {run}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Counts the book again, and gives the run, which must be done.
async fn recount(api: &Api, book: &str) -> Value {
    let id = begin(api, book).await;
    let run = ended(api, book, &id).await;
    assert_eq!(run["state"], "done", "{run}");
    assert_eq!(run["error"], Value::Null, "{run}");
    run
}

/// A book that counts pages by the day.
async fn days_book(api: &Api, slug: &str) {
    let fields = json!({
        "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": DAY_MS}}],
        "settings": {"delay_ms": 0, "lateness_ms": DAY_MS, "max_future_ms": null,
                     "idle_timeout_ms": null},
    });
    api.book(slug, fields).await;
}

/// Puts clicks into the log of a book behind the server's back: 200 pages over ten days that begin at
/// the epoch. They are in no window, until they are counted again.
async fn fill(database: &Database, book: &str, clicks: i64) {
    let sql = format!(
        "WITH moved AS (
             UPDATE books SET next_seq = next_seq + {clicks} WHERE slug = '{book}'
             RETURNING id, next_seq - {clicks} AS first_seq)
         INSERT INTO clicks (book_id, click_id, seq, at_ms, received_ms, watermark_before_ms, page)
         SELECT m.id,
                -- Of all there may be, in an order that is not that of their coming.
                md5((m.first_seq + n)::text || m.id::text)::uuid,
                m.first_seq + n, n * {days} / {clicks}, 0, NULL,
                '/p' || (hashint8(n)::bigint + 2147483648) % 200
         FROM moved m CROSS JOIN generate_series(0::bigint, {clicks} - 1) AS n;
         ANALYZE clicks",
        days = 10 * DAY_MS
    );
    execute(database, &sql).await;
}

/// Start of a day, page: how many clicks.
type Days = BTreeMap<(i64, String), i64>;

/// What the log of a book holds, counted by Postgres.
async fn in_log(database: &Database, book: &str) -> Days {
    let sql = "SELECT at_ms / 86400000 * 86400000, page, count(*) FROM clicks
               WHERE book_id = (SELECT id FROM books WHERE slug = $1) AND at_ms >= 0 GROUP BY 1, 2";
    let mut conn = database.connect().await;
    let rows = sqlx::query(sql).bind(book).fetch_all(&mut conn).await;
    let rows = rows.unwrap();
    let days = rows.iter();
    days.map(|row| ((row.get(0), row.get(1)), row.get(2)))
        .collect()
}

/// What the book shows.
async fn shown(api: &Api, book: &str) -> Days {
    let counts = api.counts(book, "pages").await;
    let days = counts.iter().map(|count| {
        let start = chrono::DateTime::parse_from_rfc3339(count["start"].as_str().unwrap());
        let page = count["group"].as_str().unwrap().to_owned();
        let key = (start.unwrap().timestamp_millis(), page);
        (key, count["value"].as_i64().unwrap())
    });
    days.collect()
}

/// What counts, status, watermark and windows say of a book, which a run that changes nothing leaves
/// alone.
async fn standing(api: &Api, book: &str) -> Value {
    let path = format!("/v1/books/{book}/snapshot?since=-62135596800000");
    let snapshot = api.get(&path).await.expect(200);
    let book = &snapshot["book"];
    json!({
        "windows": snapshot["windows"], "watermark": snapshot["watermark"],
        "status": book["status"], "rollups": book["rollups"], "settings": book["settings"],
        "totals": book["totals"],
    })
}

/// Whether a run has left nothing behind that nobody counts by.
async fn swept(database: &Database) {
    let left = "SELECT (SELECT count(*) FROM windows w JOIN books b ON b.id = w.book_id
                        WHERE w.generation <> b.generation)
                       + (SELECT count(*) FROM recount_tail)
                       + (SELECT count(*) FROM books WHERE recounting OR live_run IS NOT NULL)";
    crate::harness::until("nothing is left behind", async || {
        (database.number(left).await == 0).then_some(())
    })
    .await;
}
