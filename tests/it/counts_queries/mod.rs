//! What can be asked of counts: the newest windows, the greatest groups, all of them merged; page
//! by page, and as CSV.

mod lists;
mod refusals;
mod totals;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api};

/// A part of an answer.
async fn ask(api: &Api, query: &[(&str, &str)]) -> Answer {
    let request = api.request(Method::GET, "/v1/books/b/counts").query(query);
    Answer::of(request).await
}

/// All items, by pages of `limit`.
async fn paged(api: &Api, query: &[(&str, &str)], limit: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    let text = limit.to_string();
    loop {
        let mut part = query.to_vec();
        part.push(("limit", &text));
        part.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = ask(api, &part).await.expect(200);
        let found = page["items"].as_array().unwrap();
        assert!(found.len() <= limit);
        items.extend(found.iter().cloned());
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return items;
        }
        assert_eq!(found.len(), limit, "{query:?}");
    }
}

/// The rows of an answer in CSV, without the header.
async fn csv(api: &Api, query: &[(&str, &str)]) -> Vec<Vec<String>> {
    let request = api.request(Method::GET, "/v1/books/b/counts").query(query);
    let answer = Answer::of(request.header("accept", "text/csv")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut reader = csv::Reader::from_reader(answer.text.as_bytes());
    assert_eq!(
        reader.headers().unwrap(),
        vec!["start", "end", "group", "value", "state"]
    );
    let rows = reader.records().map(|row| row.unwrap());
    rows.map(|row| row.iter().map(str::to_owned).collect())
        .collect()
}

fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap()
}

fn window(item: &Value) -> (&str, &str) {
    (text(item, "start"), text(item, "end"))
}

fn rollup(name: &str, group_by: &str, aggregate: &str, window: Value) -> Value {
    json!({"name": name, "group_by": group_by, "aggregate": aggregate, "window": window})
}

fn tumbling() -> Value {
    json!({"kind": "tumbling", "size_ms": 1000})
}

/// A book with all kinds of rollups, and random clicks in it.
async fn book(api: &Api) {
    let sliding = json!({"kind": "sliding", "size_ms": 2000, "slide_ms": 500});
    let sessions = json!({"kind": "session", "gap_ms": 700});
    let fields = json!({
        "rollups": [
            rollup("pages", "page", "count", tumbling()),
            rollup("sums", "page", "sum", tumbling()),
            rollup("readers", "page", "distinct", tumbling()),
            rollup("tops", "book", "top", tumbling()),
            rollup("sliding", "page", "count", sliding.clone()),
            rollup("greatest", "page", "max", sliding),
            rollup("sessions", "page", "count", sessions),
        ],
        "settings": {"delay_ms": 0, "lateness_ms": 4000, "max_future_ms": null,
                     "idle_timeout_ms": null},
    });
    api.book("b", fields).await;
    let mut dice: u64 = 7;
    let mut roll = |bound: u64| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    // Ascending, so that none is too late; with holes, in which windows are missing.
    let mut at = 0;
    let clicks = (0..400).map(|_| {
        at += if roll(20) == 0 { 2500 } else { roll(80) };
        json!({"page": format!("/p{}", roll(4) * roll(3)), "at": at, "value": roll(9),
               "visitor": format!("v{}", roll(12))})
    });
    let taken = api.clicks("b", clicks.collect()).await;
    assert_eq!(taken["on_time"], 400, "{taken}");
}

fn with<'a>(
    rollup: &'a str,
    filter: &[(&'a str, &'a str)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [&[("rollup", rollup)], filter, more].concat()
}
