//! How a stream begins: whatever cursor a client comes with, it gets everything after it or is told
//! to read a snapshot.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::api::Answer;
use crate::harness::raw::Raw;
use crate::harness::sse::{Event, Events};
use crate::harness::steps::{execute, single_clicks, token};
use crate::harness::{self, Api, Database};

const EVENTS: &str = "/v1/books/b/events";

/// A live book with oldest 10 and position 20, as the golden cases want it: twenty clicks, then
/// what pruning does, by hand, for no buffer that can be configured is as small as eleven frames.
async fn book_from_10_to_20(database: &Database, api: &Api) {
    api.plain_book("b", 10_000, 3_600_000).await;
    assert_eq!(single_clicks(api, "b", 20).await, 20);
    execute(
        database,
        "DELETE FROM frames WHERE position < 10; UPDATE books SET oldest = 10",
    )
    .await;
}

/// A closed book; gives its position.
async fn book_at_rest(api: &Api) -> i64 {
    api.plain_book("b", 10_000, 3_600_000).await;
    single_clicks(api, "b", 3).await;
    let closed = api
        .post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    assert_eq!(closed["at_rest"], true);
    closed["position"].as_i64().unwrap()
}

async fn next_position(events: &mut Events) -> Option<i64> {
    events.next().await.expect("the stream ended").position()
}

async fn hello(events: &mut Events, mode: &str) -> Event {
    let hello = events.expect("hello").await;
    assert_eq!(hello.data["mode"], mode, "{hello:?}");
    hello
}

async fn end_at_rest(events: &mut Events, position: i64) {
    let end = events.expect("end").await;
    assert_eq!(end.data["reason"], "at_rest");
    assert_eq!(end.id, position.to_string());
    assert!(events.next().await.is_none());
}

#[derive(Debug, Deserialize)]
struct Case {
    header: Option<String>,
    query: String,
    outcome: String,
}

#[tokio::test]
async fn every_golden_cursor_gets_its_answer_and_then_what_is_new() {
    let (database, server) = harness::start().await;
    let api = server.api();
    book_from_10_to_20(&database, &api).await;
    let cases = include_str!("../golden/cursors.json");
    let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
    let mut open = Vec::new();
    for case in cases {
        let query = format!("?{}", case.query);
        if case.outcome == "400" {
            let answer = api.get(&format!("{EVENTS}{query}")).await;
            assert_eq!(answer.problem(400), "bad_cursor", "{case:?}");
            continue;
        }
        let mut events = api.follow("b", &query, case.header.as_deref()).await;
        let (mode, rest) = case.outcome.split_once(' ').unwrap_or((&case.outcome, ""));
        let hello = events.expect("hello").await;
        assert_eq!(hello.data["mode"], mode, "{case:?}");
        if let Some(first) = rest.strip_suffix("..") {
            for position in first.parse().unwrap()..=20 {
                assert_eq!(next_position(&mut events).await, Some(position), "{case:?}");
            }
        } else if mode == "resync" {
            let resync = events.expect("resync_required").await;
            let asked = case.header.as_deref().unwrap_or("8");
            let requested = match rest {
                "malformed" => json!(asked),
                _ => json!(asked.parse::<i64>().unwrap()),
            };
            let expected = json!({"reason": rest, "requested": requested,
                                  "oldest": 10, "position": 20});
            assert_eq!(resync.data, expected, "{case:?}");
            assert_eq!(resync.id, "20", "{case:?}");
        }
        open.push((case, events));
    }
    // Whatever came first, the next thing is the next frame: nothing is played twice or in part.
    api.clicks("b", json!({"page": "/p", "at": 1000})).await;
    assert!(open.len() >= 20);
    for (case, mut events) in open {
        assert_eq!(next_position(&mut events).await, Some(21), "{case:?}");
    }
}

#[tokio::test]
async fn hello_comes_first_and_tells_where_the_book_stands() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 3_600_000).await;
    single_clicks(&api, "b", 3).await;
    let book = api.get("/v1/books/b").await.expect(200);
    let mut events = api.follow("b", "", Some("1")).await;
    let hello = hello(&mut events, "replay").await;
    assert_eq!(hello.id, "1", "the cursor, not the newest position");
    let data = hello.data.as_object().unwrap();
    for field in [
        "position",
        "oldest",
        "revision",
        "structure_version",
        "watermark",
        "at_rest",
    ] {
        assert_eq!(data[field], book[field], "{field}");
    }
    assert_eq!(data["position"], 3);
    assert_eq!(data["watermark"], "1970-01-01T00:00:01.000Z");
    let time = data["server_time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    assert_eq!(data["heartbeat_ms"], 15_000);
    assert_eq!(data.len(), 9, "{data:?}");
}

#[tokio::test]
async fn retry_is_jittered_between_one_and_three_seconds() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let mut events = api.follow("b", "", None).await;
        let retry = hello(&mut events, "live").await.retry_ms.unwrap();
        assert!((1000..=3000).contains(&retry), "{retry}");
        seen.insert(retry);
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[tokio::test]
async fn a_book_with_no_history_has_cursor_0() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    for cursor in [None, Some("0")] {
        let mut events = api.follow("b", "", cursor).await;
        let hello = events.expect("hello").await;
        assert_eq!(hello.id, "0");
        assert_eq!(hello.data["position"], 0);
        assert_eq!(hello.data["oldest"], 1);
        assert_eq!(hello.data["watermark"], Value::Null);
    }
}

#[tokio::test]
async fn hello_carries_no_id_when_a_resync_follows() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let mut raw = Raw::get(&api, EVENTS, "last-event-id: 7\r\n").await;
    assert!(raw.head().await.starts_with("HTTP/1.1 200"));
    let hello = raw.chunk().await.unwrap();
    assert!(hello.starts_with("event: hello\n"), "{hello}");
    assert!(!hello.lines().any(|line| line.starts_with("id")), "{hello}");
    let resync = raw.chunk().await.unwrap();
    assert!(resync.starts_with("event: resync_required\n"), "{resync}");
    assert!(resync.ends_with("\nid: 0\n\n"), "{resync}");
}

#[tokio::test]
async fn the_id_of_a_resync_is_a_cursor_that_needs_none() {
    let (database, server) = harness::start().await;
    let api = server.api();
    book_from_10_to_20(&database, &api).await;
    for cursor in ["3", "1000020", "abc"] {
        let mut events = api.follow("b", "", Some(cursor)).await;
        hello(&mut events, "resync").await;
        let id = events.expect("resync_required").await.id;
        let mut again = api.follow("b", "", Some(&id)).await;
        assert_eq!(hello(&mut again, "replay").await.id, id);
    }
}

#[tokio::test]
async fn earliest_is_everything_that_is_kept() {
    let (database, server) = harness::start().await;
    let api = server.api();
    book_from_10_to_20(&database, &api).await;
    let mut events = api.follow("b", "?last_event_id=earliest", None).await;
    assert_eq!(hello(&mut events, "replay").await.id, "9");
    for position in 10..=20 {
        assert_eq!(next_position(&mut events).await, Some(position));
    }
}

#[tokio::test]
async fn a_cursor_before_the_barrier_is_told_that_the_counts_were_replaced() {
    let (database, server) = harness::start().await;
    let api = server.api();
    book_from_10_to_20(&database, &api).await;
    execute(&database, "UPDATE books SET barrier = 15").await;
    // 3 was pruned too: the barrier comes first in the table. `earliest` is 9.
    for (header, query, requested) in [
        (Some("14"), "", json!(14)),
        (Some("3"), "", json!(3)),
        (None, "?last_event_id=14", json!(14)),
    ] {
        let mut events = api.follow("b", query, header).await;
        hello(&mut events, "resync").await;
        let resync = events.expect("resync_required").await;
        let expected = json!({"reason": "replaced", "requested": requested,
                              "oldest": 10, "position": 20});
        assert_eq!(resync.data, expected);
    }
    let mut events = api.follow("b", "", Some("15")).await;
    hello(&mut events, "replay").await;
    assert_eq!(next_position(&mut events).await, Some(16));
    let mut events = api.follow("b", "", Some("21")).await;
    hello(&mut events, "resync").await;
    assert_eq!(
        events.expect("resync_required").await.data["reason"],
        "ahead"
    );
}

#[tokio::test]
async fn earliest_before_the_barrier_is_replaced_like_the_number_that_it_stands_for() {
    let (database, server) = harness::start().await;
    let api = server.api();
    book_from_10_to_20(&database, &api).await;
    execute(&database, "UPDATE books SET barrier = 15").await;
    let mut events = api.follow("b", "?last_event_id=earliest", None).await;
    hello(&mut events, "resync").await;
    let resync = events.expect("resync_required").await;
    assert_eq!(resync.data["reason"], "replaced");
}

#[tokio::test]
async fn at_rest_a_cursor_at_the_end_gets_204() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let position = book_at_rest(&api).await;
    let request = api.request(Method::GET, EVENTS);
    let answer = Answer::of(request.header("last-event-id", position.to_string())).await;
    assert_eq!(answer.expect(204), Value::Null);
    let query = format!("{EVENTS}?lastEventId={position}");
    assert_eq!(api.get(&query).await.expect(204), Value::Null);
    // Reopened, it goes on where it was.
    api.post("/v1/books/b/reopen", &Value::Null)
        .await
        .expect(200);
    let mut events = api.follow("b", "", Some(&position.to_string())).await;
    hello(&mut events, "replay").await;
    assert_eq!(events.expect("status").await.data["reason"], "reopened");
}

#[tokio::test]
async fn at_rest_a_stream_plays_what_is_left_and_ends() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let position = book_at_rest(&api).await;

    let mut events = api.follow("b", "", Some("1")).await;
    assert_eq!(hello(&mut events, "replay").await.data["at_rest"], true);
    for expected in 2..=position {
        assert_eq!(next_position(&mut events).await, Some(expected));
    }
    end_at_rest(&mut events, position).await;

    let mut events = api.follow("b", "", None).await;
    hello(&mut events, "live").await;
    end_at_rest(&mut events, position).await;

    for (cursor, reason) in [("1000000", "ahead"), ("x", "malformed")] {
        let mut events = api.follow("b", "", Some(cursor)).await;
        hello(&mut events, "resync").await;
        let resync = events.expect("resync_required").await;
        assert_eq!(resync.data["reason"], reason);
        end_at_rest(&mut events, position).await;
    }
}

#[tokio::test]
async fn an_id_of_another_book_brings_only_this_books_frames() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("a", 10_000, 3_600_000).await;
    let book = api.plain_book("b", 10_000, 3_600_000).await;
    let of_a = single_clicks(&api, "a", 4).await;
    single_clicks(&api, "b", 9).await;
    let mut events = api.follow("b", "", Some(&of_a.to_string())).await;
    hello(&mut events, "replay").await;
    single_clicks(&api, "a", 2).await;
    single_clicks(&api, "b", 1).await;
    for position in of_a + 1..=10 {
        let frame = events.expect("counts").await;
        assert_eq!(frame.position(), Some(position));
        assert_eq!(frame.data["book"], book["id"]);
    }
}

#[tokio::test]
async fn what_is_wrong_is_a_problem_before_the_stream_starts() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    api.plain_book("other", 10_000, 0).await;
    let with = |token: &Value| api.with_token(token["token"].as_str().unwrap());

    let bare = Answer::of(api.http.get(format!("{}{EVENTS}", api.url))).await;
    assert!(bare.headers.contains_key("www-authenticate"));
    assert_eq!(bare.problem(401), "unauthorized");
    let wrong = api.with_token("pt_wrong").get(EVENTS).await;
    assert!(wrong.headers.contains_key("www-authenticate"));
    assert_eq!(wrong.problem(401), "unauthorized");

    let writer = with(&token(&api, "b", "write").await);
    assert_eq!(writer.get(EVENTS).await.problem(403), "forbidden");
    let stranger = with(&token(&api, "other", "read").await);
    let hidden = stranger.get(EVENTS).await;
    let missing = stranger.get("/v1/books/no-such-book/events").await;
    assert_eq!(hidden.text, missing.text, "they cannot be told apart");
    assert_eq!(hidden.problem(404), "not_found");

    let reader = with(&token(&api, "b", "read").await);
    for query in [
        "last_event_id=1.5",
        "lastEventId=%2B5",
        "snapshot=yes",
        "heartbeat=no",
    ] {
        let answer = reader.get(&format!("{EVENTS}?{query}")).await;
        assert!(answer.problem(400).starts_with("bad_"), "{query}");
    }
}
