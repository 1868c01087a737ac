//! All groups of a window together are what a rollup of the book as a whole counts.

use reqwest::Method;
use serde_json::{Value, json};

use super::{book, csv, paged, rollup, text, tumbling, with};
use crate::harness::{self, Answer, Api};

/// Rollups of every aggregate, grouped by `group_by`.
fn rollups(group_by: &str) -> Vec<Value> {
    let sliding = json!({"kind": "sliding", "size_ms": 2000, "slide_ms": 500});
    let mut rollups: Vec<Value> = ["count", "sum", "min", "max", "first", "last", "distinct"]
        .into_iter()
        .map(|aggregate| rollup(aggregate, group_by, aggregate, tumbling()))
        .collect();
    let mut top = rollup("top", group_by, "top", sliding);
    top["of"] = json!("visitor");
    rollups.push(top);
    rollups
}

/// The books `b`, counted by page, and `whole`, counted as such, with the same clicks in them.
async fn books(api: &Api) {
    for (slug, group_by) in [("b", "page"), ("whole", "book")] {
        let fields = json!({
            "rollups": rollups(group_by),
            "settings": {"delay_ms": 0, "lateness_ms": 4000, "max_future_ms": null,
                         "idle_timeout_ms": null},
        });
        api.book(slug, fields).await;
    }
    let mut dice: u64 = 11;
    let mut roll = |bound: u64| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    let mut at = 0;
    let clicks = (0..400).map(|_| {
        at += if roll(20) == 0 { 2500 } else { roll(80) };
        json!({"page": format!("/p{}", roll(30)), "at": at, "visitor": format!("v{}", roll(40)),
               "value": f64::from(u32::try_from(roll(90)).unwrap()) / 4.0 - 9.0})
    });
    let clicks: Value = clicks.collect();
    for slug in ["b", "whole"] {
        let taken = api.clicks(slug, clicks.clone()).await;
        assert_eq!(taken["on_time"], 400, "{taken}");
    }
}

/// What the book as a whole was counted.
async fn whole(api: &Api, query: &[(&str, &str)]) -> Vec<Value> {
    let path = "/v1/books/whole/counts";
    let request = api.request(Method::GET, path).query(query);
    let answer = Answer::of(request.query(&[("limit", "1000")])).await;
    let page = answer.expect(200);
    assert!(page["next_cursor"].is_null());
    page["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn groups_together_are_the_book_as_a_whole() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    books(&api).await;
    let ways: [&[(&str, &str)]; 7] = [
        &[],
        &[("from", "7300"), ("to", "14800")],
        &[("last", "3")],
        &[("merge", "true")],
        &[("merge", "true"), ("last", "5")],
        &[("interval", "hour"), ("tz", "Asia/Kathmandu")],
        &[("interval", "day"), ("last", "1")],
    ];
    for aggregate in [
        "count", "sum", "min", "max", "first", "last", "distinct", "top",
    ] {
        for way in ways {
            let overlap = way
                .iter()
                .any(|(name, _)| ["merge", "interval"].contains(name));
            if aggregate == "top" && overlap {
                continue;
            }
            let expected = whole(&api, &with(aggregate, way, &[])).await;
            assert!(!expected.is_empty(), "{aggregate} {way:?}");
            let query = with(aggregate, way, &[("groups", "total")]);
            for limit in [1, 3, 1000] {
                assert_eq!(paged(&api, &query, limit).await, expected, "{query:?}");
            }
            let rows = csv(&api, &query).await;
            assert_eq!(rows.len(), expected.len(), "{query:?}");
            for (row, item) in rows.iter().zip(&expected) {
                let columns = [&*row[0], &row[1], &row[2], &row[4]];
                let names = ["start", "end", "group", "state"];
                assert_eq!(columns, names.map(|name| text(item, name)));
                let value: Value = serde_json::from_str(&row[3]).unwrap();
                assert_eq!(value, item["value"], "{query:?}");
            }
        }
    }
    // One group's total is that group.
    let group = with("count", &[("group", "/p3")], &[]);
    let alone = paged(&api, &group, 1000).await;
    let total = paged(
        &api,
        &with("count", &[("group", "/p3")], &[("groups", "total")]),
        1000,
    )
    .await;
    let value = |items: &[Value]| items.iter().map(|i| i["value"].clone()).collect::<Vec<_>>();
    assert_eq!(value(&total), value(&alone));
    assert!(total.iter().all(|item| item["group"] == ""));
    // Groups that are asked for all are as they are without.
    let all = paged(&api, &with("count", &[], &[("groups", "all")]), 1000).await;
    assert_eq!(all, paged(&api, &with("count", &[], &[]), 1000).await);
}

#[tokio::test]
async fn sessions_of_all_groups_add_up() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api).await;
    let sum = |items: &[Value]| {
        items
            .iter()
            .map(|i| i["value"].as_i64().unwrap())
            .sum::<i64>()
    };
    let plain = paged(&api, &with("sessions", &[], &[]), 1000).await;
    let total = [("groups", "total")];
    for limit in [2, 1000] {
        let by_bounds = paged(&api, &with("sessions", &[], &total), limit).await;
        assert_eq!(sum(&by_bounds), sum(&plain));
    }
    let merged = with("sessions", &[("merge", "true")], &total);
    let merged = paged(&api, &merged, 1000).await;
    assert_eq!((merged.len(), sum(&merged)), (1, sum(&plain)));
}
