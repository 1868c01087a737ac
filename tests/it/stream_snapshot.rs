//! A reader that begins with a snapshot, in the stream or beside it, knows everything.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::steps::{Known, single_clicks};
use crate::harness::{self, Api};

const HOUR: i64 = 3_600_000;

async fn snapshot(api: &Api) -> Value {
    api.get("/v1/books/b/snapshot").await.expect(200)
}

#[tokio::test]
async fn a_live_stream_begins_with_the_snapshot_that_get_gives() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    single_clicks(&api, "b", 3).await;
    api.clicks("b", json!([{"page": "/q", "at": 25_000}])).await;
    let mut events = api.follow("b", "?snapshot=1", None).await;
    assert_eq!(events.expect("hello").await.data["mode"], "live");
    let sent = events.expect("snapshot").await;
    assert_eq!(sent.id, "4");
    assert_eq!(sent.data, snapshot(&api).await);
    assert_eq!(sent.data["position"], 4);
    assert_eq!(sent.data["book"]["totals"]["received"], 4);
    let next = single_clicks(&api, "b", 1).await;
    assert_eq!(events.expect("counts").await.position(), Some(next));
}

#[tokio::test]
async fn without_snapshot_1_there_is_none() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    for query in ["", "?snapshot=0"] {
        let mut events = api.follow("b", query, None).await;
        events.expect("hello").await;
        single_clicks(&api, "b", 1).await;
        events.expect("counts").await;
    }
}

#[tokio::test]
async fn a_snapshot_follows_any_resync_but_no_replay() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    let position = single_clicks(&api, "b", 5).await;
    for cursor in ["99", "abc"] {
        let mut events = api.follow("b", "?snapshot=1", Some(cursor)).await;
        events.expect("hello").await;
        let resync = events.expect("resync_required").await;
        assert_eq!(resync.id, position.to_string());
        let sent = events.expect("snapshot").await;
        assert_eq!(sent.id, position.to_string());
        let mut expected = snapshot(&api).await;
        // The one thing in it that is this process's and not the book's.
        expected["book"]["streams_open"] = sent.data["book"]["streams_open"].clone();
        assert_eq!(sent.data, expected);
    }
    let mut events = api.follow("b", "?snapshot=1", Some("3")).await;
    events.expect("hello").await;
    assert_eq!(events.expect("counts").await.position(), Some(4));
    assert_eq!(events.expect("counts").await.position(), Some(5));
    single_clicks(&api, "b", 1).await;
    assert_eq!(events.expect("counts").await.position(), Some(6));
}

#[tokio::test]
async fn at_rest_the_snapshot_comes_before_the_end() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    single_clicks(&api, "b", 1).await;
    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let mut events = api.follow("b", "?snapshot=1", None).await;
    events.expect("hello").await;
    let sent = events.expect("snapshot").await;
    assert_eq!(sent.data["at_rest"], true);
    assert_eq!(sent.data["windows"][0]["values"], json!({"/p": 1}));
    assert_eq!(events.expect("end").await.id, sent.id);
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_snapshot_shows_what_was_answered_before_it_was_asked_for() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    let click = json!({"page": "/a", "at": 1, "id": "one"});
    api.clicks("b", click.clone()).await;
    // Somebody watches, and has had a snapshot already.
    let mut first = api.follow("b", "?snapshot=1", None).await;
    first.expect("hello").await;
    first.expect("snapshot").await;
    let answer = api.clicks("b", click).await;
    assert_eq!(answer["duplicates"], 1);
    let mut second = api.follow("b", "?snapshot=1", None).await;
    let hello = second.expect("hello").await;
    assert_eq!(hello.data["revision"], answer["revision"]);
    let sent = second.expect("snapshot").await;
    assert_eq!(sent.data["book"]["totals"]["duplicates"], 1);
}

/// Posts clicks, each on a page of its own, so that every single frame matters, until it is told
/// to stop; meanwhile `reader` is called again and again with its number.
async fn while_clicks_are_posted<F>(api: &Api, reader: impl Fn(usize) -> F)
where
    F: Future<Output = ()>,
{
    let done = AtomicBool::new(false);
    let writer = async {
        let mut clicks = 0;
        while !done.load(Ordering::SeqCst) {
            // Fewer pages than a snapshot shows.
            let page = format!("/p{}", clicks % 900);
            api.clicks("b", json!({"page": page, "at": 1000})).await;
            clicks += 1;
        }
        clicks
    };
    let readers = async {
        for number in 0..25 {
            reader(number).await;
        }
        done.store(true, Ordering::SeqCst);
    };
    let (clicks, ()) = tokio::join!(writer, readers);
    assert!(clicks >= 25, "{clicks} clicks are too few to show anything");
}

/// Reads on from `known`, which is as of `position`, until `position` plus a few, and compares with
/// a snapshot of exactly the moment at which it stops.
async fn reads_on(
    api: &Api,
    events: &mut harness::sse::Events,
    mut known: Known,
    mut position: i64,
) {
    let target = position + 5;
    loop {
        // A snapshot may be ahead of what was read; then read up to it.
        let latest = if position >= target {
            Some(snapshot(api).await)
        } else {
            None
        };
        let upto = latest
            .as_ref()
            .map_or(target, |s| s["position"].as_i64().unwrap());
        while position < upto {
            let event = events.next().await.expect("the stream ended");
            let next = event.position().unwrap_or_else(|| panic!("{event:?}"));
            assert!(next > position);
            position = next;
            known.learn(&event.data);
        }
        if let Some(latest) = latest {
            assert_eq!(position, upto);
            return assert_eq!(known, Known::of_snapshot(&latest));
        }
    }
}

#[tokio::test]
async fn after_a_snapshot_in_the_stream_nothing_is_missed_while_clicks_are_posted() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    while_clicks_are_posted(&api, |_| async {
        let mut events = api.follow("b", "?snapshot=1", None).await;
        events.expect("hello").await;
        let sent = events.expect("snapshot").await;
        let position = sent.data["position"].as_i64().unwrap();
        assert_eq!(sent.id, position.to_string());
        let known = Known::of_snapshot(&sent.data);
        reads_on(&api, &mut events, known, position).await;
    })
    .await;
}

#[tokio::test]
async fn the_position_of_a_snapshot_is_a_cursor_that_misses_nothing() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    while_clicks_are_posted(&api, |_| async {
        let read = snapshot(&api).await;
        let position = read["position"].as_i64().unwrap();
        let mut events = api.follow("b", "", Some(&position.to_string())).await;
        assert_eq!(events.expect("hello").await.data["mode"], "replay");
        reads_on(&api, &mut events, Known::of_snapshot(&read), position).await;
    })
    .await;
}
