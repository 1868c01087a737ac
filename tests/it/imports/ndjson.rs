//! Clicks one a line: half a day of the nineties, and lines that have ids of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use super::{DAY_MS, File, HOUR_MS, close, hours_book, import, newest_run, post_import};
use crate::harness::{self, Api};
use crate::independent::{self, Hours};
use crate::real_log::shown;

const REQUESTS: usize = 30_969;
const QUARTER_MS: i64 = 900_000;

fn table() -> String {
    independent::file("data/nasa_19950801.tsv")
}

/// The requests as clicks, one a line.
fn clicks() -> String {
    let script = independent::file("nasa_clicks.awk");
    let clicks = independent::run(Command::new("awk").args(["-f", &script, &table()]));
    assert_eq!(clicks.lines().count(), REQUESTS);
    clicks
}

/// How many hosts there were in each quarter of an hour.
fn hosts() -> BTreeMap<i64, usize> {
    let table = std::fs::read_to_string(table()).unwrap();
    let mut hosts: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
    for row in table.lines().skip(1) {
        let fields: Vec<&str> = row.split('\t').collect();
        let at = fields[2].parse::<i64>().unwrap() * 1000;
        let quarter = at.div_euclid(QUARTER_MS) * QUARTER_MS;
        hosts.entry(quarter).or_default().insert(fields[0]);
    }
    let hosts = hosts.into_iter();
    hosts
        .map(|(quarter, hosts)| (quarter, hosts.len()))
        .collect()
}

fn millis(time: &Value) -> i64 {
    let time = chrono::DateTime::parse_from_rfc3339(time.as_str().unwrap());
    time.unwrap().timestamp_millis()
}

/// Counts of a rollup by hour and page.
async fn by_hour(api: &Api, book: &str, rollup: &str) -> Hours {
    let mut hours = Hours::new();
    for item in api.counts(book, rollup).await {
        let hour = millis(&item["start"]).div_euclid(HOUR_MS) * HOUR_MS;
        let page = item["group"].as_str().unwrap().to_owned();
        *hours.entry((hour, page)).or_default() += item["value"].as_i64().unwrap();
    }
    hours
}

/// Counted now, with a watermark that is decades ahead.
async fn click_of_today(api: &Api, book: &str) {
    let taken = api.clicks(book, json!({"page": "/today"})).await;
    assert_eq!(taken["on_time"], 1, "{taken}");
    let old = api
        .clicks(book, json!({"page": "/old", "at": 807_256_800_000_i64}))
        .await;
    assert_eq!(old["dropped"], 1, "{old}");
}

#[tokio::test]
async fn half_a_day_of_1995_is_never_too_late() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("hours", HOUR_MS, 0).await;
    api.book("usual", json!({})).await;
    let file = File::new("nasa.ndjson", clicks());
    let expected = independent::count(&table());
    assert_eq!(
        expected.values().sum::<i64>(),
        i64::try_from(REQUESTS).unwrap()
    );
    for book in ["hours", "usual"] {
        click_of_today(&api, book).await;
        let arguments = ["--format", "ndjson", &file.arg()];
        for (counted, duplicates) in [(REQUESTS, 0), (0, REQUESTS)] {
            import(&database, book, &arguments).await.well();
            let run = newest_run(&api, book).await;
            assert_eq!(run["state"], "done", "{run}");
            assert_eq!(run["processed"], REQUESTS, "{run}");
            assert_eq!(run["counted"], counted, "{run}");
            assert_eq!(run["duplicates"], duplicates, "{run}");
            assert_eq!(run["rejected"], 0, "{run}");
        }
    }
    let of_1995 = |hours: Hours| -> Hours {
        let today = |((_, page), _): &((i64, String), i64)| page != "/today";
        hours.into_iter().filter(today).collect()
    };
    assert_eq!(of_1995(shown(&api, "hours").await), expected);
    for rollup in ["live", "pages"] {
        let counted = by_hour(&api, "usual", rollup).await;
        assert_eq!(of_1995(counted), expected, "{rollup}");
    }
    // All of it is long over.
    for item in api.counts("usual", "pages").await {
        let today = item["group"] == "/today";
        assert!(today || item["state"] == "closed", "{item}");
    }
    check_visitors(&api).await;
    let totals = api.get("/v1/books/usual").await.expect(200)["totals"].clone();
    assert_eq!(totals["dropped"], 1, "{totals}");
    close(&api, "usual").await;
}

/// Distinct hosts, of whom no quarter of an hour has as many as are only estimated.
async fn check_visitors(api: &Api) {
    let exact = hosts();
    assert!(exact.len() > 50 && exact.values().all(|hosts| *hosts <= 200));
    let counted = api.counts("usual", "visitors").await;
    let counted = counted.iter().map(|item| {
        let hosts = item["value"].as_u64().unwrap();
        (millis(&item["start"]), usize::try_from(hosts).unwrap())
    });
    assert_eq!(counted.collect::<BTreeMap<_, _>>(), exact);
}

#[tokio::test]
async fn a_line_s_own_id_wins_and_any_other_comes_from_its_place() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let known = json!({"id": "known", "page": "/known", "at": 1000});
    api.clicks("b", known.clone()).await;
    let plain = json!({"page": "/p", "at": 2000});
    // The same line twice is two clicks.
    let log = format!("{known}\n{plain}\n{plain}\n\nno json\n[]\n{{\"page\":\"\"}}\n");
    let query = "format=ndjson&source=s";
    let run = post_import(&api, "b", query, log.clone()).await.expect(200);
    let numbers = |run: &Value| ["counted", "duplicates", "rejected"].map(|n| run[n].clone());
    assert_eq!(numbers(&run), [2, 1, 3].map(Value::from), "{run}");
    let lines = run["rejections"].as_array().unwrap();
    let lines: Vec<i64> = lines.iter().map(|r| r["line"].as_i64().unwrap()).collect();
    assert_eq!(lines, [5, 6, 7], "{run}");
    let run = post_import(&api, "b", query, log.clone()).await.expect(200);
    assert_eq!(numbers(&run), [0, 3, 3].map(Value::from), "{run}");
    // Moved by one byte, a line without an id is another; one with an id is not.
    let moved = format!("\n{log}");
    let run = post_import(&api, "b", query, moved).await.expect(200);
    assert_eq!(numbers(&run), [2, 1, 3].map(Value::from), "{run}");
    // A line that was changed is another too, wherever it stands.
    let changed = log.replace("/p", "/q");
    let run = post_import(&api, "b", query, changed).await.expect(200);
    assert_eq!(numbers(&run), [2, 1, 3].map(Value::from), "{run}");
    let counts = harness::load::views(&api, "b").await;
    let expected = [("/known", 1), ("/p", 4), ("/q", 2)];
    let expected = expected.map(|(page, count)| (page.to_owned(), count));
    assert_eq!(counts, expected.into());
}

#[tokio::test]
async fn an_import_is_as_careful_with_clicks_as_a_post() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": HOUR_MS}}],
        "settings": {"lateness_ms": DAY_MS, "max_future_ms": 1000},
    });
    api.book("b", fields).await;
    let cases = [
        (
            json!({"page": "/a", "at": "2999-01-01T00:00:00Z"}),
            "too_far_ahead",
        ),
        (json!({"page": "/a", "at": "12026-01-01"}), "bad_time"),
        (json!({"page": "/a\u{0}", "at": 1}), "bad_character"),
        (json!({"page": "x".repeat(2049), "at": 1}), "page_too_long"),
        (json!({"page": "/a", "at": 1, "value": "7"}), "bad_value"),
        (json!({"pages": "/a"}), "wrong_shape"),
    ];
    let lines: Vec<String> = cases.iter().map(|(line, _)| line.to_string()).collect();
    let run = post_import(&api, "b", "format=ndjson&source=s", lines.join("\n") + "\n").await;
    let run = run.expect(200);
    assert_eq!(
        (&run["state"], &run["rejected"]),
        (&"done".into(), &cases.len().into())
    );
    let listed = run["rejections"].as_array().unwrap();
    for (rejection, (line, reason)) in listed.iter().zip(&cases) {
        let told = rejection["reason"].as_str().unwrap();
        assert!(told.contains(reason), "{line}: {told}");
    }
    assert_eq!(shown(&api, "b").await, Hours::new());
}
