//! Several servers on one database.

#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::harness::load::{Load, click, counted, hold, metric, totals, waiting};
use crate::harness::{Api, Database, Server, start, until};

const LISTENING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'";

const END_LISTENING: &str = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
    FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";

async fn two() -> (Database, Server, Server) {
    let (database, one) = start().await;
    let other = Server::start(&database).await;
    until("both listen", async || {
        (database.number(LISTENING).await == 2).then_some(())
    })
    .await;
    (database, one, other)
}

#[tokio::test]
async fn a_reader_sees_in_order_what_is_posted_to_another_process() {
    let (_database, one, other) = two().await;
    one.api().plain_book("b", 60_000, 60_000).await;
    let mut reader = one.api().follow("b", "", None).await;
    reader.expect("hello").await;
    let (own, other) = (one.api(), other.api());
    for n in 1..=100 {
        // Now and then to the reader's own process.
        let api = if n % 5 == 0 { &own } else { &other };
        let receipt = api.clicks("b", click("/a").1).await;
        assert_eq!(receipt["position"], n);
    }
    for n in 1..=100 {
        let event = reader.expect("counts").await;
        assert_eq!(event.position(), Some(n));
        assert_eq!(event.data["totals"]["on_time"], n);
    }
}

#[tokio::test]
async fn an_announcement_comes_much_sooner_than_the_poll() {
    let (_database, one, other) = two().await;
    one.api().plain_book("b", 60_000, 60_000).await;
    let mut reader = one.api().follow("b", "", None).await;
    reader.expect("hello").await;
    let api = other.api();
    let mut took = Vec::new();
    for n in 1..=50 {
        api.clicks("b", click("/a").1).await;
        let answered = Instant::now();
        assert_eq!(reader.expect("counts").await.position(), Some(n));
        took.push(answered.elapsed());
    }
    took.sort_unstable();
    println!(
        "from the 200 to the event elsewhere: median {:?}, most {:?}",
        took[25], took[49]
    );
    assert!(took[25] < Duration::from_millis(500), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missed_when_the_listening_connections_are_killed() {
    let (database, one, other) = two().await;
    one.api().plain_book("b", 60_000, 60_000).await;
    let mut readers = Vec::new();
    for server in [&one, &other] {
        let mut reader = server.api().follow("b", "", None).await;
        reader.expect("hello").await;
        readers.push(reader);
    }
    let loads = [&one, &other].map(|server| Load::start(&server.api(), "b", 2));
    let mut killed = 0;
    for round in 1..=10 {
        until("somebody listens, and clicks come in", async || {
            let posted: usize = loads.iter().map(Load::acknowledged).sum();
            let listens = database.number(LISTENING).await > 0;
            (listens && posted >= round * 20).then_some(())
        })
        .await;
        killed += database.number(END_LISTENING).await;
    }
    assert!(killed >= 10, "{killed} connections were killed");
    let mut acknowledged = 0;
    for load in loads {
        let written = load.finish().await;
        assert_eq!(written.failed, 0);
        acknowledged += written.acknowledged.len();
    }
    let book = one.api().get("/v1/books/b").await.expect(200);
    let position = book["position"].as_i64().unwrap();
    for reader in &mut readers {
        let events = reader.through(position).await;
        let seen: Vec<i64> = events
            .iter()
            .map(|e| e.position().expect("a frame"))
            .collect();
        assert_eq!(seen, (1..=position).collect::<Vec<_>>());
        assert_eq!(
            events.last().unwrap().data["totals"]["on_time"],
            acknowledged
        );
    }
    until("both listen again", async || {
        (database.number(LISTENING).await == 2).then_some(())
    })
    .await;
}

/// What one writer did: clicks by book, and the statuses of posts that were not taken.
async fn write_randomly(
    api: Api,
    books: usize,
    stop: Arc<AtomicBool>,
) -> (HashMap<usize, i64>, Vec<u16>) {
    let (mut taken, mut failed) = (HashMap::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        // A request has one book; many at once make transactions of many books.
        let posts = (0..24).map(async |_| {
            let book = rand::random_range(0..books);
            let clicks: Vec<Value> = (0..3).map(|n| click(&format!("/{n}")).1).collect();
            let path = format!("/v1/books/b{book}/clicks");
            (book, api.post(&path, &Value::from(clicks)).await)
        });
        for (book, answer) in join_all(posts).await {
            if answer.status == 200 {
                assert_eq!(answer.json()["on_time"], 3, "{}", answer.text);
                *taken.entry(book).or_default() += 3;
            } else {
                failed.push(answer.status.as_u16());
            }
        }
    }
    (taken, failed)
}

/// Books whose frames from `oldest` to `position` are not all there, or that have others. In the older
/// half of a buffer frames go into one another.
const BOOKS_WITH_GAPS: &str = "SELECT count(*) FROM books b,
    LATERAL (SELECT greatest(b.oldest, b.position - 512 / 2) AS whole) h,
    LATERAL (SELECT count(*) FILTER (WHERE position >= h.whole) AS frames,
                    min(position) AS first, max(position) AS last
             FROM frames f WHERE f.book_id = b.id) f
    WHERE b.position > 0
      AND (f.frames <> b.position - h.whole + 1 OR f.first < b.oldest OR f.last <> b.position)";

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_share_two_hundred_books_count_right_and_fail_no_request() {
    const BOOKS: usize = 200;
    let seconds = std::env::var("PAGETIDE_SOAK_SECONDS").unwrap_or_default();
    let seconds = u64::from_str(&seconds).unwrap_or(5);
    let database = Database::create().await;
    let env = [("PAGETIDE_LANES", "2")];
    let one = Server::start_with(&database, &env).await;
    let other = Server::start_with(&database, &env).await;
    let api = one.api();
    for n in 0..BOOKS {
        api.plain_book(&format!("b{n}"), 60_000, 60_000).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers = [&one, &other, &one, &other]
        .map(|server| tokio::spawn(write_randomly(server.api(), BOOKS, stop.clone())));
    // Without transactions that wait for one another, this would show nothing. On a busy machine
    // it takes longer until two meet and a look catches them at it.
    let (begun, mut waits) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(seconds)
        || (waits == 0 && begun.elapsed() < Duration::from_secs(seconds + 60))
    {
        waits += waiting(&database).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut taken: HashMap<usize, i64> = HashMap::new();
    let mut failed = Vec::new();
    for writer in writers {
        let (by_book, statuses) = writer.await.unwrap();
        for (book, clicks) in by_book {
            *taken.entry(book).or_default() += clicks;
        }
        failed.extend(statuses);
    }
    let (mut commits, mut retries) = (0.0, 0.0);
    for server in [&one, &other] {
        commits += metric(&server.api(), "pagetide_commits_total").await;
        retries += metric(&server.api(), "pagetide_retries_total").await;
    }
    assert_eq!(failed, [0_u16; 0], "requests that failed");
    for n in 0..BOOKS {
        let book = format!("b{n}");
        let expected = taken.get(&n).copied().unwrap_or(0);
        assert_eq!(counted(&api, &book).await, expected, "{book}");
        assert_eq!(totals(&api, &book).await["on_time"], expected, "{book}");
    }
    // Their backends report what they counted when they end, at the latest.
    assert!(one.terminate().await.success());
    assert!(other.terminate().await.success());
    let deadlocks = database
        .number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    let (deadlocks, clicks) = (deadlocks.await, taken.values().sum::<i64>());
    println!("{seconds} s: {clicks} clicks, {commits} commits, seen waiting {waits} times");
    println!("{retries} retries, {deadlocks} deadlocks");
    let gaps = database.number(BOOKS_WITH_GAPS).await;
    assert_eq!(gaps, 0, "books whose positions have gaps");
    assert!(waits > 0, "no transaction ever waited for another");
}

#[tokio::test]
async fn a_deadlock_with_somebody_else_is_tried_again_and_fails_no_request() {
    let database = Database::create().await;
    let server = Server::start_with(&database, &[("PAGETIDE_LANES", "1")]).await;
    let api = server.api();
    // In the order of their ids.
    for book in ["a", "b", "c"] {
        api.plain_book(book, 60_000, 60_000).await;
    }
    let waits = async || (waiting(&database).await == 1).then_some(());
    let post = |book: &'static str| {
        let api = api.clone();
        tokio::spawn(async move { api.clicks(book, click("/a").1).await })
    };
    // The clicks of b and c gather behind that of a, and are committed in one transaction.
    let mut row_a = hold(&database, "a").await;
    let mut rows = hold(&database, "c").await;
    let mut posts = vec![post("a")];
    until("a waits", waits).await;
    posts.extend([post("b"), post("c")]);
    for _ in 0..10 {
        api.get("/healthz").await.expect(200);
    }
    let patient = sqlx::raw_sql("SET deadlock_timeout = '20s'");
    patient.execute(&mut rows).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut row_a).await.unwrap();
    assert_eq!(posts.remove(0).await.unwrap()["on_time"], 1);
    // It holds b and waits for c; here, c is held and b is wanted.
    until("b and c wait", waits).await;
    let want = sqlx::raw_sql("UPDATE books SET next_seq = next_seq WHERE slug = 'b'");
    want.execute(&mut rows).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut rows).await.unwrap();
    for post in posts {
        assert_eq!(post.await.unwrap()["on_time"], 1);
    }
    assert!(metric(&api, "pagetide_retries_total").await >= 1.0);
    assert!(server.terminate().await.success());
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.number(deadlocks).await, 1);
}

#[tokio::test]
async fn the_locking_statement_walks_the_index_of_ids() {
    let (database, server) = start().await;
    server.api().plain_book("b", 60_000, 60_000).await;
    let options = PgConnectOptions::from_str(&database.url()).unwrap();
    // Few rows, for which a planner prefers to read the table, and many.
    for more in [0, 20, 2000] {
        let mut conn = pagetide::db::write_connection(&options).await.unwrap();
        let copy = "INSERT INTO books (id, slug, title, created_ms, settings, rollups, origins)
                    SELECT gen_random_uuid(), '', title, created_ms, settings, rollups, origins
                    FROM generate_series(1, $1), (SELECT * FROM books LIMIT 1) b";
        let copied = sqlx::query(copy).bind(more).execute(&mut conn).await;
        copied.unwrap();
        sqlx::raw_sql(
            "ANALYZE books;
             PREPARE locking (uuid[], bigint) AS
             UPDATE books SET next_seq = next_seq + $2 WHERE id = ANY($1) AND NOT deleted
             RETURNING id, next_seq",
        )
        .execute(&mut conn)
        .await
        .unwrap();
        let ids = [Uuid::now_v7(), Uuid::now_v7()].map(|id| id.to_string());
        let explain = format!("EXPLAIN EXECUTE locking ('{{{}}}', 1)", ids.join(","));
        let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).fetch_all(&mut conn);
        let plan: Vec<String> = rows.await.unwrap().iter().map(|r| r.get(0)).collect();
        let plan = plan.join("\n");
        assert!(
            plan.contains("Index Scan using books_pkey on books"),
            "{plan}"
        );
        assert!(plan.contains("Index Cond: (id = ANY ($1))"), "{plan}");
    }
}
