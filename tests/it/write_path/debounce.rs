use serde_json::{Value, json};

use crate::harness::load::{counted, totals};
use crate::harness::steps::{cure, metric, poison};
use crate::harness::{Api, Server, start};

async fn book(api: &Api, settings: Value) {
    let rollups = json!([
        {"name": "pages", "group_by": "page", "window": {"kind": "tumbling", "size_ms": 60_000},
         "aggregate": "count"},
        {"name": "sums", "group_by": "book", "window": {"kind": "tumbling", "size_ms": 60_000},
         "aggregate": "sum"}
    ]);
    let fields = json!({"title": "b", "rollups": rollups, "settings": settings});
    api.book("b", fields).await;
}

fn by(visitor: &str, at: i64) -> Value {
    json!({"page": "/a", "visitor": visitor, "at": at})
}

#[tokio::test]
async fn six_clicks_of_a_reader_within_the_time_count_once() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, json!({"debounce_ms": 1000})).await;
    // In one request, in several, and by the next request.
    let first = api
        .clicks(
            "b",
            json!([by("v", 5000), by("v", 5100), by("w", 5100), by("v", 5999)]),
        )
        .await;
    assert_eq!(
        (&first["on_time"], &first["filtered"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(
        first["exceptions"][0],
        json!({"index": 1, "id": first["exceptions"][0]["id"], "status": "filtered", "reason": "debounced"})
    );
    for at in [4500, 5000, 5500] {
        let next = api.clicks("b", by("v", at)).await;
        assert_eq!(
            (&next["on_time"], &next["filtered"]),
            (&json!(0), &json!(1))
        );
        assert_eq!(
            next["position"], first["position"],
            "nothing that was counted changed"
        );
    }
    // The time of event decides.
    assert_eq!(api.clicks("b", by("v", 6000)).await["on_time"], 1);
    assert_eq!(
        api.clicks("b", json!({"page": "/a", "at": 6000})).await["on_time"],
        1
    );
    let totals = totals(&api, "b").await;
    assert_eq!(
        (&totals["received"], &totals["filtered"]),
        (&json!(9), &json!(5))
    );
    assert_eq!(counted(&api, "b").await, 4);
    // What is filtered is not in the log.
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 4);
    assert_eq!(metric(&api, "pagetide_clicks_filtered_total").await, 5);
}

#[tokio::test]
async fn a_click_that_is_sent_again_is_a_duplicate_and_not_filtered() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, json!({"debounce_ms": 1000})).await;
    let click = json!({"id": "x", "page": "/a", "visitor": "v", "at": 5000});
    assert_eq!(api.clicks("b", click.clone()).await["on_time"], 1);
    assert_eq!(api.clicks("b", click.clone()).await["duplicates"], 1);
    // Another process has not seen the first, but the log has it.
    let other = Server::start(&database).await;
    assert_eq!(other.api().clicks("b", click).await["duplicates"], 1);
    assert_eq!(other.api().clicks("b", by("v", 5500)).await["filtered"], 1);
}

#[tokio::test]
async fn values_that_repeat_are_left_out() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({"value_debounce_ms": 1000})).await;
    let clicks = [7, 7, 8, 8, 8]
        .map(|value| json!({"page": "/a", "visitor": "v", "at": 5000, "value": value}));
    let mut receipt = api.clicks("b", json!(clicks[..3])).await;
    assert_eq!(receipt["filtered"], 1);
    receipt = api.clicks("b", json!(clicks[3..])).await;
    assert_eq!(receipt["filtered"], 2);
    assert_eq!(api.counts("b", "sums").await[0]["value"], 15);
}

#[tokio::test]
async fn a_click_that_failed_and_is_sent_again_counts() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, json!({"debounce_ms": 1000})).await;
    poison(&database).await;
    let click = json!({"id": "x", "page": "/poison", "visitor": "v", "at": 5000});
    let refused = api.post("/v1/books/b/clicks", &click).await;
    assert_eq!(refused.problem(422), "all_rejected");
    cure(&database).await;
    assert_eq!(api.clicks("b", click).await["on_time"], 1);
}

#[tokio::test]
async fn a_negative_time_is_refused_and_a_change_holds_from_the_next_click() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let bad = json!({"settings": {"debounce_ms": -1}});
    assert_eq!(api.patch("/v1/books/b", &bad).await.problem(422), "invalid");
    assert_eq!(
        api.clicks("b", json!([by("v", 5000), by("v", 5000)])).await["on_time"],
        2
    );
    let on = json!({"settings": {"debounce_ms": 1000}});
    api.patch("/v1/books/b", &on).await.expect(200);
    assert_eq!(
        api.clicks("b", json!([by("v", 5000), by("v", 5000)])).await["filtered"],
        1
    );
}
