//! Clicks come in over REST; the answer says what became of each.

mod bodies;
mod late;
mod once;
mod pages;
mod refusals;
mod times;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::Api;
use crate::harness::api::Answer;
use crate::raw;

const JSON: Option<&str> = Some("application/json");
const NDJSON: Option<&str> = Some("application/x-ndjson");

/// Posts a body as it is.
async fn send(api: &Api, book: &str, kind: Option<&str>, body: impl Into<reqwest::Body>) -> Answer {
    let path = format!("/v1/books/{book}/clicks");
    raw::send(api, (Method::POST, &path), kind, body).await
}

/// Posts clicks, of which one at least must be taken.
async fn post(api: &Api, book: &str, clicks: Value) -> Value {
    let path = format!("/v1/books/{book}/clicks");
    receipt(api.post(&path, &clicks).await)
}

/// The body of a 200, after its arithmetic was checked: the counts add up to `received`, and the
/// exceptions, by index, say the same as the counts.
#[track_caller]
fn receipt(answer: Answer) -> Value {
    let body = answer.expect(200);
    let counts = [
        "on_time",
        "late",
        "dropped",
        "duplicates",
        "filtered",
        "rejected",
    ];
    let sum: i64 = counts.iter().map(|c| body[c].as_i64().unwrap()).sum();
    assert_eq!(body["received"], sum, "{body}");
    let exceptions = body["exceptions"].as_array().unwrap();
    let index = |e: &Value| e["index"].as_i64().unwrap();
    assert!(
        exceptions.is_sorted_by(|a, b| index(a) < index(b)),
        "{body}"
    );
    assert!(exceptions.iter().all(|e| index(e) < sum), "{body}");
    let statuses = [
        ("late", "late"),
        ("dropped", "dropped"),
        ("duplicates", "duplicate"),
        ("filtered", "filtered"),
        ("rejected", "rejected"),
    ];
    for (count, status) in statuses {
        let listed = exceptions.iter().filter(|e| e["status"] == status).count();
        assert_eq!(body[count], listed, "{count} in {body}");
    }
    body
}

/// Each exception as `index status reason`.
fn exceptions(receipt: &Value) -> Vec<String> {
    let exceptions = receipt["exceptions"].as_array().unwrap();
    let line = |e: &Value| {
        let status = e["status"].as_str().unwrap();
        let reason = e["reason"].as_str().unwrap_or("-");
        format!("{} {status} {reason}", e["index"])
    };
    exceptions.iter().map(line).collect()
}

/// The sum of a rollup's counts.
async fn total(api: &Api, book: &str, rollup: &str) -> i64 {
    let counts = api.counts(book, rollup).await;
    counts.iter().map(|c| c["value"].as_i64().unwrap()).sum()
}

/// A book with the rollups (name, group, window size, lateness), in which clicks of any time count.
async fn book_of(api: &Api, slug: &str, rollups: &[(&str, &str, i64, i64)]) -> Value {
    let rollup = |(name, group, size_ms, lateness_ms): &(&str, &str, i64, i64)| {
        json!({"name": name, "group_by": group, "aggregate": "count", "lateness_ms": lateness_ms,
               "window": {"kind": "tumbling", "size_ms": size_ms}})
    };
    let rollups: Vec<Value> = rollups.iter().map(rollup).collect();
    let settings = json!({"delay_ms": 0, "lateness_ms": 0, "max_future_ms": null});
    api.book(slug, json!({"rollups": rollups, "settings": settings}))
        .await
}
