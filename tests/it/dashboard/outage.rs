//! Interruptions: the page says so, comes back by itself, and shows what a reload shows.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{LONG, Stage};
use crate::harness::{Api, until};

/// How long the network is away.
const AWAY: Duration = Duration::from_secs(20);

/// A book whose windows end soon after its clicks.
async fn book(api: &Api) {
    let settings = json!({"idle_timeout_ms": 500, "delay_ms": 0, "buffer_frames": 16});
    let rollups = json!([{"name": "live", "group_by": "page", "aggregate": "count",
                          "window": {"kind": "tumbling", "size_ms": 10_000}}]);
    let fields = json!({"title": "A book", "settings": settings, "rollups": rollups});
    api.book("b", fields).await;
}

/// Clicks on ten pages, each a frame.
async fn click(api: &Api, clicks: i64) {
    for i in 0..clicks {
        api.clicks("b", json!({"page": format!("/p{}", i % 10)}))
            .await;
    }
}

async fn says(stage: &Stage, wanted: &str) {
    let until_then = tokio::time::timeout(LONG, async {
        until("the page says how it is connected", || async {
            (stage.state().await == wanted).then_some(())
        })
        .await;
    });
    until_then.await.unwrap();
}

/// The page shows what it shows after a reload, and what the interface says.
async fn shows_the_truth(stage: &Stage, counted: i64) {
    let kept = stage.settled(counted).await;
    stage.open("/books/b").await;
    let reloaded = stage.settled(counted).await;
    assert_eq!(kept["totals"], reloaded["totals"]);
    assert_eq!(kept["pages"], reloaded["pages"]);
    assert_eq!(kept["bars"], reloaded["bars"]);
    let counts = stage.server().api().counts("b", "live").await;
    let sum: i64 = counts.iter().map(|c| c["value"].as_i64().unwrap()).sum();
    assert_eq!(sum, counted);
    let bars = kept["bars"].as_object().unwrap();
    let bars: i64 = bars.values().map(|v| v.as_i64().unwrap()).sum();
    assert_eq!(bars, counted);
}

/// Whether the page was not loaded again since [`mark`].
async fn is_marked(stage: &Stage) -> Value {
    stage
        .browser
        .run("return window.marked === true;", json!([]))
        .await
}

async fn mark(stage: &Stage) {
    stage.browser.run("window.marked = true;", json!([])).await;
}

async fn resynchronised(stage: &Stage) -> bool {
    let script = "return 'resynchronised' in document.querySelector('#connection').dataset;";
    stage.browser.run(script, json!([])).await == true
}

#[tokio::test]
async fn killed_and_cut_off_the_page_says_so_and_comes_back_with_the_truth() {
    let mut stage = Stage::set().await;
    let api = stage.server().api();
    book(&api).await;
    stage.open("/books/b").await;
    mark(&stage).await;
    click(&api, 5).await;
    stage.settled(5).await;

    // Killed, and started again at its address.
    stage.kill().await;
    says(&stage, "reconnecting").await;
    stage.start_again().await;
    let api = stage.server().api();
    click(&api, 5).await;
    says(&stage, "live").await;
    stage.settled(10).await;
    assert!(!resynchronised(&stage).await, "nothing was missed");
    assert_eq!(is_marked(&stage).await, true);
    shows_the_truth(&stage, 10).await;

    // The process stands still: connections stay open, and say nothing.
    mark(&stage).await;
    let began = Instant::now();
    stage.server().signal("STOP");
    says(&stage, "reconnecting").await;
    tokio::time::sleep(AWAY.saturating_sub(began.elapsed())).await;
    stage.server().signal("CONT");
    // Over a new connection: the old one is past its time.
    click(&stage.server().api(), 5).await;
    says(&stage, "live").await;
    stage.settled(15).await;
    assert!(!resynchronised(&stage).await, "nothing was missed");
    assert_eq!(is_marked(&stage).await, true);
    shows_the_truth(&stage, 15).await;

    // The same, while the buffer is overrun through another process.
    let other = stage.another().await;
    mark(&stage).await;
    stage.server().signal("STOP");
    says(&stage, "reconnecting").await;
    click(&other.api(), 40).await;
    stage.server().signal("CONT");
    says(&stage, "live").await;
    stage.settled(55).await;
    assert!(resynchronised(&stage).await, "frames were missed");
    assert_eq!(is_marked(&stage).await, true);
    shows_the_truth(&stage, 55).await;
}
