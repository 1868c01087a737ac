//! What a commit says that is too much for a frame: it is cut, and never in silence.

use serde_json::{Value, json};

use crate::harness::steps::{frames_of, pages};
use crate::harness::{self, Api};

const HOUR: i64 = 3_600_000;
const MAX_FRAME_BYTES: i64 = 256 * 1024;

#[tokio::test]
async fn a_commit_of_many_windows_is_cut_into_frames_and_nothing_is_lost() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    let click = |i: i64| json!({"page": format!("/{i:0>59}"), "at": (i % 20) * 10_000});
    let clicks: Vec<Value> = (0..5000).map(click).collect();
    let frames = frames_of(&api, "b", json!(clicks)).await;
    assert!(frames.len() > 1, "they do not fit into one");
    let most = "SELECT max(octet_length(data))::bigint FROM frames";
    assert!(database.number(most).await <= MAX_FRAME_BYTES);
    let mut told = pages(&frames);
    told.sort_unstable();
    let expected: Vec<String> = (0..5000).map(|i| format!("/{i:0>59}")).collect();
    assert_eq!(told.len(), 5000);
    assert!(told == expected, "each page once");
    assert!(
        frames
            .iter()
            .all(|f| f.data["revision"] == frames[0].data["revision"])
    );
}

/// The only pane that is told of a commit, which must be cut; it is checked to hold the greatest
/// of the groups that changed.
async fn cut_pane(api: &Api, changed: usize) -> usize {
    let length = if changed > 1000 { 59 } else { 1999 };
    let page = |i: usize| format!("/{i:0>length$}");
    let clicks = |pages: std::ops::Range<usize>| {
        let clicks = pages.map(|i| json!({"page": page(i), "at": 1}));
        json!(clicks.collect::<Vec<_>>())
    };
    api.clicks("b", clicks(20..60)).await;
    api.clicks("b", clicks(40..60)).await;
    let frames = frames_of(api, "b", clicks(0..changed)).await;
    assert_eq!(frames.len(), 1);
    let panes = frames[0].data["panes"].as_array().unwrap();
    assert_eq!(panes.len(), 1);
    assert_eq!(panes[0]["truncated"], true);
    let values = panes[0]["values"].as_object().unwrap();
    for i in 20..60 {
        let value = values
            .get(&page(i))
            .unwrap_or_else(|| panic!("{i} is left out"));
        assert_eq!(*value, if i < 40 { 2 } else { 3 }, "{i}");
    }
    values.len()
}

#[tokio::test]
async fn a_pane_that_does_not_fit_is_cut_to_its_200_greatest_groups_and_says_so() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    assert_eq!(cut_pane(&api, 5000).await, 200);
    let most = "SELECT max(octet_length(data))::bigint FROM frames";
    assert!(database.number(most).await <= MAX_FRAME_BYTES);
}

/// Thousands of sessions become one: what it replaces does not fit into a frame.
#[tokio::test]
async fn a_session_that_replaces_too_many_is_told_and_says_that_not_all_is() {
    let (database, server) = harness::start().await;
    let api = server.api();
    let body = json!({
        "rollups": [{"name": "s", "group_by": "book", "aggregate": "count",
                     "window": {"kind": "session", "gap_ms": 10}}],
        "settings": {"delay_ms": HOUR, "max_future_ms": null, "idle_timeout_ms": null},
    });
    api.book("b", body).await;
    let clicks = |first: i64| -> Value {
        let clicks = (0..8000).map(|i| json!({"page": "/", "at": first + i * 15}));
        clicks.collect()
    };
    api.clicks("b", clicks(0)).await;
    let apart = "SELECT count(*) FROM windows";
    assert_eq!(database.number(apart).await, 8000);
    let frames = frames_of(&api, "b", clicks(8)).await;
    assert_eq!(database.number(apart).await, 1);
    let panes: Vec<&Value> = frames
        .iter()
        .flat_map(|f| f.data["panes"].as_array().unwrap())
        .collect();
    assert_eq!(panes.len(), 1);
    assert_eq!(panes[0]["values"], json!({"": 16_000}));
    assert_eq!(panes[0]["truncated"], true);
    let replaces = panes[0]["replaces"].as_array().unwrap().len();
    assert!((1..8000).contains(&replaces));
    let most = "SELECT max(octet_length(data))::bigint FROM frames";
    assert!(database.number(most).await <= MAX_FRAME_BYTES);
}

#[tokio::test]
async fn where_200_groups_do_not_fit_fewer_are_told_and_the_frame_stays_small() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    assert!(cut_pane(&api, 300).await < 200);
    let most = "SELECT max(octet_length(data))::bigint FROM frames";
    assert!(database.number(most).await <= MAX_FRAME_BYTES);
}
