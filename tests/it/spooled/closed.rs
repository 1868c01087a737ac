use serde_json::json;

use super::{Folder, away, back, check, click, drained, server, spool};
use crate::harness::load::{counted, totals};
use crate::harness::steps::metric;
use crate::harness::{Database, start, until};

#[tokio::test]
async fn a_closed_book_is_not_at_rest_while_clicks_of_it_wait() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let server = server(&database, &folder).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("counted", "/a")).await;
    away(&database).await;
    for id in ["x", "y", "z"] {
        spool(&api, "b", &click(id, "/a")).await;
    }
    let closed = api.post("/v1/books/b/close", &json!({})).await.expect(200);
    assert_eq!(
        (&closed["status"], &closed["at_rest"]),
        (&json!("closed"), &json!(false))
    );
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(snapshot["at_rest"], false);
    let position = closed["position"].as_i64().unwrap().to_string();
    // Not 204, and not the end: something is still to come.
    let mut stream = api.follow("b", "", Some(&position)).await;
    assert_eq!(stream.expect("hello").await.data["at_rest"], false);
    assert_eq!(check(&api).await["detail"], "3 clicks wait in it");
    back(&database).await;
    // Kept, and dropped.
    while stream.expect("counts").await.data["totals"]["dropped"] != 3 {}
    let end = stream.expect("end").await;
    assert_eq!(end.data["reason"], "at_rest");
    drained(&api).await;
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["at_rest"], true);
    assert_eq!(totals(&api, "b").await["dropped"], 3);
    assert_eq!(counted(&api, "b").await, 1);
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 4);
    // Whoever comes now is told to stop.
    let position = book["position"].as_i64().unwrap().to_string();
    let request = api.request(reqwest::Method::GET, "/v1/books/b/events");
    let answer = request
        .header("last-event-id", position)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 204);
}

#[tokio::test]
async fn clicks_of_a_book_that_was_deleted_meanwhile_are_discarded() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let server = server(&database, &folder).await;
    let api = server.api();
    for book in ["gone", "stays"] {
        api.plain_book(book, 60_000, 60_000).await;
        api.clicks(book, click("0", "/a")).await;
    }
    away(&database).await;
    for id in ["1", "2"] {
        spool(&api, "gone", &click(id, "/a")).await;
        spool(&api, "stays", &click(id, "/a")).await;
    }
    api.delete("/v1/books/gone").await.expect(204);
    back(&database).await;
    drained(&api).await;
    assert_eq!(counted(&api, "stays").await, 3);
    assert_eq!(
        metric(&api, "pagetide_spool_discarded_clicks_total").await,
        2
    );
}

#[tokio::test]
async fn a_book_whose_clicks_wait_is_not_idle() {
    let database = Database::create().await;
    let folder = Folder::new();
    let server = server(&database, &folder).await;
    let api = server.api();
    let rollup = json!({"name": "pages", "group_by": "page", "aggregate": "count", "lateness_ms": 0,
                        "window": {"kind": "tumbling", "size_ms": 1000}});
    let settings = json!({"delay_ms": 0, "idle_timeout_ms": 1, "max_future_ms": null});
    let fields = json!({"title": "b", "rollups": [rollup], "settings": settings});
    api.book("b", fields).await;
    let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let now = database.number(clock).await;
    let at_now = |id: &str| json!({"id": id, "page": "/a", "at": now});
    api.clicks("b", at_now("x")).await;
    away(&database).await;
    spool(&api, "b", &at_now("y")).await;
    // Idleness is looked for every second; taken now, it would close the window.
    until("the window has ended two looks ago", async || {
        (database.number(clock).await > now + 3500).then_some(())
    })
    .await;
    back(&database).await;
    drained(&api).await;
    let totals = totals(&api, "b").await;
    assert_eq!(
        (&totals["on_time"], &totals["dropped"]),
        (&json!(2), &json!(0))
    );
    // Now it is.
    until("the window fires by itself", async || {
        let counts = api.counts("b", "pages").await;
        (counts[0]["state"] == "closed").then_some(())
    })
    .await;
}
