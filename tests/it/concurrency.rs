//! Sent again, in whole or part, by whomever and however concurrently, a click counts once.

#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::harness::load::{click, counted, hold, metric, stored, totals, views, waiting};
use crate::harness::{Answer, Api, Database, Server, start, until};

/// Posts each body to the book, all at the same moment: each has a connection of its own then.
async fn at_once(api: &Api, book: &str, bodies: Vec<Value>) -> Vec<Answer> {
    let barrier = Arc::new(Barrier::new(bodies.len()));
    let path = format!("/v1/books/{book}/clicks");
    let posts = bodies.into_iter().map(|body| {
        let (api, barrier, path) = (api.clone(), Arc::clone(&barrier), path.clone());
        tokio::spawn(async move {
            // Connections are made before the start.
            api.get("/healthz").await.expect(200);
            barrier.wait().await;
            api.post(&path, &body).await
        })
    });
    let answers = join_all(posts).await;
    answers.into_iter().map(Result::unwrap).collect()
}

fn sum(receipts: &[Value], field: &str) -> i64 {
    receipts.iter().map(|r| r[field].as_i64().unwrap()).sum()
}

fn all_taken(answers: Vec<Answer>) -> Vec<Value> {
    answers.into_iter().map(|a| a.expect(200)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_batch_sent_64_times_at_once_counts_once() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let clicks: Vec<Value> = (0..100).map(|n| click(&format!("/{}", n % 10)).1).collect();
    let batch = Value::from(clicks);

    let receipts = all_taken(at_once(&api, "b", vec![batch.clone(); 64]).await);
    assert_eq!(sum(&receipts, "on_time"), 100);
    assert_eq!(sum(&receipts, "duplicates"), 63 * 100);
    let pages = (0..10).map(|n| (format!("/{n}"), 10)).collect();
    assert_eq!(views(&api, "b").await, pages);

    let receipts = all_taken(at_once(&api, "b", vec![batch; 64]).await);
    assert_eq!(sum(&receipts, "duplicates"), 64 * 100);
    assert_eq!(views(&api, "b").await, pages);
    assert_eq!(totals(&api, "b").await["on_time"], 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_parts_of_a_batch_sent_at_once_count_once() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let clicks: Vec<Value> = (0..100).map(|_| click("/a").1).collect();
    // Windows of 20 clicks, each overlapping the next by 10.
    let parts = (0..9).map(|n| Value::from(&clicks[n * 10..n * 10 + 20]));
    let receipts = all_taken(at_once(&api, "b", parts.collect()).await);
    assert_eq!(sum(&receipts, "on_time"), 100);
    assert_eq!(sum(&receipts, "duplicates"), 80);
    assert_eq!(counted(&api, "b").await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_first_clicks_of_a_new_visitor_at_once_are_all_counted() {
    let (_database, server) = start().await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "visitors", "group_by": "visitor", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": 60_000}}],
        "settings": {"delay_ms": 0, "max_future_ms": null},
    });
    api.book("b", fields).await;
    let body = json!({"page": "/a", "visitor": "v", "at": 1000});
    for round in 1..=2 {
        let receipts = all_taken(at_once(&api, "b", vec![body.clone(); 64]).await);
        assert_eq!(sum(&receipts, "on_time"), 64);
        let visitors = api.counts("b", "visitors").await;
        assert_eq!(visitors.len(), 1, "{visitors:?}");
        assert_eq!(visitors[0]["group"], "v");
        assert_eq!(visitors[0]["value"], 64 * round);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_on_many_pages_at_once_is_one_click() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let id = Uuid::new_v4();
    let bodies = (0..32).map(|n| json!({"id": id, "page": format!("/{n}"), "at": 1000}));
    let receipts = all_taken(at_once(&api, "b", bodies.collect()).await);
    assert_eq!(sum(&receipts, "on_time"), 1);
    assert_eq!(counted(&api, "b").await, 1);
    let differing = receipts
        .iter()
        .filter(|r| r["exceptions"][0]["reason"] == "differs");
    assert_eq!(differing.count(), 31);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clicks_on_one_page_in_two_bursts_take_few_commits() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let before = metric(&api, "pagetide_commits_total").await;
    for wave in 1..=2 {
        // However slow the machine, the clicks have arrived before the row is free.
        let mut row = hold(&database, "b").await;
        let posts = join_all((0..500).map(|_| sent(&api, click("/a").1))).await;
        until("a transaction waits", async || {
            (waiting(&database).await == 1).then_some(())
        })
        .await;
        for _ in 0..10 {
            api.get("/healthz").await.expect(200);
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
        for mut post in posts {
            let mut head = [0; 12];
            post.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200");
        }
        assert_eq!(counted(&api, "b").await, wave * 500);
    }
    let commits = metric(&api, "pagetide_commits_total").await - before;
    println!("1000 clicks, 500 connections at once: {commits} commits");
    assert!(commits <= 20.0, "{commits} commits");
}

/// A connection on which a click was sent.
async fn sent(api: &Api, click: Value) -> TcpStream {
    let address = api.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (token, body) = (&api.token, click.to_string());
    let request = format!(
        "POST /v1/books/b/clicks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn clicks_that_come_as_fast_as_they_are_answered_share_commits() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let before = metric(&api, "pagetide_commits_total").await;
    let began = Instant::now();
    let writers = (0..100).map(async |_| {
        for _ in 0..10 {
            api.clicks("b", click("/a").1).await;
        }
    });
    join_all(writers).await;
    let took = began.elapsed();
    assert_eq!(counted(&api, "b").await, 1000);
    let commits = metric(&api, "pagetide_commits_total").await - before;
    println!("1000 clicks, 100 connections, {took:?}: {commits} commits");
    assert!(commits < 200.0, "{commits} commits");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_hundred_clicks_over_forty_pages_count_twenty_each_however_many_lanes() {
    let database = Database::create().await;
    for lanes in ["1", "4", "16"] {
        let server = Server::start_with(&database, &[("PAGETIDE_LANES", lanes)]).await;
        let api = server.api();
        // Four pages of each of ten books, so that every lane has work.
        let books: Vec<String> = (0..10).map(|n| format!("b{n}-{lanes}")).collect();
        for book in &books {
            api.plain_book(book, 60_000, 60_000).await;
        }
        for _ in 0..10 {
            let posts = books.iter().map(|book| {
                let bodies = (0..8).map(|n| click(&format!("/{}", n % 4)).1);
                at_once(&api, book, bodies.collect())
            });
            for answers in join_all(posts).await {
                assert_eq!(sum(&all_taken(answers), "on_time"), 8);
            }
        }
        for book in &books {
            let pages = (0..4).map(|n| (format!("/{n}"), 20)).collect();
            assert_eq!(views(&api, book).await, pages, "{lanes} lanes, {book}");
        }
        assert!(server.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_hundred_posts_to_ten_books_at_once_are_all_taken() {
    let (_database, server) = start().await;
    let api = server.api();
    let books: Vec<String> = (0..10).map(|n| format!("b{n}")).collect();
    for book in &books {
        api.plain_book(book, 60_000, 60_000).await;
    }
    let posts = books.iter().map(|book| {
        let bodies = (0..80).map(|n| click(&format!("/{}", n % 4)).1);
        at_once(&api, book, bodies.collect())
    });
    let answers: Vec<Answer> = join_all(posts).await.into_iter().flatten().collect();
    let refused: Vec<&Answer> = answers.iter().filter(|a| a.status != 200).collect();
    let count = refused.len();
    assert!(
        refused.is_empty(),
        "{count} refused, such as {:?}",
        refused[0]
    );
    for book in &books {
        let pages = (0..4).map(|n| (format!("/{n}"), 20)).collect();
        assert_eq!(views(&api, book).await, pages, "{book}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_posts_at_once_do_not_read_the_book_once_each() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let transactions = "SELECT xact_commit FROM pg_stat_database
                        WHERE datname = current_database()";
    let before = database.number(transactions).await;
    let bodies = (0..400).map(|_| click("/a").1).collect();
    all_taken(at_once(&api, "b", bodies).await);
    let commits = metric(&api, "pagetide_commits_total").await;
    // Backends report what they did when they end, at the latest.
    assert!(server.terminate().await.success());
    let transactions = database.number(transactions).await - before;
    println!("400 posts at once: {transactions} transactions, {commits} of them commits of clicks");
    // A quarter of what one each would take; the slower the machine, the more looks by the clock.
    assert!(transactions < 100, "{transactions} transactions");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_click_that_races_with_the_close_is_either_counted_or_refused() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let writers = (0..32).map(|_| {
        let api = api.clone();
        tokio::spawn(async move {
            let mut counted = HashSet::new();
            loop {
                let (id, click) = click("/a");
                let answer = api.post("/v1/books/b/clicks", &click).await;
                if answer.status == 200 {
                    assert_eq!(answer.json()["on_time"], 1, "{}", answer.text);
                    counted.insert(id);
                } else {
                    assert_eq!(answer.problem(409), "book_closed");
                    return counted;
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    until("some clicks are counted", async || {
        (counted(&api, "b").await > 100).then_some(())
    })
    .await;
    let closed = api.post("/v1/books/b/close", &Value::Null).await;
    let closed = closed.expect(200);
    let mut taken = HashSet::new();
    for writer in join_all(writers).await {
        taken.extend(writer.unwrap());
    }
    let total = i64::try_from(taken.len()).unwrap();
    assert_eq!(closed["totals"]["on_time"], total, "after the close");
    assert_eq!(totals(&api, "b").await["on_time"], total);
    assert_eq!(totals(&api, "b").await["received"], total);
    assert_eq!(counted(&api, "b").await, total);
    assert_eq!(stored(&database).await, taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_refused_at_once_and_what_was_queued_is_committed() {
    let database = Database::create().await;
    let env = [("PAGETIDE_QUEUE_CLICKS", "10000"), ("PAGETIDE_LANES", "1")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    // Known to the server, so that a refusal does not wait for a look at the book.
    api.clicks("b", click("/first").1).await;

    let mut row = hold(&database, "b").await;
    let (done, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let mut ids = HashMap::new();
    for number in 0..13 {
        let (batch_ids, clicks): (Vec<Uuid>, Vec<Value>) = (0..1000).map(|_| click("/a")).unzip();
        ids.insert(number, batch_ids);
        let (api, done) = (api.clone(), done.clone());
        tokio::spawn(async move {
            let answer = api.post("/v1/books/b/clicks", &Value::from(clicks)).await;
            done.send((number, answer)).unwrap();
        });
    }
    // Ten fit; three do not, and are told so while the row is held.
    for _ in 0..3 {
        let (number, answer) = tokio::time::timeout(Duration::from_secs(20), answered.recv())
            .await
            .expect("no refusal while the row is held")
            .unwrap();
        assert!(answer.headers.contains_key("retry-after"));
        assert_eq!(answer.problem(503), "queue_full");
        ids.remove(&number);
    }
    let began = Instant::now();
    let refused = api.post("/v1/books/b/clicks", &click("/a").1).await;
    let took = began.elapsed();
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(refused.problem(503), "queue_full");
    assert!(took < Duration::from_secs(1), "refused after {took:?}");
    assert!(
        answered.try_recv().is_err(),
        "acknowledged while the row was held"
    );
    assert_eq!(waiting(&database).await, 1);

    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    for _ in 0..10 {
        let (number, answer) = answered.recv().await.unwrap();
        assert!(ids.contains_key(&number));
        assert_eq!(answer.expect(200)["on_time"], 1000);
    }
    assert_eq!(views(&api, "b").await["/a"], 10_000);
    let in_log = stored(&database).await;
    assert!(ids.values().flatten().all(|id| in_log.contains(id)));
    assert_eq!(in_log.len(), 10_001);
    // There is room again.
    api.clicks("b", click("/after").1).await;
}
