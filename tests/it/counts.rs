//! Counts and snapshots.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::api::{Answer, Api};
use crate::harness::start;

/// A book with clicks on pages `/a` and `/b` in the windows 0 to 4 of a second each, one more on
/// `/a`.
async fn five_windows(api: &Api) {
    api.plain_book("b", 1000, 0).await;
    let pages = ["/a", "/a", "/b"];
    let clicks = (0..5).flat_map(|n| pages.map(|page| json!({"page": page, "at": n * 1000})));
    api.clicks("b", clicks.collect()).await;
}

/// The starts, in seconds, of what a query finds, with the groups.
async fn found(api: &Api, query: &[(&str, &str)]) -> Vec<(i64, String)> {
    let request = api.request(Method::GET, "/v1/books/b/counts");
    let request = request.query(&[("rollup", "pages")]).query(query);
    let page = Answer::of(request).await.expect(200);
    let place = |count: &Value| {
        let start = chrono::DateTime::parse_from_rfc3339(count["start"].as_str().unwrap());
        let group = count["group"].as_str().unwrap().to_owned();
        (start.unwrap().timestamp(), group)
    };
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(place)
        .collect()
}

#[tokio::test]
async fn counts_come_by_start_end_and_group() {
    let (_database, server) = start().await;
    let api = server.api();
    five_windows(&api).await;
    let counts = api.get("/v1/books/b/counts?rollup=pages&limit=3").await;
    let expected = json!([
        {"start": "1970-01-01T00:00:00.000Z", "end": "1970-01-01T00:00:01.000Z", "group": "/a",
         "value": 2, "state": "closed"},
        {"start": "1970-01-01T00:00:00.000Z", "end": "1970-01-01T00:00:01.000Z", "group": "/b",
         "value": 1, "state": "closed"},
        {"start": "1970-01-01T00:00:01.000Z", "end": "1970-01-01T00:00:02.000Z", "group": "/a",
         "value": 2, "state": "closed"},
    ]);
    assert_eq!(counts.expect(200)["items"], expected);
}

#[tokio::test]
async fn from_and_to_find_the_windows_that_overlap_them() {
    let (_database, server) = start().await;
    let api = server.api();
    five_windows(&api).await;
    let cases: [(&[(&str, &str)], &[i64]); 11] = [
        (&[], &[0, 1, 2, 3, 4]),
        (&[("from", "2000")], &[2, 3, 4]),
        (&[("from", "1999")], &[1, 2, 3, 4]),
        (&[("from", "2001")], &[2, 3, 4]),
        (&[("to", "2000")], &[0, 1]),
        (&[("to", "2001")], &[0, 1, 2]),
        (&[("from", "1000"), ("to", "3000")], &[1, 2]),
        (&[("from", "1500"), ("to", "1501")], &[1]),
        (&[("from", "5000")], &[]),
        (
            &[
                ("from", "0001-01-01T00:00:00Z"),
                ("to", "1970-01-01T00:00:00Z"),
            ],
            &[],
        ),
        (
            &[
                ("from", "1970-01-01T01:00:03+01:00"),
                ("to", "9999-12-31T23:59:59.999Z"),
            ],
            &[3, 4],
        ),
    ];
    for (query, starts) in cases {
        let expected = starts.iter();
        let expected: Vec<(i64, String)> = expected
            .flat_map(|start| ["/a", "/b"].map(|group| (*start, group.to_owned())))
            .collect();
        assert_eq!(found(&api, query).await, expected, "{query:?}");
    }
    let both = found(&api, &[("from", "3000"), ("group", "/b")]).await;
    assert_eq!(both, [(3, "/b".to_owned()), (4, "/b".to_owned())]);
}

/// Groups that need care in URLs, in CSV and in cursors.
const STRANGE: [&str; 9] = [
    " ",
    "a b c",
    "\"quoted\", and 'so'",
    "a,b;c",
    "%41%00+&=?#",
    "😀\u{2028}",
    "=1+1",
    "ZZ",
    "zz",
];

/// A book whose pages are [`STRANGE`], in two windows.
async fn strange_book(api: &Api) {
    api.plain_book("b", 1000, 0).await;
    let off = json!({"settings": {"canonical_pages": false}});
    api.patch("/v1/books/b", &off).await.expect(200);
    let clicks = [1, 1001].iter();
    let clicks = clicks.flat_map(|at| STRANGE.map(|page| json!({"page": page, "at": at})));
    let taken = api.clicks("b", clicks.collect()).await;
    assert_eq!(taken["on_time"], 18, "{taken}");
}

#[tokio::test]
async fn group_finds_one_group_whatever_it_is_called() {
    let (_database, server) = start().await;
    let api = server.api();
    strange_book(&api).await;
    for group in STRANGE {
        let expected = [(0, group.to_owned()), (1, group.to_owned())];
        assert_eq!(
            found(&api, &[("group", group)]).await,
            expected,
            "{group:?}"
        );
    }
    for group in ["", "a", "Zz", "a b"] {
        assert_eq!(found(&api, &[("group", group)]).await, [], "{group:?}");
    }
}

#[tokio::test]
async fn paging_gives_everything_once_in_the_same_order() {
    let (_database, server) = start().await;
    let api = server.api();
    strange_book(&api).await;
    let all = api.counts("b", "pages").await;
    assert_eq!(all.len(), 18);
    for limit in ["1", "7", "18"] {
        let mut paged: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let request = api.request(Method::GET, "/v1/books/b/counts");
            let mut request = request.query(&[("rollup", "pages"), ("limit", limit)]);
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let page = Answer::of(request).await.expect(200);
            let items = page["items"].as_array().unwrap();
            assert!(!items.is_empty());
            paged.extend(items.iter().cloned());
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(paged, all, "{limit} at a time");
    }
}

#[tokio::test]
async fn an_unknown_rollup_is_404_and_a_query_of_the_wrong_form_400() {
    let (_database, server) = start().await;
    let api = server.api();
    five_windows(&api).await;
    let answer = api.get("/v1/books/b/counts?rollup=none").await;
    assert!(answer.json()["detail"].as_str().unwrap().contains("pages"));
    assert_eq!(answer.problem(404), "not_found");
    let queries = [
        "",
        "rollup=pages&form=1000",
        "rollup=pages&from=yesterday",
        "rollup=pages&to=",
        "rollup=pages&from=253402300800000",
        "rollup=pages&limit=0",
        "rollup=pages&limit=1001",
        "rollup=pages&limit=ten",
        "rollup=pages&cursor=x",
        "rollup=pages&cursor=",
        "rollup=pages&cursor=eCB5IHo",
        "rollup=pages&cursor=MSAy",
    ];
    for query in queries {
        let answer = api.get(&format!("/v1/books/b/counts?{query}")).await;
        assert_eq!(answer.problem(400), "bad_query", "{query}");
    }
    for query in ["since=x", "from=0"] {
        let answer = api.get(&format!("/v1/books/b/snapshot?{query}")).await;
        assert_eq!(answer.problem(400), "bad_query", "{query}");
    }
}

async fn csv(api: &Api, query: &str) -> Vec<Vec<String>> {
    let request = api.request(
        Method::GET,
        &format!("/v1/books/b/counts?rollup=pages{query}"),
    );
    let answer = Answer::of(request.header("accept", "text/csv")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "text/csv; charset=utf-8");
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(answer.text.as_bytes());
    let rows = reader.records().map(|row| row.unwrap());
    rows.map(|row| row.iter().map(str::to_owned).collect())
        .collect()
}

#[tokio::test]
async fn csv_says_row_by_row_what_json_says() {
    let (_database, server) = start().await;
    let api = server.api();
    strange_book(&api).await;
    let header = ["start", "end", "group", "value", "state"];
    let rows = csv(&api, "").await;
    assert_eq!(rows[0], header);
    let counts = api.counts("b", "pages").await;
    assert_eq!(rows.len(), counts.len() + 1);
    for (row, count) in rows[1..].iter().zip(&counts) {
        let expected = header.map(|name| match &count[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        assert_eq!(*row, expected);
    }
    assert_eq!(csv(&api, "&limit=5").await, rows[..6]);
    assert_eq!(csv(&api, "&from=1000").await[1..], rows[10..]);
    assert_eq!(csv(&api, "&from=9000").await, [header]);
}

#[tokio::test]
async fn csv_has_no_limit_of_its_own() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = (0..2500).map(|n| json!({"page": format!("/{n}"), "at": 1}));
    api.clicks("b", clicks.collect()).await;
    let rows = csv(&api, "").await;
    assert_eq!(rows.len(), 2501);
    let counts = api.counts("b", "pages").await;
    let groups = counts.iter().map(|count| count["group"].as_str().unwrap());
    assert!(rows[1..].iter().map(|row| row[2].as_str()).eq(groups));
}

#[tokio::test]
async fn a_window_is_open_then_fired_then_closed() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 2000).await;
    for (at, state) in [
        (0, "open"),
        (999, "open"),
        (1000, "fired"),
        (2999, "fired"),
        (3000, "closed"),
    ] {
        api.clicks("b", json!({"page": "/a", "at": at})).await;
        let first = &api.counts("b", "pages").await[0];
        assert_eq!(first["state"], state, "at {at}");
        let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
        assert_eq!(snapshot["windows"][0]["state"], state, "at {at}");
    }
}

/// What a snapshot shows of a rollup, in the form of counts.
fn shown(snapshot: &Value) -> Vec<Value> {
    let windows = snapshot["windows"].as_array().unwrap().iter();
    let counts = windows.flat_map(|window| {
        let values = window["values"].as_object().unwrap().iter();
        values.map(|(group, value)| {
            json!({"start": window["start"], "end": window["end"], "state": window["state"],
                   "group": group, "value": value})
        })
    });
    counts.collect()
}

#[tokio::test]
async fn a_snapshot_holds_the_counts_and_the_book_as_they_are() {
    let (_database, server) = start().await;
    let api = server.api();
    five_windows(&api).await;
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(shown(&snapshot), api.counts("b", "pages").await);
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(snapshot["book"], book);
    for field in [
        "position",
        "oldest",
        "revision",
        "structure_version",
        "watermark",
        "at_rest",
    ] {
        assert_eq!(snapshot[field], book[field], "{field}");
    }
    let taken = api.clicks("b", json!({"page": "/c", "at": 4500})).await;
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    let place = (&snapshot["position"], &snapshot["revision"]);
    assert_eq!(place, (&taken["position"], &taken["revision"]));
    assert_eq!(shown(&snapshot), api.counts("b", "pages").await);
}

#[tokio::test]
async fn a_snapshot_shows_what_is_not_closed_and_the_60_newest_closed_windows() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 3000).await;
    let clicks = (0..100).map(|n| json!({"page": "/a", "at": n * 1000}));
    api.clicks("b", clicks.collect()).await;
    let counts = api.counts("b", "pages").await;
    let in_state = |state: &str| counts.iter().filter(|c| c["state"] == state).count();
    assert_eq!(
        (in_state("open"), in_state("fired"), in_state("closed")),
        (1, 3, 96)
    );
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(shown(&snapshot), counts[36..]);
}

#[tokio::test]
async fn since_shows_all_windows_that_end_after_it() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 3000).await;
    let clicks = (0..100).map(|n| json!({"page": "/a", "at": n * 1000}));
    api.clicks("b", clicks.collect()).await;
    let counts = api.counts("b", "pages").await;
    for (since, first) in [
        ("0", 0),
        ("1000", 1),
        ("1999", 1),
        ("2000", 2),
        ("98000", 98),
    ] {
        let path = format!("/v1/books/b/snapshot?since={since}");
        let snapshot = api.get(&path).await.expect(200);
        assert_eq!(shown(&snapshot), counts[first..], "since {since}");
    }
    let future = api
        .get("/v1/books/b/snapshot?since=100000")
        .await
        .expect(200);
    assert_eq!(future["windows"], json!([]));
}

#[tokio::test]
async fn of_a_window_with_more_than_a_thousand_groups_a_snapshot_shows_the_greatest() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let page = |n: i32| json!({"page": format!("/{n:04}"), "at": 1});
    // The last 200 of 1,100 pages are clicked twice; and a window of exactly 1,000 before them.
    let before = (0..1000).map(|n| json!({"page": format!("/{n:04}"), "at": -1}));
    let clicks = before
        .chain((0..1100).map(page))
        .chain((900..1100).map(page));
    api.clicks("b", clicks.collect()).await;
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    let windows = snapshot["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 2);
    assert_eq!(windows[0].get("truncated"), None);
    assert_eq!(windows[0]["values"].as_object().unwrap().len(), 1000);
    assert_eq!(windows[1]["truncated"], true);
    let values = &windows[1]["values"];
    let values: BTreeMap<String, i64> = serde_json::from_value(values.clone()).unwrap();
    assert_eq!(values.len(), 1000);
    assert!((900..1100).all(|n| values[&format!("/{n:04}")] == 2));
}
