use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Folder, away, back, click, drained, server, spool};
use crate::harness::load::{counted, hold, totals, views};
use crate::harness::steps::{cure, poison};
use crate::harness::{start, until};

#[tokio::test]
async fn newer_clicks_of_a_book_come_after_those_that_wait() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let server = server(&database, &folder).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("0", "/0")).await;
    away(&database).await;
    for n in 1..=20 {
        spool(&api, "b", &click(&n.to_string(), &format!("/{n}"))).await;
    }
    back(&database).await;
    // Sent as soon as the database takes clicks again, whether or not the drain has noticed.
    for n in 21..=40 {
        let body = click(&n.to_string(), &format!("/{n}"));
        let answer = api.post("/v1/books/b/clicks", &body).await;
        assert!(
            [200, 202].contains(&answer.status.as_u16()),
            "{}",
            answer.text
        );
    }
    drained(&api).await;
    assert_eq!(counted(&api, "b").await, 41);
    let out_of_order = "SELECT count(*) FROM (
            SELECT substr(page, 2)::int < lag(substr(page, 2)::int) OVER (ORDER BY seq) AS back
            FROM clicks) c WHERE back";
    assert_eq!(database.number(out_of_order).await, 0);
}

#[tokio::test]
async fn a_failed_batch_and_then_another_arrive_in_order() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let server = server(&database, &folder).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("0", "/0")).await;
    away(&database).await;
    spool(&api, "b", &json!([click("1", "/1"), click("2", "/2")])).await;
    spool(&api, "b", &click("3", "/3")).await;
    back(&database).await;
    drained(&api).await;
    let pages = "SELECT string_agg(page, '' ORDER BY seq) = '/0/1/2/3' FROM clicks";
    let in_order = format!("SELECT ({pages})::int::bigint");
    assert_eq!(database.number(&in_order).await, 1);
}

#[tokio::test]
async fn a_click_that_cannot_be_committed_does_not_stop_the_drain() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let server = server(&database, &folder).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("0", "/a")).await;
    away(&database).await;
    let batch: Vec<Value> = ["/a", "/poison", "/a", "/b"]
        .iter()
        .enumerate()
        .map(|(n, page)| click(&format!("p{n}"), page))
        .collect();
    spool(&api, "b", &json!(batch)).await;
    poison(&database).await;
    back(&database).await;
    drained(&api).await;
    let expected = BTreeMap::from([("/a".to_owned(), 3), ("/b".to_owned(), 1)]);
    assert_eq!(views(&api, "b").await, expected);
    let letters = api.get("/v1/books/b/dead-letters").await.expect(200);
    assert_eq!(letters["items"][0]["click"]["id"], "p1");
    cure(&database).await;
    let id = letters["items"][0]["id"].as_str().unwrap();
    let retry = format!("/v1/books/b/dead-letters/{id}/retry");
    assert_eq!(api.post(&retry, &json!({})).await.expect(200)["on_time"], 1);
    until("it counts", async || {
        (counted(&api, "b").await == 5).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_held_book_goes_into_the_spool_and_takes_no_other_with_it() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let server = server(&database, &folder).await;
    let api = server.api();
    for book in ["held", "free"] {
        api.plain_book(book, 60_000, 60_000).await;
        api.clicks(book, click("0", "/a")).await;
    }
    let mut row = hold(&database, "held").await;
    spool(&api, "held", &click("1", "/a")).await;
    for n in 1..=5 {
        // 200, all of them, and it says nothing of an outage.
        api.clicks("free", click(&n.to_string(), "/a")).await;
    }
    spool(&api, "held", &click("2", "/b")).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    drained(&api).await;
    assert_eq!(counted(&api, "held").await, 3);
    let in_order = "SELECT (string_agg(page, '' ORDER BY seq) = '/a/a/b')::int::bigint
                    FROM clicks c JOIN books b ON b.id = c.book_id WHERE b.slug = 'held'";
    assert_eq!(database.number(in_order).await, 1);
    assert_eq!(totals(&api, "free").await["received"], 6);
}
