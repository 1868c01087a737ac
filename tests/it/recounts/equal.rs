//! A recount gives what a batch of all clicks gives, and changes nothing where nothing was dropped.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{begin, ended, recount, swept};
use crate::harness::{self, Api, Database};
use crate::windows::{Key, Random, counted, in_snapshot, ms, session, sliding, tumbling};

/// Long ago, on no round number.
const BASE: i64 = 1_500_000_000_123;
const DELAY: i64 = 1000;
const CLICKS: usize = 3000;

/// Every aggregate, each of a field of its own choice, by groups of all kinds.
const AGGREGATES: [(&str, &str); 8] = [
    ("count", "page"),
    ("sum", "page"),
    ("min", "book"),
    ("max", "referrer"),
    ("first", "page"),
    ("last", "visitor"),
    ("distinct", "book"),
    ("top", "source"),
];

/// Every kind of window. The slide goes into the size two and a half times.
fn windows() -> [(&'static str, Value); 3] {
    [
        ("tumbling", tumbling(7000)),
        ("sliding", sliding(10_000, 4000)),
        ("session", session(900)),
    ]
}

fn book(window: &Value, lateness_ms: i64) -> Value {
    let rollups = AGGREGATES.map(|(aggregate, group)| {
        json!({"name": aggregate, "group_by": group, "aggregate": aggregate, "window": window})
    });
    json!({
        "rollups": rollups,
        "settings": {"delay_ms": DELAY, "lateness_ms": lateness_ms, "max_future_ms": null,
                     "idle_timeout_ms": null},
    })
}

/// Clicks in the order of their arrival; each comes up to `behind` after others of its time. Many are of
/// the same millisecond.
fn clicks(seed: u64, behind: usize) -> Vec<Value> {
    let mut random = Random(seed);
    let mut clicks = Vec::with_capacity(CLICKS);
    for number in 0..CLICKS {
        let passed = i64::try_from(number * 40 / 10 * 10).unwrap();
        // Most are only a little late.
        let behind = if random.below(4) == 0 { behind } else { 900 };
        let at = BASE + passed - i64::try_from(random.below(behind)).unwrap();
        let mut click = json!({
            "id": format!("c{number}"), "at": at, "page": format!("/p{}", random.below(6)),
            "visitor": format!("v{}", random.below(400)),
            "value": i64::try_from(random.below(2000)).unwrap() - 1000,
        });
        if random.below(3) > 0 {
            click["source"] = json!(format!("s{}", random.below(3)));
        }
        if random.below(3) > 0 {
            click["referrer"] = json!(format!("https://{}.example/", random.below(4)));
        }
        clicks.push(click);
    }
    clicks
}

/// In batches of different sizes.
async fn post(api: &Api, book: &str, clicks: &[Value]) {
    let mut random = Random(7);
    let mut rest = clicks;
    while !rest.is_empty() {
        let (batch, after) = rest.split_at((1 + random.below(300)).min(rest.len()));
        api.clicks(book, Value::from(batch)).await;
        rest = after;
    }
}

/// All that is counted, with values and states.
async fn all(api: &Api, book: &str) -> BTreeMap<Key, (Value, String)> {
    let mut all = BTreeMap::new();
    for (aggregate, _) in AGGREGATES {
        all.extend(counted(api, book, aggregate).await);
    }
    all
}

fn values(windows: &BTreeMap<Key, (Value, String)>) -> BTreeMap<&Key, &Value> {
    let windows = windows.iter();
    windows.map(|(key, (value, _))| (key, value)).collect()
}

async fn watermark(api: &Api, book: &str) -> i64 {
    let book = api.get(&format!("/v1/books/{book}")).await.expect(200);
    ms(&book["watermark"])
}

/// As the rules say it of a window whose end this is.
fn state(end: i64, closes_after: i64, watermark: i64) -> &'static str {
    if end > watermark {
        "open"
    } else if end + closes_after > watermark {
        "fired"
    } else {
        "closed"
    }
}

#[tokio::test]
async fn clicks_that_came_too_late_are_brought_in_as_a_batch_of_all_counts_them() {
    const LATENESS: i64 = 2000;
    let (database, server) = harness::start().await;
    let api = server.api();
    let arrived = clicks(1, 40_000);
    let mut in_order = arrived.clone();
    in_order.sort_by_key(|click| click["at"].as_i64());
    assert_ne!(arrived, in_order);
    for (kind, window) in windows() {
        let batch = format!("batch-{kind}");
        api.book(kind, book(&window, LATENESS)).await;
        api.book(&batch, book(&window, 10_000_000_000)).await;
        post(&api, kind, &arrived).await;
        post(&api, &batch, &in_order).await;
        let dropped = |totals: Value| totals["dropped"].as_i64().unwrap();
        let totals = harness::load::totals(&api, kind).await;
        assert!(dropped(totals.clone()) > 100, "{kind}: {totals}");
        assert_eq!(dropped(harness::load::totals(&api, &batch).await), 0);
        let expected = all(&api, &batch).await;
        let before = all(&api, kind).await;
        assert_ne!(values(&before), values(&expected), "{kind}");
        let here = watermark(&api, kind).await;
        assert_eq!(here, watermark(&api, &batch).await, "{kind}");

        let run = recount(&api, kind).await;
        assert_eq!(run["processed"], CLICKS, "{run}");
        assert_eq!(run["total"], CLICKS, "{run}");
        let after = all(&api, kind).await;
        assert_eq!(values(&after), values(&expected), "{kind}");
        assert_eq!(in_snapshot(&api, kind).await, after, "{kind}");
        assert_eq!(watermark(&api, kind).await, here, "{kind}");
        let gap = window["gap_ms"].as_i64().unwrap_or(0);
        for ((_, _, end, _), (_, told)) in &after {
            let by_rule = state(*end, gap + LATENESS, here);
            // A session of which a part had fired has fired, though it ends later now.
            let grown = kind == "session" && (&**told, by_rule) == ("fired", "open");
            assert!(grown || told == by_rule, "{kind}: {told} at {end}");
        }
        // Once more, and nothing is new.
        recount(&api, kind).await;
        assert_eq!(all(&api, kind).await, after, "{kind}");
    }
    swept(&database).await;
}

#[tokio::test]
async fn where_nothing_was_dropped_a_recount_changes_nothing() {
    // Behind by less than the lateness, so that all are taken, and windows are in all states.
    const LATENESS: i64 = 20_000;
    let (database, server) = harness::start().await;
    let api = server.api();
    let clicks = clicks(2, 19_000);
    for (kind, window) in windows() {
        api.book(kind, book(&window, LATENESS)).await;
        post(&api, kind, &clicks).await;
        let totals = harness::load::totals(&api, kind).await;
        assert_eq!(totals["dropped"], 0, "{kind}: {totals}");
        assert!(totals["late"].as_i64().unwrap() > 50, "{kind}: {totals}");
        let before = all(&api, kind).await;
        let states: BTreeSet<&str> = before.values().map(|(_, state)| &**state).collect();
        assert_eq!(states, ["closed", "fired", "open"].into(), "{kind}");
        let standing = super::standing(&api, kind).await;
        recount(&api, kind).await;
        let after = all(&api, kind).await;
        let differ = after
            .iter()
            .filter(|(key, told)| before.get(key) != Some(told));
        let differ: Vec<_> = differ.map(|(k, told)| (k, before.get(k), told)).collect();
        assert!(differ.is_empty(), "{kind}: {differ:?}");
        assert_eq!(after.len(), before.len(), "{kind}");
        assert_eq!(super::standing(&api, kind).await, standing, "{kind}");
        // And what comes afterwards is judged as ever.
        let newest = BASE + 40 * i64::try_from(CLICKS).unwrap();
        let more = json!([{"page": "/p0", "at": newest + 1000, "value": 1},
                          {"page": "/p0", "at": BASE - 100_000, "value": 1}]);
        let taken = api.clicks(kind, more).await;
        assert_eq!(
            (&taken["on_time"], &taken["dropped"]),
            (&1.into(), &1.into())
        );
    }
    swept(&database).await;
}

/// Windows that fired when the book was closed stay fired when it is reopened and counted again.
#[tokio::test]
async fn what_a_close_has_fired_stays_fired() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.book("b", book(&tumbling(7000), 20_000)).await;
    post(&api, "b", &clicks(3, 10_000)).await;
    for deed in ["close", "reopen"] {
        let path = format!("/v1/books/b/{deed}");
        api.post(&path, &Value::Null).await.expect(200);
    }
    let before = all(&api, "b").await;
    assert!(
        before.values().all(|(_, state)| state != "open"),
        "{before:?}"
    );
    recount(&api, "b").await;
    assert_eq!(all(&api, "b").await, before);
}

/// The most frequent of more items than are kept: never too high, and too low by the bound at most.
#[tokio::test]
async fn top_is_within_its_bound_after_a_recount_too() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "top", "group_by": "book", "aggregate": "top",
                     "window": tumbling(100_000_000)}],
        "settings": {"delay_ms": 0, "lateness_ms": 0, "max_future_ms": null, "idle_timeout_ms": null},
    });
    api.book("b", fields).await;
    let mut random = Random(4);
    let mut exact: BTreeMap<String, i64> = BTreeMap::new();
    let clicks = (0..20_000).map(|_| {
        // Ten pages have a good part of all clicks, three thousand others the rest.
        let page = if random.below(2) == 0 {
            random.below(10)
        } else {
            random.below(3000)
        };
        let page = format!("/p{page}");
        *exact.entry(page.clone()).or_default() += 1;
        json!({"page": page, "at": 1000})
    });
    let clicks: Vec<Value> = clicks.collect();
    for batch in clicks.chunks(5000) {
        api.clicks("b", Value::from(batch)).await;
    }
    for recounted in [false, true] {
        if recounted {
            recount(&api, "b").await;
        }
        let items = api.counts("b", "top").await;
        let top = items[0]["value"].as_array().unwrap();
        assert_eq!(top.len(), 10);
        for item in top {
            let (count, exact) = (
                item["count"].as_i64().unwrap(),
                exact[item["item"].as_str().unwrap()],
            );
            let bound = 20_000 / 257;
            assert!(count <= exact && count >= exact - bound, "{item}: {exact}");
        }
        let named: BTreeSet<&str> = top.iter().map(|i| i["item"].as_str().unwrap()).collect();
        let most = (0..10).map(|n| format!("/p{n}"));
        assert!(
            most.into_iter().all(|page| named.contains(&*page)),
            "{named:?}"
        );
    }
}

/// A book with no click has nothing to count again, and says so.
#[tokio::test]
async fn a_recount_of_nothing_is_done_at_once() {
    let (database, server): (Database, _) = harness::start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let before = super::standing(&api, "b").await;
    let id = begin(&api, "b").await;
    let run = ended(&api, "b", &id).await;
    assert_eq!(run["state"], "done", "{run}");
    assert_eq!(run["processed"], 0, "{run}");
    assert_eq!(super::standing(&api, "b").await, before);
    swept(&database).await;
}

/// Tens of thousands of windows that have not fired, in two sets of which the database knows nothing yet:
/// the swap holds the book's row, and must not compare each with each.
#[tokio::test]
async fn many_open_windows_are_swapped_as_soon_as_few() {
    let (database, server): (Database, _) = harness::start().await;
    let api = server.api();
    let rollup = json!({"name": "pages", "group_by": "page", "aggregate": "count", "window": tumbling(10_000)});
    let fields = json!({"rollups": [rollup], "settings": {"max_future_ms": null}});
    api.book("b", fields).await;
    super::fill(&database, "b", 40_000).await;
    for _ in 0..2 {
        let id = begin(&api, "b").await;
        let run = ended(&api, "b", &id).await;
        assert_eq!(
            (&run["state"], &run["processed"]),
            (&json!("done"), &json!(40_000))
        );
    }
    assert_eq!(
        database
            .number("SELECT count(*) FROM windows WHERE fired")
            .await,
        0
    );
}

/// What an import has counted stays as it is, and what came live before and after it too.
#[tokio::test]
async fn an_imported_log_is_counted_again_as_it_was() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let rollup = |name: &str, window: Value| json!({"name": name, "group_by": "page", "aggregate": "count", "window": window});
    let fields = json!({
        "rollups": [rollup("count", tumbling(3_600_000)), rollup("sum", sliding(7_200_000, 3_600_000)),
                    rollup("visits", session(1_800_000))],
        "settings": {"lateness_ms": 3_600_000, "max_future_ms": null, "idle_timeout_ms": null},
    });
    api.book("b", fields).await;
    let live = |at: &str| json!({"page": "/live", "at": at});
    for at in ["2015-05-18T10:00:00Z", "2015-05-19T10:00:00Z"] {
        api.clicks("b", live(at)).await;
    }
    let log = std::fs::read(crate::real_log::LOG).unwrap();
    let path = "/v1/books/b/imports?format=combined&source=access.log";
    let request = api.request(reqwest::Method::POST, path).body(log);
    let run = harness::Answer::of(request).await.expect(200);
    assert!(run["counted"].as_i64().unwrap() > 1000, "{run}");
    let late = api.clicks("b", live("2015-05-20T20:30:00Z")).await;
    assert_eq!(late["late"], 1, "{late}");
    let names = ["count", "sum", "visits"];
    let mut before = BTreeMap::new();
    for name in names {
        before.extend(counted(&api, "b", name).await);
    }
    let states: BTreeSet<&str> = before.values().map(|(_, state)| &**state).collect();
    assert_eq!(states, ["closed", "fired", "open"].into());
    let standing = super::standing(&api, "b").await;
    recount(&api, "b").await;
    let mut after = BTreeMap::new();
    for name in names {
        after.extend(counted(&api, "b", name).await);
    }
    assert_eq!(after, before);
    assert_eq!(super::standing(&api, "b").await, standing);
}
