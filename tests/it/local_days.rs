//! Counts by the local calendar, held against Python's zoneinfo.

use std::io::Write;
use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{self, Answer, Api};

const QUARTER_MS: i64 = 900_000;
const DAY_MS: i64 = 24 * 3_600_000;

/// Where clocks were changed: in Berlin, in Tehran (at midnight), on Lord Howe (by half an hour).
const CHANGES: [&str; 6] = [
    "2025-10-26T01:00:00Z",
    "2026-03-29T01:00:00Z",
    "2022-03-21T20:30:00Z",
    "2022-09-21T19:30:00Z",
    "2025-10-04T15:30:00Z",
    "2026-04-04T15:00:00Z",
];

fn millis(time: &str) -> i64 {
    chrono::DateTime::parse_from_rfc3339(time)
        .unwrap()
        .timestamp_millis()
}

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Clicks around the changes: many within hours of them, some within days.
fn clicks() -> Vec<(i64, String)> {
    let mut dice = Dice(20_260_329);
    let mut clicks = Vec::new();
    for change in CHANGES {
        for n in 0..200 {
            let reach = if n % 2 == 0 { DAY_MS / 6 } else { 9 * DAY_MS };
            let at = millis(change) - reach + dice.below(2 * reach);
            clicks.push((at, format!("/p{}", dice.below(3))));
        }
    }
    clicks
}

/// What the script counts: start, end, page, count.
fn by_zoneinfo(zone: &str, interval: &str, clicks: &[(i64, String)]) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/local_days.py");
    let mut child = Command::new("python3")
        .args([script, zone, interval])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for (at, page) in clicks {
        writeln!(input, "{at}\t{page}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// What the book shows, in the same form, by pages of `limit`.
async fn shown(api: &Api, zone: &str, interval: &str, more: &[(&str, &str)]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut cursor = String::new();
    loop {
        let mut query = vec![("rollup", "pages"), ("interval", interval), ("tz", zone)];
        query.extend(more);
        if !cursor.is_empty() {
            query.push(("cursor", &cursor));
        }
        let request = api.request(Method::GET, "/v1/books/b/counts").query(&query);
        let page = Answer::of(request).await.expect(200);
        for item in page["items"].as_array().unwrap() {
            let text = |name: &str| item[name].as_str().unwrap();
            let (start, end) = (millis(text("start")), millis(text("end")));
            let value = &item["value"];
            lines.push(format!("{start}\t{end}\t{}\t{value}", text("group")));
        }
        match page["next_cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return lines,
        }
    }
}

#[tokio::test]
async fn local_hours_days_weeks_and_months_are_those_of_zoneinfo() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", QUARTER_MS, 4000 * DAY_MS).await;
    let clicks = clicks();
    let posted = clicks
        .iter()
        .map(|(at, page)| json!({"page": page, "at": at}));
    let taken = api.clicks("b", posted.collect::<Value>()).await;
    assert_eq!(
        taken["on_time"].as_i64().unwrap() + taken["late"].as_i64().unwrap(),
        1200
    );
    for zone in [
        "Europe/Berlin",
        "Asia/Tehran",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "UTC",
    ] {
        for interval in ["hour", "day", "week", "month"] {
            let mut expected = by_zoneinfo(zone, interval, &clicks);
            let sort = |lines: &mut Vec<String>| {
                lines.sort_by_key(|line| {
                    let mut fields = line.split('\t');
                    let start: i64 = fields.next().unwrap().parse().unwrap();
                    (start, fields.nth(1).unwrap().to_owned())
                });
            };
            sort(&mut expected);
            let found = shown(&api, zone, interval, &[("limit", "1000")]).await;
            assert_eq!(found, expected, "{zone}, by {interval}");
            if interval != "hour" {
                let paged = shown(&api, zone, interval, &[("limit", "7")]).await;
                assert_eq!(paged, expected, "{zone}, by {interval}, 7 at a time");
            }
            let starts: std::collections::BTreeSet<i64> = expected
                .iter()
                .map(|line| line.split('\t').next().unwrap().parse().unwrap())
                .collect();
            // Years lie between some of them: buckets that are empty are passed over.
            for last in [1, 3, 70, 1000] {
                let begin = starts.iter().rev().take(last).min().unwrap();
                let newest = expected.iter().filter(|line| {
                    line.split('\t').next().unwrap().parse::<i64>().unwrap() >= *begin
                });
                let newest: Vec<String> = newest.cloned().collect();
                let query = [("limit", "1000"), ("last", &*last.to_string())];
                let found = shown(&api, zone, interval, &query).await;
                assert_eq!(found, newest, "{zone}, the last {last} by {interval}");
            }
        }
    }
}

/// Berlin's day of 25 hours, asked for as any client would.
#[tokio::test]
async fn a_window_may_not_straddle_two_buckets() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 3_600_000, DAY_MS).await;
    let query = |tz: &str, interval: &str| {
        format!("/v1/books/b/counts?rollup=pages&interval={interval}&tz={tz}")
    };
    for filled in [false, true] {
        if filled {
            let clicks = json!([{"page": "/a", "at": "2025-10-26T00:30:00+02:00"},
                                {"page": "/a", "at": "2025-10-26T23:30:00+01:00"}]);
            api.clicks("b", clicks).await;
        }
        for interval in ["hour", "day", "week", "month"] {
            let answer = api.get(&query("Asia/Kathmandu", interval)).await;
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("Asia/Kathmandu"), "{detail}");
            assert!(detail.contains("3600000"), "{detail}");
            assert_eq!(answer.problem(422), "unanswerable");
            api.get(&query("Europe/Berlin", interval)).await.expect(200);
        }
        // Kathmandu was five and a half hours ahead then.
        let path =
            query("Asia/Kathmandu", "day") + "&from=1980-01-01T00:00:00Z&to=1981-01-01T00:00:00Z";
        assert_eq!(api.get(&path).await.problem(422), "unanswerable");
    }
    let days = api.get(&query("Europe/Berlin", "day")).await.expect(200);
    let expected = json!([{"start": "2025-10-25T22:00:00.000Z", "end": "2025-10-26T23:00:00.000Z",
                           "group": "/a", "value": 2, "state": "open"}]);
    assert_eq!(days["items"], expected);
}

#[tokio::test]
async fn a_day_is_open_until_it_is_over() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 3_600_000, DAY_MS).await;
    let days = "/v1/books/b/counts?rollup=pages&interval=day&group=/a";
    for (at, state, cut) in [
        ("2026-01-01T06:00:00Z", "open", "open"),
        // All its windows have fired, but there may be more.
        ("2026-01-01T23:59:59Z", "open", "fired"),
        ("2026-01-02T00:00:00Z", "fired", "fired"),
        ("2026-01-02T23:59:59Z", "fired", "closed"),
        ("2026-01-03T00:00:00Z", "closed", "closed"),
    ] {
        let page = if at.contains("T06") { "/a" } else { "/b" };
        api.clicks("b", json!({"page": page, "at": at})).await;
        let found = api.get(days).await.expect(200);
        assert_eq!(found["items"][0]["state"], state, "at {at}");
        // Up to seven o'clock nothing more is wanted.
        let path = format!("{days}&to=2026-01-01T07:00:00Z");
        let found = api.get(&path).await.expect(200);
        assert_eq!(found["items"][0]["state"], cut, "until seven, at {at}");
    }
}
