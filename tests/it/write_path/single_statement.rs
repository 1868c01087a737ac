//! The short way of a commit: what the lane remembers of a book is used as long as it is true.

use serde_json::json;

use crate::harness::load::{hold, waiting};
use crate::harness::steps::{metric, single_clicks};
use crate::harness::{Api, Server, start, until};

async fn single_statements(api: &Api) -> i64 {
    metric(api, "pagetide_commits_single_statement_total").await
}

/// What a reader is told of the one window of the plain book, frame by frame.
async fn told(api: &Api, book: &str, upto: i64) -> Vec<i64> {
    let mut stream = api.follow(book, "?last_event_id=earliest", None).await;
    stream.expect("hello").await;
    let frames = stream.through(upto).await;
    let values = frames.iter().map(|frame| {
        let values = frame.data["panes"][0]["values"].as_object().unwrap();
        values.values().map(|value| value.as_i64().unwrap()).sum()
    });
    values.collect()
}

#[tokio::test]
async fn who_wrote_last_needs_one_statement() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    assert_eq!(single_clicks(&api, "b", 20).await, 20);
    // The first two find out that nobody else writes.
    assert!(single_statements(&api).await >= 15);
    assert_eq!(told(&api, "b", 20).await, (1..=20).collect::<Vec<_>>());

    // A click that was sent before is found out all the same.
    let click = json!([{"id": "twice", "page": "/a", "at": 1}]);
    api.clicks("b", click.clone()).await;
    let again = api.clicks("b", click).await;
    assert_eq!(again["duplicates"], 1);
    assert_eq!(again["position"], 21);
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["totals"]["on_time"], 21);
    assert_eq!(book["revision"], book["totals"]["received"]);
}

#[tokio::test]
async fn who_was_overtaken_reads_again() {
    let (database, server) = start().await;
    let api = server.api();
    let other = Server::start(&database).await;
    api.plain_book("b", 60_000, 60_000).await;
    let mut expected = single_clicks(&api, "b", 10).await;
    for round in 0..5_i64 {
        // Between two of its commits.
        expected += 2;
        assert_eq!(single_clicks(&other.api(), "b", 2).await, expected);
        // And while its statement waits for the row.
        expected += 5;
        assert_eq!(single_clicks(&api, "b", 5).await, expected);
        let before = single_statements(&api).await;
        let mut holder = hold(&database, "b").await;
        let moved = "UPDATE books SET revision = revision + 1, received = received + 1";
        sqlx::query(moved).execute(&mut holder).await.unwrap();
        let waits = tokio::spawn({
            let api = api.clone();
            async move { single_clicks(&api, "b", 1).await }
        });
        until("it waits for the row", async || {
            (waiting(&database).await == 1).then_some(())
        })
        .await;
        sqlx::query("COMMIT").execute(&mut holder).await.unwrap();
        expected += 1;
        assert_eq!(waits.await.unwrap(), expected, "round {round}");
        let after = single_statements(&api).await;
        assert_eq!(after, before, "it was not the row that it knew");
    }
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["totals"]["on_time"], expected);
    assert_eq!(book["totals"]["received"], expected + 5, "nothing is lost");
    assert_eq!(
        told(&api, "b", expected).await,
        (1..=expected).collect::<Vec<_>>()
    );
}
