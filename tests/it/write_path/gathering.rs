#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::collections::BTreeMap;
use std::time::Instant;

use pagetide::ingest::retry::Retries;
use serde_json::json;

use super::{Runtime, id_of};
use crate::harness::load::views;
use crate::harness::start;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clicks_at_once_take_few_transactions() {
    let (database, server) = start().await;
    let api = server.api();
    let book = id_of(&api.plain_book("b", 60_000, 60_000).await);
    let runtime = Runtime::start(&database, 4, Retries::default());
    let began = Instant::now();
    // All are in the lane before the first is committed: well within 50 ms.
    let pages = vec!["/a".to_owned(); 1000];
    for answer in runtime.clicks(book, &pages).await {
        answer.unwrap();
    }
    let took = began.elapsed();
    runtime.stop().await;
    assert_eq!(
        views(&api, "b").await,
        BTreeMap::from([("/a".to_owned(), 1000)])
    );
    // Each transaction that changes a book moves its revision by one.
    let transactions = database.number("SELECT revision FROM books").await;
    println!("1000 clicks in {took:?}, in {transactions} transactions");
    assert!(transactions <= 20, "{transactions} transactions");
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_lanes_each_page_gets_what_is_its() {
    for lanes in [1, 4, 16] {
        let (database, server) = start().await;
        let api = server.api();
        let book = id_of(&api.plain_book("b", 60_000, 60_000).await);
        let runtime = Runtime::start(&database, lanes, Retries::default());
        let pages: Vec<String> = (0..800).map(|n| format!("/{}", n % 40)).collect();
        for answer in runtime.clicks(book, &pages).await {
            answer.unwrap();
        }
        runtime.stop().await;
        let expected = (0..40).map(|n| (format!("/{n}"), 20)).collect();
        assert_eq!(views(&api, "b").await, expected, "{lanes} lanes");
    }
}

#[tokio::test]
async fn the_levels_agree_in_every_commit() {
    let (_database, server) = start().await;
    let api = server.api();
    let rollup = |group: &str| {
        json!({"name": group, "group_by": group, "window": {"kind": "tumbling", "size_ms": 60_000},
               "aggregate": "count"})
    };
    let rollups = ["page", "chapter", "book"].map(rollup);
    let fields = json!({"title": "b", "rollups": rollups});
    api.book("b", fields).await;
    let chapters = json!([{"id": "one", "title": "One", "pages": ["/a", "/b"]},
                          {"id": "two", "title": "Two", "pages": ["/c/*"]}]);
    api.put("/v1/books/b/chapters", &chapters).await.expect(200);
    let mut stream = api.follow("b", "", None).await;
    stream.expect("hello").await;
    let (mut shown, mut seen) = (BTreeMap::new(), 0);
    for page in ["/a", "/b", "/c/x", "/nowhere", "/a", "/a", "/c/y"] {
        api.clicks("b", json!({"page": page, "at": 1000})).await;
        seen += 1;
        // Every frame holds what one commit changed, all levels of it.
        let frame = stream.expect("counts").await;
        for pane in frame.data["panes"].as_array().unwrap() {
            for (group, value) in pane["values"].as_object().unwrap() {
                let key = (pane["rollup"].as_str().unwrap().to_owned(), group.clone());
                shown.insert(key, value.as_i64().unwrap());
            }
        }
        for level in ["page", "chapter", "book"] {
            let of_level = shown.iter().filter(|((rollup, _), _)| rollup == level);
            assert_eq!(
                of_level.map(|(_, value)| value).sum::<i64>(),
                seen,
                "{level}"
            );
        }
    }
    assert_eq!(shown[&("chapter".to_owned(), "one".to_owned())], 4);
    assert_eq!(shown[&("chapter".to_owned(), String::new())], 1);
}
