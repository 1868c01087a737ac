//! Sessions among the counts and in snapshots: when one began does not say when it ends.

use serde_json::{Value, json};

use crate::harness::{self, Api};

const GAP_MS: i64 = 1000;

async fn book(api: &Api, group_by: &str) {
    let fields = json!({
        "rollups": [{"name": "visits", "group_by": group_by, "aggregate": "count",
                     "window": {"kind": "session", "gap_ms": GAP_MS}}],
        "settings": {"delay_ms": 0, "lateness_ms": 0, "max_future_ms": null,
                     "idle_timeout_ms": null},
    });
    api.book("b", fields).await;
}

/// One reading of `/long` from 0 on, for so many seconds, and one click each ten seconds on a page
/// of its own.
async fn long_and_short(api: &Api, seconds: i64) {
    book(api, "page").await;
    let clicks = (0..=2 * seconds).flat_map(|n| {
        let long = json!({"page": "/long", "at": n * 500});
        let short =
            (n % 20 == 10).then(|| json!({"page": format!("/{:04}", n / 20), "at": n * 500}));
        [Some(long), short].into_iter().flatten()
    });
    api.clicks("b", clicks.collect()).await;
}

async fn found(api: &Api, query: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/books/b/counts?rollup=visits&limit=4{query}{cursor}");
        let page = api.get(&path).await.expect(200);
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

fn groups(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["group"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_long_session_overlaps_what_begins_long_after_it() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    long_and_short(&api, 100).await;
    let all = found(&api, "").await;
    assert_eq!(all.len(), 11);
    assert_eq!(all[0]["group"], "/long");
    assert_eq!(all[0]["end"], "1970-01-01T00:01:41.000Z");
    for (query, expected) in [
        ("&from=80000", vec!["/long", "/0008", "/0009"]),
        ("&from=100999", vec!["/long"]),
        ("&from=101000", vec![]),
        ("&from=85999&to=86000", vec!["/long", "/0008"]),
        ("&from=86000&to=95000", vec!["/long"]),
        ("&from=0&to=1", vec!["/long"]),
        ("&to=6000", vec!["/long", "/0000"]),
        ("&from=80000&group=/long", vec!["/long"]),
        ("&from=80000&group=/0009", vec!["/0009"]),
        ("&from=80000&last=1", vec!["/0009"]),
        ("&from=80000&last=2", vec!["/0008", "/0009"]),
        ("&from=80000&last=3", vec!["/long", "/0008", "/0009"]),
        ("&last=3", vec!["/0007", "/0008", "/0009"]),
        ("&from=80000&top=1", vec!["/long", "/0008", "/0009"]),
        ("&from=80000&merge=true", vec!["/0008", "/0009", "/long"]),
        ("&from=80000&merge=true&top=2", vec!["/long", "/0008"]),
    ] {
        let items = found(&api, query).await;
        assert_eq!(groups(&items), expected, "{query}");
        if query.contains("merge") {
            assert_eq!(items[0]["start"], "1970-01-01T00:00:00.000Z");
            assert_eq!(items[0]["end"], "1970-01-01T00:01:41.000Z");
            assert_eq!(items[0]["state"], "open");
        }
    }
}

async fn snapshot(api: &Api, query: &str) -> Vec<Value> {
    let body = api
        .get(&format!("/v1/books/b/snapshot{query}"))
        .await
        .expect(200);
    body["windows"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_snapshot_does_not_miss_a_session_that_is_open_since_long_ago() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    long_and_short(&api, 1000).await;
    let windows = snapshot(&api, "").await;
    let count = |state: &str| windows.iter().filter(|w| w["state"] == state).count();
    assert_eq!((count("open"), count("fired"), count("closed")), (1, 0, 60));
    assert_eq!(windows[0]["values"], json!({"/long": 2001}));
    assert_eq!(
        windows[1]["values"],
        json!({"/0040": 1}),
        "the 60 newest closed"
    );
    assert!(
        windows
            .iter()
            .all(|window| window.get("truncated").is_none())
    );
    // The long one, and those that ended after that.
    let windows = snapshot(&api, "?since=950000").await;
    assert_eq!(windows.len(), 6);
    assert_eq!(windows[0]["values"], json!({"/long": 2001}));
    assert_eq!(snapshot(&api, "?since=1001000").await.len(), 0);
}

#[tokio::test]
async fn of_very_many_sessions_a_snapshot_shows_the_newest_and_says_that_there_are_more() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api, "visitor").await;
    let click = |n: i64| json!({"page": "/", "visitor": format!("{n}"), "at": n / 20});
    // 20 visitors each millisecond, and none of their sessions is over.
    api.clicks("b", (0..9000).map(click).collect()).await;
    let windows = snapshot(&api, "").await;
    assert_eq!(windows.len(), 450);
    assert!(
        windows
            .iter()
            .all(|window| window.get("truncated").is_none())
    );
    api.clicks("b", (9000..12_010).map(click).collect()).await;
    let windows = snapshot(&api, "").await;
    let values = windows
        .iter()
        .map(|w| w["values"].as_object().unwrap().len());
    assert_eq!(values.sum::<usize>(), 10_000);
    assert_eq!(windows[0]["truncated"], true);
    assert!(
        windows[1..]
            .iter()
            .all(|window| window.get("truncated").is_none())
    );
    assert_eq!(
        windows[windows.len() - 1]["values"]
            .as_object()
            .unwrap()
            .len(),
        10
    );
}

#[tokio::test]
async fn of_sessions_with_the_same_bounds_a_snapshot_shows_the_greatest_thousand() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api, "visitor").await;
    let crowd = (0..1100).map(|n| json!({"page": "/", "visitor": format!("c{n:04}"), "at": 700}));
    let again = json!({"page": "/", "visitor": "c1099", "at": 700});
    api.clicks("b", crowd.chain([again]).collect()).await;
    let windows = snapshot(&api, "").await;
    let crowd = &windows[windows.len() - 1];
    assert_eq!(crowd["truncated"], true);
    assert_eq!(crowd["values"].as_object().unwrap().len(), 1000);
    assert_eq!(crowd["values"]["c1099"], 2);
}
