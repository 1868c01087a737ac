//! A recount goes on after its server was killed, and leaves everything as it was where it is cancelled.

use std::time::Instant;

use rand::RngExt;
use serde_json::{Value, json};

use super::{
    DAY_MS, LONG, begin, days_book, ended, fill, in_log, recount, run, shown, standing, swept,
};
use crate::harness::{Database, Server, chance};

const STORED: i64 = 200_000;
const KILLS: usize = 6;

/// How many clicks the newest run is done with; none if it has ended.
async fn processed(database: &Database) -> Option<i64> {
    let mut conn = database.connect().await;
    let sql = "SELECT processed FROM runs WHERE state = 'running'";
    sqlx::query_scalar(sql)
        .fetch_optional(&mut conn)
        .await
        .unwrap()
}

/// Waits until the run is done with so many clicks, or has ended.
async fn reached(database: &Database, clicks: i64) {
    let began = Instant::now();
    while processed(database).await.is_some_and(|done| done < clicks) {
        assert!(
            began.elapsed() < LONG,
            "the recount does not get to {clicks}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_recount_whose_server_is_killed_again_and_again_goes_on_where_it_was() {
    let database = Database::create().await;
    let mut server = Server::start(&database).await;
    days_book(&server.api(), "b").await;
    fill(&database, "b", STORED).await;
    let last = json!({"page": "/p0", "at": 10 * DAY_MS - 1});
    server.api().clicks("b", last).await;
    let all = STORED + 1;
    let mut random = chance();
    let mut moments: Vec<i64> = (0..KILLS).map(|_| random.random_range(0..all)).collect();
    moments.sort_unstable();

    let id = begin(&server.api(), "b").await;
    let mut killed_at = Vec::new();
    for moment in moments {
        reached(&database, moment).await;
        // Somewhere between two steps, or within one.
        let pause = random.random_range(0..20);
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        server.kill().await;
        let there = processed(&database).await;
        killed_at.push(there);
        server = Server::start(&database).await;
        let api = server.api();
        // What was counted before still holds, and clicks are taken.
        let clicks = json!([{"page": "/p0", "at": 10 * DAY_MS - 1}]);
        assert_eq!(api.clicks("b", clicks).await["on_time"], 1);
        if let Some(before) = there {
            let now = run(&api, "b", &id).await["processed"].as_i64().unwrap();
            assert!(now >= before, "it began anew: {now} after {before}");
        }
    }
    eprintln!("killed at {killed_at:?} of {all}");
    let midway = killed_at.iter().flatten().filter(|done| **done > 0);
    assert!(midway.count() >= 2, "too few were hit: {killed_at:?}");
    let api = server.api();
    let done = ended(&api, "b", &id).await;
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
    swept(&database).await;
}

#[tokio::test]
async fn a_server_that_is_ended_leaves_its_recount_to_another() {
    let database = Database::create().await;
    let (first, second) = (
        Server::start(&database).await,
        Server::start(&database).await,
    );
    days_book(&first.api(), "b").await;
    fill(&database, "b", STORED).await;
    let id = begin(&first.api(), "b").await;
    reached(&database, STORED / 10).await;
    assert!(first.terminate().await.success());
    let api = second.api();
    let done = ended(&api, "b", &id).await;
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
    swept(&database).await;
}

#[tokio::test]
async fn a_cancelled_recount_has_changed_nothing() {
    let database = Database::create().await;
    let server = Server::start(&database).await;
    let api = server.api();
    days_book(&api, "b").await;
    fill(&database, "b", STORED).await;
    let clicks = (0..100).map(|n| json!({"page": format!("/p{n}"), "at": 10 * DAY_MS - 1 - n}));
    api.clicks("b", clicks.collect()).await;
    let (before, counts) = (standing(&api, "b").await, shown(&api, "b").await);
    assert_eq!(counts.values().sum::<i64>(), 100);

    let id = begin(&api, "b").await;
    reached(&database, 1).await;
    let path = format!("/v1/books/b/runs/{id}/cancel");
    let cancelled = api.post(&path, &Value::Null).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    assert!(cancelled["finished_at"].is_string(), "{cancelled}");
    assert!(
        cancelled["processed"].as_i64().unwrap() < STORED,
        "{cancelled}"
    );
    assert_eq!(standing(&api, "b").await, before);
    assert_eq!(shown(&api, "b").await, counts);
    swept(&database).await;
    assert_eq!(run(&api, "b", &id).await["state"], "cancelled");
    assert_eq!(standing(&api, "b").await, before);
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["at_rest"], false, "it is not closed");

    // The next one begins anew, and does all.
    let done = recount(&api, "b").await;
    assert_eq!(done["processed"], STORED + 100, "{done}");
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
    swept(&database).await;
}

/// Cancelled by another server than the one that counts.
#[tokio::test]
async fn a_recount_is_cancelled_through_any_server() {
    let database = Database::create().await;
    let (first, second) = (
        Server::start(&database).await,
        Server::start(&database).await,
    );
    days_book(&first.api(), "b").await;
    fill(&database, "b", STORED).await;
    let id = begin(&first.api(), "b").await;
    reached(&database, 1).await;
    let path = format!("/v1/books/b/runs/{id}/cancel");
    let cancelled = second.api().post(&path, &Value::Null).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    swept(&database).await;
    assert_eq!(shown(&first.api(), "b").await, super::Days::new());
    // And another may begin.
    begin(&first.api(), "b").await;
}
