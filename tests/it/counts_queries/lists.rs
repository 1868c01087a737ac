//! Lists are what a plain reading of all windows makes of them, whole, page by page, and as CSV.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ask, book, csv, paged, rollup, text, tumbling, window, with};
use crate::harness;

const ROLLUPS: [&str; 7] = [
    "pages", "sums", "readers", "tops", "sliding", "greatest", "sessions",
];

/// Ways to choose windows; what they find without more is shown elsewhere.
const FILTERS: [&[(&str, &str)]; 5] = [
    &[],
    &[("from", "7300")],
    &[("from", "5100"), ("to", "14800")],
    &[("group", "/p2")],
    &[("from", "7300"), ("group", "/p0")],
];

/// The items of the `last` newest windows of these.
fn newest(items: &[Value], last: usize) -> Vec<Value> {
    let windows: BTreeSet<_> = items.iter().map(window).collect();
    let chosen: BTreeSet<_> = windows.into_iter().rev().take(last).collect();
    let items = items.iter().filter(|item| chosen.contains(&window(item)));
    items.cloned().collect()
}

/// The `top` greatest groups of each window, for values that are numbers.
fn greatest(items: &[Value], top: usize) -> Vec<Value> {
    let mut windows: BTreeMap<_, Vec<&Value>> = BTreeMap::new();
    for item in items {
        windows.entry(window(item)).or_default().push(item);
    }
    let windows = windows.into_values().flat_map(|mut groups| {
        let value = |item: &Value| item["value"].as_f64().unwrap();
        groups.sort_by(|a, b| {
            let by_value = value(b).partial_cmp(&value(a)).unwrap();
            by_value.then_with(|| text(a, "group").cmp(text(b, "group")))
        });
        groups.into_iter().take(top).cloned()
    });
    windows.collect()
}

/// All windows as one, for values that `combine` combines.
fn merged(items: &[Value], combine: impl Fn(f64, f64) -> f64) -> Vec<Value> {
    let mut groups: BTreeMap<&str, f64> = BTreeMap::new();
    for item in items {
        let value = item["value"].as_f64().unwrap();
        let group = groups.entry(text(item, "group"));
        group
            .and_modify(|v| *v = combine(*v, value))
            .or_insert(value);
    }
    let start = items.iter().map(|item| text(item, "start")).min();
    let end = items.iter().map(|item| text(item, "end")).max();
    let states = ["open", "fired", "closed"];
    let state = states
        .iter()
        .find(|state| items.iter().any(|item| item["state"] == **state));
    let groups = groups.into_iter().map(|(group, value)| {
        json!({"start": start, "end": end, "group": group, "value": value, "state": state})
    });
    groups.collect()
}

/// Numbers are compared as numbers: a sum may be written without a fraction.
fn numbers(items: &[Value]) -> Vec<Value> {
    let items = items.iter().cloned().map(|mut item| {
        item["value"] = json!(item["value"].as_f64().unwrap());
        item
    });
    items.collect()
}

#[tokio::test]
async fn last_top_and_merge_come_after_one_another() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api).await;
    for rollup in ROLLUPS {
        for filter in FILTERS {
            let plain = paged(&api, &with(rollup, filter, &[]), 1000).await;
            assert!(!plain.is_empty() || (rollup == "tops" && !filter.is_empty()));
            for (last, number) in [("1", 1), ("3", 3), ("12", 12), ("1000", 1000)] {
                let chosen = newest(&plain, number);
                let query = with(rollup, filter, &[("last", last)]);
                assert_eq!(paged(&api, &query, 1000).await, chosen, "{query:?}");
                if rollup == "tops" {
                    continue;
                }
                for (top, number) in [("1", 1), ("2", 2), ("50", 50)] {
                    let query = with(rollup, filter, &[("last", last), ("top", top)]);
                    let expected = greatest(&chosen, number);
                    assert_eq!(paged(&api, &query, 1000).await, expected, "{query:?}");
                }
                let combined = match rollup {
                    "pages" | "sums" | "sessions" => merged(&chosen, |a, b| a + b),
                    "greatest" => merged(&chosen, f64::max),
                    _ => continue,
                };
                let query = with(rollup, filter, &[("last", last), ("merge", "true")]);
                let found = paged(&api, &query, 1000).await;
                assert_eq!(numbers(&found), combined, "{query:?}");
                let query = with(
                    rollup,
                    filter,
                    &[("last", last), ("merge", "true"), ("top", "2")],
                );
                let found = paged(&api, &query, 1000).await;
                assert_eq!(numbers(&found), greatest(&combined, 2), "{query:?}");
            }
            let query = with(rollup, filter, &[("merge", "false")]);
            assert_eq!(paged(&api, &query, 1000).await, plain);
        }
    }
}

#[tokio::test]
async fn every_list_comes_page_by_page_and_as_csv() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api).await;
    let shapes: [&[(&str, &str)]; 9] = [
        &[("last", "5")],
        &[("top", "2")],
        &[("last", "5"), ("top", "2")],
        &[("merge", "true")],
        &[("merge", "true"), ("top", "3")],
        &[("merge", "true"), ("last", "4")],
        &[("interval", "hour")],
        &[("interval", "day"), ("tz", "Asia/Kathmandu"), ("top", "3")],
        &[("interval", "month"), ("last", "1")],
    ];
    for rollup in ROLLUPS {
        // All windows of two of them; that is many requests.
        let all = if ["pages", "sessions"].contains(&rollup) {
            0
        } else {
            2
        };
        for filter in [FILTERS[all], FILTERS[2], FILTERS[4]]
            .into_iter()
            .skip(all / 2)
        {
            for shape in shapes {
                let query = with(rollup, filter, shape);
                let first = ask(&api, &query).await;
                if first.status == 422 {
                    assert!(["sliding", "sessions", "greatest"].contains(&rollup));
                    continue;
                }
                let all = paged(&api, &query, 1000).await;
                // Where one at a time would take too long, a few.
                let limits = if all.len() < 25 { [1, 4] } else { [7, 30] };
                for limit in limits {
                    assert_eq!(
                        paged(&api, &query, limit).await,
                        all,
                        "{query:?} by {limit}"
                    );
                }
                let rows = csv(&api, &query).await;
                assert_eq!(rows.len(), all.len(), "{query:?}");
                for (row, item) in rows.iter().zip(&all) {
                    for (cell, name) in [(0, "start"), (1, "end"), (2, "group"), (4, "state")] {
                        assert_eq!(row[cell], item[name], "{query:?}");
                    }
                    // A list is JSON in its cell.
                    let value: Value = serde_json::from_str(&row[3]).unwrap();
                    assert_eq!(value, item["value"], "{query:?}");
                }
                let limited = [query.clone(), vec![("limit", "2")]].concat();
                assert_eq!(
                    csv(&api, &limited).await,
                    rows[..rows.len().min(2)],
                    "{query:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn pages_of_the_last_windows_are_of_the_same_windows() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 1000, 60_000).await;
    let clicks = |from: i64| {
        let starts = (from..from + 4).map(|n| json!({"page": "/a", "at": n * 1000}));
        starts.collect::<Value>()
    };
    api.clicks("b", clicks(0)).await;
    let query = [("rollup", "pages"), ("last", "3"), ("limit", "2")];
    let first = ask(&api, &query).await.expect(200);
    assert_eq!(
        text(&first["items"][0], "start"),
        "1970-01-01T00:00:01.000Z"
    );
    api.clicks("b", clicks(4)).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = ask(&api, &[&query[..], &[("cursor", cursor)]].concat())
        .await
        .expect(200);
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        text(&second["items"][0], "start"),
        "1970-01-01T00:00:03.000Z"
    );
    assert_eq!(second["next_cursor"], Value::Null);
}

#[tokio::test]
async fn sums_are_exact_and_distinct_visitors_are_united() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let fields = json!({
        "rollups": [rollup("sums", "book", "sum", tumbling()),
                    rollup("readers", "book", "distinct", tumbling()),
                    rollup("least", "book", "min", tumbling())],
        "settings": {"delay_ms": 0, "max_future_ms": null},
    });
    api.book("b", fields).await;
    let clicks = (0..10).map(
        |n| json!({"page": "/a", "at": n * 1000, "value": 0.1, "visitor": format!("v{}", n % 3)}),
    );
    api.clicks("b", clicks.collect()).await;
    let merged = ask(&api, &[("rollup", "sums"), ("merge", "true")]).await;
    assert!(merged.text.contains(r#""value":1,"#), "{}", merged.text);
    let tenths = ask(&api, &[("rollup", "sums"), ("last", "1")]).await;
    assert!(tenths.text.contains(r#""value":0.1,"#), "{}", tenths.text);
    let rows = csv(&api, &[("rollup", "sums"), ("interval", "day")]).await;
    assert_eq!(rows[0][3], "1");
    let rows = csv(&api, &[("rollup", "sums")]).await;
    assert!(rows.len() == 10 && rows.iter().all(|row| row[3] == "0.1"));
    let rows = csv(&api, &[("rollup", "least"), ("merge", "true")]).await;
    assert_eq!(rows[0][3], "0.1");
    for united in [("merge", "true"), ("interval", "hour")] {
        let readers = ask(&api, &[("rollup", "readers"), united])
            .await
            .expect(200);
        assert_eq!(readers["items"][0]["value"], 3);
    }
}
