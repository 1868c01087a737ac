//! A real access log, counted by this program and by a script that shares no code with it.

use std::collections::HashMap;
use std::process::Command;

use serde_json::Value;

use crate::harness::{self, Api};
use crate::independent::{self, Hours};

pub(crate) const LOG: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/apache_combined.log"
);
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The log as clicks, one a line, by the script that the examples hold.
pub(crate) fn clicks() -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/combined-log.awk");
    let output = independent::run(Command::new("awk").args(["-f", script, LOG]));
    let lines: Vec<String> = output.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 10_000);
    lines
}

fn millis(time: &Value) -> i64 {
    pagetide::time::Timestamp::parse_rfc3339(time.as_str().unwrap())
        .unwrap()
        .millis()
}

/// What the book shows by hour and page.
pub(crate) async fn shown(api: &Api, book: &str) -> Hours {
    let counts = api.counts(book, "pages").await;
    let shown = counts.iter().map(|count| {
        let page = count["group"].as_str().unwrap().to_owned();
        (
            (millis(&count["start"]), page),
            count["value"].as_i64().unwrap(),
        )
    });
    shown.collect()
}

/// Posts the log in batches, and gives each click's status and the last watermark.
pub(crate) async fn post(
    api: &Api,
    book: &str,
    clicks: &[String],
    batch: usize,
) -> (Vec<String>, String) {
    let mut statuses = Vec::with_capacity(clicks.len());
    let mut watermark = String::new();
    for lines in clicks.chunks(batch) {
        let request = api
            .request(reqwest::Method::POST, &format!("/v1/books/{book}/clicks"))
            .header("content-type", "application/x-ndjson")
            .body(lines.join("\n"));
        let answer = harness::api::Answer::of(request).await.expect(200);
        let exceptions: HashMap<u64, &Value> = answer["exceptions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e["index"].as_u64().unwrap(), e))
            .collect();
        for index in 0..lines.len() as u64 {
            let status = exceptions
                .get(&index)
                .map(|e| e["status"].as_str().unwrap());
            statuses.push(status.unwrap_or("on_time").to_owned());
        }
        answer["watermark"]
            .as_str()
            .unwrap()
            .clone_into(&mut watermark);
    }
    (statuses, watermark)
}

#[tokio::test]
async fn sums_per_page_and_hour_equal_an_independent_count() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("log", HOUR_MS, DAY_MS).await;
    let clicks = clicks();
    let (statuses, watermark) = post(&api, "log", &clicks, 500).await;
    assert!(statuses.iter().all(|s| s == "on_time" || s == "late"));
    let counted = shown(&api, "log").await;
    assert_eq!(counted, independent::count(LOG));
    assert_eq!(counted.values().sum::<i64>(), 10_000);

    let before = api.get("/v1/books/log").await.expect(200);
    let (again, watermark_again) = post(&api, "log", &clicks, 500).await;
    assert!(again.iter().all(|status| status == "duplicate"));
    assert_eq!(shown(&api, "log").await, counted);
    assert_eq!(watermark_again, watermark);
    let after = api.get("/v1/books/log").await.expect(200);
    assert_eq!(after["position"], before["position"], "no frame was minted");
    assert_eq!(after["totals"]["on_time"], before["totals"]["on_time"]);
    assert_eq!(after["totals"]["duplicates"], 10_000);
}

/// A click with nothing but what counts, so that thousands of them fit into one request.
fn lean(click: &str) -> String {
    let click: Value = serde_json::from_str(click).unwrap();
    let (_, number) = click["id"].as_str().unwrap().split_once(':').unwrap();
    let (at, page) = (millis(&click["at"]), &click["page"]);
    format!(r#"{{"id":"{number}","at":{at},"page":{page}}}"#)
}

#[tokio::test]
async fn any_cut_into_batches_gives_the_same() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    // One by one they are as many transactions: a part of the log is enough to have every status.
    let clicks = clicks();
    let clicks: Vec<String> = clicks[..4000].iter().map(|click| lean(click)).collect();
    let mut results = Vec::new();
    for (book, batch) in [("one", 1), ("some", 500), ("all", 4000)] {
        // Short windows and little lateness, so that the log has late and too-late clicks.
        api.plain_book(book, 10_000, 30_000).await;
        let posted = post(&api, book, &clicks, batch).await;
        results.push((posted, shown(&api, book).await));
    }
    let statuses = &results[0].0.0;
    for status in ["on_time", "late", "dropped"] {
        assert!(
            statuses.iter().any(|s| s == status),
            "no click was {status}"
        );
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}
