//! Who follows a book that is counted again: told of the progress, of the new counts in one go, and of
//! the end only when it is one.

use serde_json::{Value, json};

use super::{DAY_MS, begin, days_book, ended, fill, in_log, recount, run, shown};
use crate::harness::load::hold;
use crate::harness::sse::{Event, Events};
use crate::harness::steps::Known;
use crate::harness::{self, Answer, Api, Database, Server};

const STORED: i64 = 100_000;

async fn filled() -> (Database, Server, Api) {
    let (database, server) = harness::start().await;
    let api = server.api();
    days_book(&api, "b").await;
    fill(&database, "b", STORED).await;
    let click = json!({"page": "/p0", "at": 10 * DAY_MS - 1});
    api.clicks("b", click).await;
    (database, server, api)
}

async fn position(api: &Api) -> String {
    let book = api.get("/v1/books/b").await.expect(200);
    book["position"].to_string()
}

/// What a reader with this cursor is answered.
async fn status_of_events(api: &Api, cursor: &str) -> u16 {
    let request = api.request(reqwest::Method::GET, "/v1/books/b/events");
    let response = request.header("last-event-id", cursor).send().await;
    response.unwrap().status().as_u16()
}

/// Reads on up to and with the event of this name.
async fn up_to(events: &mut Events, name: &str) -> Vec<Event> {
    let mut read = Vec::new();
    loop {
        let event = events.next().await.expect("the stream ended");
        let there = event.name == name;
        read.push(event);
        if there {
            return read;
        }
    }
}

#[tokio::test]
async fn readers_see_a_recount_grow_and_get_the_new_counts_in_one_go() {
    let (database, _server, api) = filled().await;
    let mut events = api.follow("b", "?snapshot=1", None).await;
    up_to(&mut events, "snapshot").await;
    let id = begin(&api, "b").await;
    let read = up_to(&mut events, "snapshot").await;
    let names: Vec<&str> = read.iter().map(|event| &*event.name).collect();
    let progress = read.iter().filter(|event| event.name == "progress");
    let processed: Vec<i64> = progress
        .map(|event| {
            assert_eq!(event.data["run"]["id"], id);
            assert_eq!(event.data["run"]["kind"], "recount");
            event.data["run"]["processed"].as_i64().unwrap()
        })
        .collect();
    eprintln!("processed {processed:?}");
    assert!(
        !processed.is_empty() && processed.is_sorted(),
        "{processed:?}"
    );
    assert!(!names.contains(&"counts"), "{names:?}");
    let resync = &read[read.len() - 2];
    assert_eq!(resync.name, "resync_required", "{names:?}");
    assert_eq!(resync.data["reason"], "replaced");
    let snapshot = &read[read.len() - 1].data;
    let fresh = api.get("/v1/books/b/snapshot").await.expect(200);
    assert!(Known::of_snapshot(snapshot) == Known::of_snapshot(&fresh));
    assert_eq!(run(&api, "b", &id).await["state"], "done");
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
    // The frame that is the barrier says why.
    let barrier = database.number("SELECT barrier FROM books").await;
    let mut conn = database.connect().await;
    let frame = sqlx::query_scalar("SELECT data FROM frames WHERE position = $1");
    let frame: String = frame.bind(barrier).fetch_one(&mut conn).await.unwrap();
    let frame: Value = serde_json::from_str(&frame).unwrap();
    assert_eq!(
        (&frame["type"], &frame["reason"]),
        (&"status".into(), &"recounted".into())
    );
    // And goes on as ever.
    let taken = api
        .clicks("b", json!({"page": "/p0", "at": 10 * DAY_MS - 1}))
        .await;
    assert_eq!(
        events.expect("counts").await.position(),
        taken["position"].as_i64()
    );
}

#[tokio::test]
async fn a_closed_book_that_is_counted_again_ends_when_that_is_done() {
    let (database, _server, api) = filled().await;
    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let at_rest = position(&api).await;
    assert_eq!(status_of_events(&api, &at_rest).await, 204);

    let id = begin(&api, "b").await;
    // It cannot swap while somebody has the book's row.
    let mut held = hold(&database, "b").await;
    let cursor = position(&api).await;
    assert_eq!(run(&api, "b", &id).await["state"], "running");
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["at_rest"], false, "{book}");
    let mut there = api.follow("b", "", Some(&cursor)).await;
    assert_eq!(there.expect("hello").await.data["at_rest"], false);
    let mut behind = api.follow("b", "", Some(&at_rest)).await;
    assert_eq!(behind.expect("hello").await.data["at_rest"], false);
    sqlx::raw_sql("ROLLBACK").execute(&mut held).await.unwrap();

    for events in [&mut there, &mut behind] {
        let read = up_to(events, "end").await;
        let names: Vec<&str> = read.iter().map(|event| &*event.name).collect();
        assert!(names.contains(&"resync_required"), "{names:?}");
        assert_eq!(run(&api, "b", &id).await["state"], "done");
        assert!(events.next().await.is_none());
    }
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(
        (&book["at_rest"], &book["status"]),
        (&true.into(), &"closed".into())
    );
    assert_eq!(status_of_events(&api, &position(&api).await).await, 204);
    let counts = shown(&api, "b").await;
    assert_eq!(counts, in_log(&database, "b").await);
    // Closed, it stays at the end of time.
    assert_eq!(book["watermark"], "9999-12-31T23:59:59.999Z");
    let states = api.counts("b", "pages").await;
    assert!(states.iter().all(|window| window["state"] == "closed"));
}

#[tokio::test]
async fn a_closed_book_whose_server_is_killed_before_the_last_frame_gets_it_all_the_same() {
    let (database, server, api) = filled().await;
    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let at_rest = position(&api).await;
    let id = begin(&api, "b").await;
    let mut held = hold(&database, "b").await;
    let mut follower = api.follow("b", "", Some(&at_rest)).await;
    follower.expect("hello").await;
    server.kill().await;
    // Nobody is left that could bring the end: the next one has to.
    let server = Server::start(&database).await;
    let api = server.api();
    let cursor = position(&api).await;
    assert_eq!(status_of_events(&api, &cursor).await, 200);
    let mut events = api.follow("b", "", Some(&at_rest)).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut held).await.unwrap();
    drop(held);
    up_to(&mut events, "end").await;
    assert!(events.next().await.is_none());
    let done = ended(&api, "b", &id).await;
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(status_of_events(&api, &position(&api).await).await, 204);
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
}

#[tokio::test]
async fn a_cancelled_recount_of_a_closed_book_ends_it_again() {
    let (database, _server, api) = filled().await;
    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let before = shown(&api, "b").await;
    let id = begin(&api, "b").await;
    let mut held = hold(&database, "b").await;
    let mut events = api.follow("b", "", Some(&position(&api).await)).await;
    events.expect("hello").await;
    let cancel = {
        let (api, path) = (api.clone(), format!("/v1/books/b/runs/{id}/cancel"));
        tokio::spawn(async move { api.post(&path, &Value::Null).await })
    };
    sqlx::raw_sql("ROLLBACK").execute(&mut held).await.unwrap();
    let answer: Answer = cancel.await.unwrap();
    let run = answer.expect(200);
    up_to(&mut events, "end").await;
    assert!(events.next().await.is_none());
    // Whichever came first.
    if run["state"] == "cancelled" {
        assert_eq!(shown(&api, "b").await, before);
    }
    assert_ne!(run["state"], "running", "{run}");
    assert_eq!(status_of_events(&api, &position(&api).await).await, 204);
    recount(&api, "b").await;
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
}
