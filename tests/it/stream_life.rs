//! How a stream lives and ends: heartbeats, goodbyes, many on one connection, clients that die, and
//! frames that nobody announced.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::api::Answer;
use crate::harness::raw::Raw;
use crate::harness::sse::Events;
use crate::harness::steps::{execute, frame_by_hand, metric, single_clicks, streams_open, token};
use crate::harness::{self, Api, Database, Server, until};

const EVENTS: &str = "/v1/books/b/events";

async fn start_with(env: &[(&str, &str)]) -> (Database, Server, Api) {
    let database = Database::create().await;
    let server = Server::start_with(&database, env).await;
    let api = server.api();
    api.plain_book("b", 10_000, 3_600_000).await;
    (database, server, api)
}

async fn follow(api: &Api) -> Events {
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    events
}

#[tokio::test]
async fn a_heartbeat_is_one_comment_line_with_no_blank_one() {
    let (_database, _server, api) = start_with(&[("PAGETIDE_HEARTBEAT_MS", "50")]).await;
    let mut raw = Raw::get(&api, EVENTS, "").await;
    raw.head().await;
    raw.chunk().await.unwrap();
    for _ in 0..3 {
        assert_eq!(raw.chunk().await.unwrap(), ":hb\n");
    }
    single_clicks(&api, "b", 1).await;
    let mut next = raw.chunk().await.unwrap();
    while next == ":hb\n" {
        next = raw.chunk().await.unwrap();
    }
    assert!(next.starts_with("event: counts\n"), "{next}");
}

#[tokio::test]
async fn a_heartbeat_comment_makes_a_parser_dispatch_nothing() {
    let (_database, _server, api) = start_with(&[("PAGETIDE_HEARTBEAT_MS", "20")]).await;
    let mut events = follow(&api).await;
    let mut raw = Raw::get(&api, EVENTS, "").await;
    raw.head().await;
    raw.chunk().await.unwrap();
    // Two streams of the same age: while the one gets ten heartbeats, the other does too.
    for _ in 0..10 {
        assert_eq!(raw.chunk().await.unwrap(), ":hb\n");
    }
    let position = single_clicks(&api, "b", 1).await;
    assert_eq!(events.expect("counts").await.position(), Some(position));
}

#[tokio::test]
async fn heartbeats_as_events_carry_the_cursor() {
    let (_database, _server, api) = start_with(&[("PAGETIDE_HEARTBEAT_MS", "50")]).await;
    single_clicks(&api, "b", 2).await;
    let mut events = api.follow("b", "?heartbeat=event", Some("2")).await;
    events.expect("hello").await;
    for _ in 0..2 {
        let heartbeat = events.expect("heartbeat").await;
        assert_eq!(heartbeat.id, "2");
        assert_eq!(heartbeat.data["position"], 2);
        assert!(
            heartbeat.data["server_time"]
                .as_str()
                .unwrap()
                .ends_with('Z')
        );
        assert_eq!(heartbeat.data.as_object().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn the_first_byte_comes_at_once_on_a_quiet_book() {
    let (_database, _server, api) = start_with(&[]).await;
    let began = Instant::now();
    let mut raw = Raw::get(&api, EVENTS, "").await;
    raw.head().await;
    assert!(raw.chunk().await.unwrap().starts_with("event: hello"));
    // A tenth of it is usual; the heartbeat would come after 15 s.
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_stream_past_its_age_says_bye_and_goes_on_elsewhere() {
    let (_database, _server, api) = start_with(&[("PAGETIDE_STREAM_MAX_AGE_MS", "1000")]).await;
    single_clicks(&api, "b", 3).await;
    let began = Instant::now();
    let mut events = follow(&api).await;
    let bye = events.expect("bye").await;
    assert!(
        began.elapsed() >= Duration::from_millis(800),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(bye.data, json!({"reason": "max_age"}));
    assert!((1000..=3000).contains(&bye.retry_ms.unwrap()));
    assert_eq!(bye.id, "3");
    assert!(events.next().await.is_none());
    single_clicks(&api, "b", 1).await;
    let mut events = api.follow("b", "", Some(&bye.id)).await;
    events.expect("hello").await;
    assert_eq!(events.expect("counts").await.position(), Some(4));
}

#[tokio::test]
async fn a_busy_stream_past_its_age_says_bye_too() {
    let (_database, _server, api) = start_with(&[("PAGETIDE_STREAM_MAX_AGE_MS", "500")]).await;
    let mut events = follow(&api).await;
    let busy = async {
        loop {
            single_clicks(&api, "b", 1).await;
        }
    };
    let bye = async {
        loop {
            let event = events.next().await.expect("the stream ended");
            if event.name == "bye" {
                return event;
            }
        }
    };
    let bye = tokio::select! { bye = bye => bye, () = busy => unreachable!() };
    assert_eq!(bye.data["reason"], "max_age");
}

#[tokio::test]
async fn one_stream_too_many_is_told_bye_with_200_and_is_counted() {
    let (_database, _server, api) = start_with(&[("PAGETIDE_MAX_STREAMS", "1")]).await;
    single_clicks(&api, "b", 3).await;
    let first = follow(&api).await;
    for turned_away in 1..=2 {
        let mut second = api.follow("b", "", Some("2")).await;
        assert_eq!(
            second.headers["content-type"],
            "text/event-stream; charset=utf-8"
        );
        assert_eq!(second.headers["cache-control"], "no-store, no-transform");
        let bye = second.expect("bye").await;
        assert_eq!(bye.data, json!({"reason": "overloaded"}));
        assert!((1000..=3000).contains(&bye.retry_ms.unwrap()));
        assert!(second.next().await.is_none());
        let counted = metric(&api, "pagetide_streams_overloaded_total").await;
        assert_eq!(counted, turned_away);
    }
    drop(first);
    until("the first stream is gone", || async {
        (streams_open(&api, "b").await == 0).then_some(())
    })
    .await;
    let mut third = api.follow("b", "", Some("2")).await;
    third.expect("hello").await;
    assert_eq!(third.expect("counts").await.position(), Some(3));
}

#[tokio::test]
async fn being_turned_away_does_not_cost_a_client_its_cursor() {
    // Clients there are that take an event without an id for one that wipes theirs.
    let (_database, _server, api) = start_with(&[("PAGETIDE_MAX_STREAMS", "1")]).await;
    single_clicks(&api, "b", 3).await;
    let _first = follow(&api).await;
    let mut second = api.follow("b", "", Some("2")).await;
    assert_eq!(second.expect("bye").await.id, "2");
}

#[tokio::test]
async fn deleting_the_book_ends_its_streams() {
    let (_database, _server, api) = start_with(&[]).await;
    single_clicks(&api, "b", 2).await;
    let mut events = follow(&api).await;
    api.delete("/v1/books/b").await.expect(204);
    let end = events.expect("end").await;
    assert_eq!(end.data, json!({"reason": "deleted"}));
    assert_eq!(end.id, "2");
    assert!(events.next().await.is_none());
    assert_eq!(api.get(EVENTS).await.problem(404), "not_found");
}

#[tokio::test]
async fn revoking_the_token_ends_its_streams_and_no_others() {
    let (_database, _server, api) = start_with(&[]).await;
    let new = token(&api, "b", "read").await;
    let reader = api.with_token(new["token"].as_str().unwrap());
    let mut ends = follow(&reader).await;
    let mut stays = follow(&api).await;
    let path = format!("/v1/tokens/{}", new["id"].as_str().unwrap());
    api.delete(&path).await.expect(204);
    ends.expect("session_ended").await;
    assert!(ends.next().await.is_none());
    assert_eq!(reader.get(EVENTS).await.problem(401), "unauthorized");
    single_clicks(&api, "b", 1).await;
    stays.expect("counts").await;
}

#[tokio::test]
async fn a_token_that_expires_ends_its_streams() {
    let (_database, _server, api) = start_with(&[]).await;
    let new = json!({"books": ["b"], "scopes": ["read"], "expires_in_ms": 1500});
    let new = api.post("/v1/tokens", &new).await.expect(201);
    let reader = api.with_token(new["token"].as_str().unwrap());
    let mut events = follow(&reader).await;
    events.expect("session_ended").await;
    assert!(events.next().await.is_none());
    assert_eq!(reader.get(EVENTS).await.problem(401), "unauthorized");
}

#[tokio::test]
async fn twenty_streams_and_a_get_share_one_http2_connection() {
    let (_database, _server, api) = start_with(&[]).await;
    let builder = reqwest::Client::builder().http2_prior_knowledge();
    let http2 = Api {
        http: builder.build().unwrap(),
        ..api.clone()
    };
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(follow(&http2).await);
    }
    let answer = Answer::of(http2.request(Method::GET, "/v1/books/b")).await;
    assert_eq!(answer.expect(200)["streams_open"], 20);
    let position = single_clicks(&http2, "b", 1).await;
    for stream in &mut streams {
        assert_eq!(stream.expect("counts").await.position(), Some(position));
    }
}

/// A hundred clients come, get their first event, and are gone without a word.
async fn a_hundred_come_and_die(api: &Api) {
    let mut sockets = Vec::new();
    for _ in 0..100 {
        sockets.push(Raw::get(api, EVENTS, "").await);
    }
    for socket in &mut sockets {
        socket.head().await;
        let first = socket.chunk().await.unwrap();
        assert!(first.starts_with("event: hello\n"), "{first}");
    }
    assert_eq!(streams_open(api, "b").await, 100);
    drop(sockets);
    until("the book has no stream left", || async {
        (streams_open(api, "b").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn clients_that_die_are_noticed_and_make_room_for_others() {
    let env = [
        ("PAGETIDE_HEARTBEAT_MS", "200"),
        ("PAGETIDE_MAX_STREAMS", "100"),
    ];
    let (_database, _server, api) = start_with(&env).await;
    for _ in 0..3 {
        a_hundred_come_and_die(&api).await;
    }
}

#[tokio::test]
async fn the_gauge_of_open_streams_is_back_at_0_when_all_are_gone() {
    let (_database, _server, api) = start_with(&[("PAGETIDE_HEARTBEAT_MS", "200")]).await;
    // Again and again, for what is set by many at once may end up wrong.
    for round in 1..=40 {
        a_hundred_come_and_die(&api).await;
        let mut gauge = -1;
        for _ in 0..50 {
            gauge = metric(&api, "pagetide_streams_open").await;
            if gauge == 0 {
                break;
            }
        }
        assert_eq!(gauge, 0, "round {round}");
    }
}

#[tokio::test]
async fn the_book_says_how_many_streams_are_open() {
    let (_database, _server, api) = start_with(&[]).await;
    api.plain_book("other", 10_000, 0).await;
    let first = follow(&api).await;
    let _second = follow(&api).await;
    assert_eq!(streams_open(&api, "b").await, 2);
    assert_eq!(streams_open(&api, "other").await, 0);
    drop(first);
    until("one is left", || async {
        (streams_open(&api, "b").await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn frames_that_nobody_announced_are_found_within_two_seconds() {
    let (database, _server, api) = start_with(&[]).await;
    let mut events = follow(&api).await;
    for position in 1..=2 {
        let began = Instant::now();
        frame_by_hand(&database, "note", "").await;
        let event = events.expect("note").await;
        assert_eq!(event.position(), Some(position));
        assert_eq!(event.data["by"], "hand");
        assert!(
            began.elapsed() < Duration::from_millis(2500),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn streams_get_what_another_process_commits_though_the_listener_is_killed() {
    let (database, server) = harness::start().await;
    let other = Server::start(&database).await;
    let (api, other) = (server.api(), other.api());
    api.plain_book("b", 10_000, 3_600_000).await;
    let mut events = follow(&api).await;
    let mut expected = 0;
    for _ in 0..3 {
        execute(
            &database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE query ILIKE 'listen %' AND pid <> pg_backend_pid()",
        )
        .await;
        single_clicks(&other, "b", 5).await;
        for _ in 0..5 {
            expected += 1;
            assert_eq!(events.expect("counts").await.position(), Some(expected));
        }
    }
    let closed = other
        .post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let last = closed["position"].as_i64().unwrap();
    events.through(last).await;
    events.expect("end").await;
}
