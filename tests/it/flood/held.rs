//! A row that somebody holds: what fits into the queue waits, and the rest is told to come back.

use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BODY_BYTES, Flood, Others, POSTS, Told, body, grown, memory, two_books};
use crate::harness::load::{hold, totals};
use crate::harness::raw::Raw;
use crate::harness::server::ADMIN;
use crate::harness::steps::{metric, streams_open};
use crate::harness::{Answer, Api, Database, Server};

/// So many mebibytes of clicks wait in a lane at most, or so many clicks, whichever is less.
const QUEUE: (&str, &str) = ("PAGETIDE_QUEUE_CLICKS", "20000");

/// Floods book `b`, whose row is held, from so many connections. `fit` posts find room in the queue.
/// Gives what was answered, and by how many megabytes the server has grown.
async fn against_a_held_row(connections: usize, click_bytes: usize, fit: usize) -> (Told, i64) {
    let database = Database::create().await;
    let server = Server::start_with(&database, &[QUEUE, ("PAGETIDE_LANES", "2")]).await;
    let api = server.api();
    two_books(&api).await;
    api.clicks("b", json!({"page": "/a", "at": 1000})).await;
    let mut stuck = Raw::get_narrow(&api, "/v1/books/b/events", "").await;
    stuck.head().await;
    assert_eq!(streams_open(&api, "b").await, 1);
    let (body, clicks) = body(click_bytes);
    let others = Others::start(&server).await;

    let mut row = hold(&database, "b").await;
    let before = memory(&server, "VmRSS:");
    let began = Instant::now();
    let flood = Flood::start(&api, connections, &body);
    flood.all_but(fit).await;
    eprintln!(
        "{POSTS} posts of {clicks} clicks in {:.1?}",
        began.elapsed()
    );
    let held = grown(&server, before);
    let waits = others.finish().await;
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    let told = flood.finish().await;
    eprintln!("{:?}", told.answers);
    grown(&server, before);

    // What was acknowledged is counted, and nothing else.
    let counted = totals(&api, "b").await["on_time"].as_u64().unwrap();
    assert_eq!(counted, 1 + told.acknowledged as u64);
    // The room is there again, all of it.
    assert_eq!(metric(&api, "pagetide_lane_queue_requests").await, 0);
    let full = vec![json!({"page": "/a", "at": 1000}); 10_000];
    let twice = [(); 2].map(|()| api.clicks("b", Value::from(full.clone())));
    for answer in futures_util::future::join_all(twice).await {
        assert_eq!(answer["on_time"], 10_000);
    }
    waits.are_short();
    (told, held)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_against_a_held_row_is_bounded_by_the_queue() {
    let (told, grown) = against_a_held_row(16, 300, 6).await;
    assert!(told.count(503, "queue_full") > 30, "{:?}", told.answers);
    // The queue: 20,000 clicks of no more than 0.7 kB each, with what vectors and strings round up
    // and the ids that are kept for the answers: 14 MB. Each of the 16 connections: a body of 1 MB
    // that arrives or waits to be read, in a vector that grew by doubling: 16 to 32 MB. One body at
    // a time as clicks that are not queued yet: 3 MB. What the allocator has freed and not returned.
    assert!(grown < 64, "{grown} MB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_large_clicks_against_a_held_row_is_bounded_by_their_bytes() {
    // By their number alone, 80 posts would find room.
    let (told, grown) = against_a_held_row(40, 4000, 21).await;
    assert!(told.count(503, "queue_full") > 30, "{:?}", told.answers);
    // The queue: 20,000 KiB. The 20 connections whose posts do not wait in it: 20 to 40 MB, as above.
    // What the allocator has not returned.
    assert!(grown < 80, "{grown} MB");
}

/// Sends a post and waits for no answer.
async fn sent(api: &Api, body: &[u8]) -> TcpStream {
    let address = api.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /v1/books/b/clicks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_clicks_not_the_bodies_they_came_in() {
    let database = Database::create().await;
    let server = Server::start_with(&database, &[QUEUE, ("PAGETIDE_LANES", "2")]).await;
    let api = server.api();
    two_books(&api).await;
    api.clicks("b", json!({"page": "/a", "at": 1000})).await;
    // The queue has room for twenty thousand of these.
    let click = "{\"page\": \"/a\", \"at\": 1000}\n";
    let body = format!("{click}{}", " ".repeat(BODY_BYTES - click.len()));
    let others = Others::start(&server).await;
    let mut row = hold(&database, "b").await;
    let before = memory(&server, "VmRSS:");
    let mut posts = Vec::new();
    for _ in 0..POSTS {
        posts.push(sent(&api, body.as_bytes()).await);
        // Large bodies are read in turn: when this one was, that one waits in the queue.
        let junk = "x".repeat(100_000);
        let request = api.request(reqwest::Method::POST, "/v1/books/b/clicks");
        let request = request.header("content-type", "application/json");
        assert_eq!(Answer::of(request.body(junk)).await.status, 400);
    }
    let waits = others.finish().await;
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    let mut taken = 0;
    for mut post in posts {
        let mut head = [0; 12];
        post.read_exact(&mut head).await.unwrap();
        // Where all this took long, the lane has given up on the first.
        assert!(head.ends_with(b" 200") || head.ends_with(b" 503"));
        taken += usize::from(head.ends_with(b" 200"));
    }
    assert!(taken > POSTS / 2, "{taken}");
    // All the bodies would be a hundred megabytes. A few may be on their way at a time.
    let grown = grown(&server, before);
    assert!(grown < 50, "{grown} MB");
    waits.are_short();
}
