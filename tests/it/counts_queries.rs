//! What can be asked of counts: the newest windows, the greatest groups, all of them merged; page
//! by page, and as CSV.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{self, Answer, Api};

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

fn with<'a>(
    rollup: &'a str,
    filter: &[(&'a str, &'a str)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [&[("rollup", rollup)], filter, more].concat()
}

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
        for filter in FILTERS {
            for shape in shapes {
                let query = with(rollup, filter, shape);
                let first = ask(&api, &query).await;
                if first.status == 422 {
                    assert!(["sliding", "sessions", "greatest"].contains(&rollup));
                    continue;
                }
                let all = paged(&api, &query, 1000).await;
                for limit in [1, 3, 4] {
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

#[tokio::test]
async fn what_cannot_be_answered_says_why() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api).await;
    let refusals = [
        ("rollup=pages&last=0", 400, "last"),
        ("rollup=pages&last=1001", 400, "last"),
        ("rollup=pages&last=-1", 400, "last"),
        ("rollup=pages&last=all", 400, "last"),
        ("rollup=pages&top=0", 400, "top"),
        ("rollup=pages&top=1001", 400, "top"),
        ("rollup=pages&top=", 400, "top"),
        ("rollup=pages&merge=yes", 400, "merge"),
        ("rollup=pages&interval=year", 400, "year"),
        ("rollup=pages&interval=day&merge=true", 400, "merge"),
        ("rollup=pages&tz=Europe/Berlin", 400, "tz"),
        ("rollup=pages&merge=true&tz=UTC", 400, "tz"),
        (
            "rollup=pages&interval=day&tz=Europe/Atlantis",
            400,
            "Europe/Atlantis",
        ),
        ("rollup=pages&interval=day&tz=", 400, "tz"),
        (
            "rollup=pages&interval=day&tz=Etc/Unknown",
            400,
            "Etc/Unknown",
        ),
        ("rollup=pages&interval=day&tz=%00", 400, "tz"),
        ("rollup=sliding&interval=day", 422, "tumbling"),
        ("rollup=sessions&interval=day", 422, "tumbling"),
        ("rollup=sliding&merge=true", 422, "overlap"),
        ("rollup=none&merge=true", 404, "pages"),
    ];
    for (query, status, named) in refusals {
        for kind in ["application/json", "text/csv"] {
            let path = format!("/v1/books/b/counts?{query}");
            let request = api.request(Method::GET, &path).header("accept", kind);
            let answer = Answer::of(request).await;
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(named), "{query}: {detail}");
            let code = match status {
                400 => "bad_query",
                404 => "not_found",
                _ => "unanswerable",
            };
            assert_eq!(answer.problem(status), code, "{query}");
        }
    }
    let fine = [
        "rollup=pages&merge=false&interval=day",
        "rollup=greatest&merge=true",
        "rollup=pages&interval=week&tz=europe/berlin",
        "rollup=tops&merge=true&top=1000",
    ];
    for query in fine {
        api.get(&format!("/v1/books/b/counts?{query}"))
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn a_cursor_is_good_for_queries_of_its_shape() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api).await;
    let shapes: [&[(&str, &str)]; 9] = [
        &[],
        &[("last", "5")],
        &[("last", "6")],
        &[("top", "2")],
        &[("merge", "true")],
        &[("merge", "true"), ("top", "2")],
        &[("interval", "day")],
        &[("interval", "hour")],
        &[("interval", "day"), ("tz", "Asia/Kathmandu")],
    ];
    for shape in shapes {
        let query = with("pages", &[("limit", "1")], shape);
        let page = ask(&api, &query).await.expect(200);
        let cursor = page["next_cursor"].as_str().unwrap();
        for other in shapes {
            let query = with("pages", &[("cursor", cursor)], other);
            let answer = ask(&api, &query).await;
            if other == shape {
                answer.expect(200);
            } else {
                assert_eq!(
                    answer.problem(400),
                    "bad_query",
                    "{shape:?}, then {other:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn too_many_groups_are_not_merged() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 1000, 60_000).await;
    let mut conn = database.connect().await;
    // Through the database, for it would take a while through the front door.
    let fill = "INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired,
                                     weight, state, changed_ms)
                SELECT b.id, 0, 0, w * 1000, w * 1000 + 1000, '/' || n, true, 1,
                       '\\x010100000000000000', 0
                FROM books b, generate_series(0, 1) w, generate_series(w * 100000, w * 100000 + 100000) n";
    sqlx::raw_sql(sqlx::AssertSqlSafe(fill))
        .execute(&mut conn)
        .await
        .unwrap();
    for how in [("merge", "true"), ("interval", "day")] {
        let query = with("pages", &[("limit", "1")], &[how]);
        let answer = ask(&api, &query).await;
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("200000"), "{detail}");
        assert_eq!(answer.problem(422), "unanswerable");
        let query = with(
            "pages",
            &[("last", "1")],
            &[("merge", "true"), ("top", "3")],
        );
        assert_eq!(
            ask(&api, &query).await.expect(200)["items"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
    }
    let query = with("pages", &[("last", "1")], &[("merge", "true")]);
    assert_eq!(csv(&api, &query).await.len(), 100_001);
}
