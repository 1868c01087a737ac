//! Lines one by one: what each kind gives, and which cannot be read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{File, HOUR_MS, check_done, expected, hours_book, import, newest_run, post_import};
use crate::harness;
use crate::independent::PAGE_VIEWS;
use crate::real_log::shown;

/// A request that counts, at a time as the log writes it.
fn line(time: &str, target: &str) -> String {
    format!("10.1.2.3 - - [{time}] \"GET {target} HTTP/1.1\" 200 10 \"-\" \"Mozilla/5.0\"\n")
}

const NOON: &str = "01/Mar/2026:12:00:00 +0000";
const NOON_MS: i64 = 1_772_366_400_000;

/// What is shown of a book into which `log` was imported over HTTP, as (hours after noon, page).
async fn pages_of(log: &[u8]) -> BTreeMap<(i64, String), i64> {
    let (_database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let query = "format=combined&source=access.log";
    let run = post_import(&api, "b", query, log.to_vec())
        .await
        .expect(200);
    assert_eq!(run["state"], "done", "{run}");
    assert_eq!(run["rejected"], 0, "{run}");
    let shown = shown(&api, "b").await.into_iter();
    shown
        .map(|((start, page), count)| (((start - NOON_MS) / HOUR_MS, page), count))
        .collect()
}

fn counts(expected: &[(i64, &str, i64)]) -> BTreeMap<(i64, String), i64> {
    let counts = expected.iter();
    counts
        .map(|(hour, page, count)| ((*hour, (*page).to_owned()), *count))
        .collect()
}

#[tokio::test]
async fn times_of_any_zone_fall_into_their_hours() {
    let times = [
        ("01/Mar/2026:12:00:00 +0000", "/0"),
        ("01/Mar/2026:15:29:59 +0330", "/-1"),
        ("01/Mar/2026:15:30:00 +0330", "/0"),
        ("28/Feb/2026:23:59:59 -1200", "/-1"),
        ("01/Mar/2026:00:00:00 -1200", "/0"),
        ("02/Mar/2026:02:00:00 +1400", "/0"),
        ("01/Mar/2026:08:59:60 -0400", "/0"),
        ("01/Mar/2026:09:00:00 -0400", "/1"),
    ];
    let log: String = times.iter().map(|(time, page)| line(time, page)).collect();
    let expected = [(-1, "/-1", 2), (0, "/0", 5), (1, "/1", 1)];
    assert_eq!(pages_of(log.as_bytes()).await, counts(&expected));
}

#[tokio::test]
async fn escapes_that_are_no_text_stay_escapes_and_raw_bytes_become_some() {
    let mut log = Vec::new();
    // Windows-1251, as an escape, as the log escapes it, and as it was sent.
    log.extend(line(NOON, "/%e8%f1").bytes());
    log.extend(line(NOON, r"/\xe8\xf1").bytes());
    let raw = line(NOON, "/RAW");
    let (before, after) = raw.split_once("RAW").unwrap();
    log.extend([before.as_bytes(), b"\xe8\xf1", after.as_bytes()].concat());
    // Text, in the same three ways.
    log.extend(line(NOON, "/%c3%a4.html").bytes());
    log.extend(line(NOON, r"/\xc3\xa4").bytes());
    log.extend(line(NOON, "/ä/").bytes());
    // What the log escaped and what the browser did.
    log.extend(line(NOON, r#"/\"q\\"#).bytes());
    log.extend(line(NOON, "/%22q%5C").bytes());
    // An escape that was cut, and one that is none.
    log.extend(line(NOON, "/100%").bytes());
    log.extend(line(NOON, "/100%25").bytes());
    log.extend(line(NOON, "/%7Eann/%41?q=%e8#x").bytes());
    let expected = [
        (0, "/%E8%F1", 3),
        (0, "/%C3%A4", 3),
        (0, "/%22q%5C", 2),
        (0, "/100%25", 2),
        (0, "/~ann/A", 1),
    ];
    assert_eq!(pages_of(&log).await, counts(&expected));
}

#[tokio::test]
async fn lines_that_cannot_be_read_are_counted_and_the_first_hundred_listed() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let unreadable = [
        "garbage\n".to_owned(),
        format!("10.1.2.3 - - [{NOON}] \"-\" 408 0 \"-\" \"-\"\n"),
        line("31/Feb/2026:12:00:00 +0000", "/a"),
        line("01/Mrz/2026:12:00:00 +0000", "/a"),
    ];
    // One good line before each that is not, 125 of these.
    let pairs = (0..125).map(|n| line(NOON, &format!("/{n}")) + &unreadable[n % 4]);
    let file = File::new("access.log", pairs.collect::<String>());
    let said = import(&database, "b", &["--format", "combined", &file.arg()]).await;
    assert_eq!(said.code, Some(0), "{}", said.said);
    let run = newest_run(&api, "b").await;
    let expected = expected(&file.path(), PAGE_VIEWS);
    let bad: Vec<i64> = (1..=125).map(|n| 2 * n).collect();
    assert_eq!(expected.rejected, bad);
    check_done(&run, 250, &expected, 0);
    let reasons: Vec<&str> = run["rejections"].as_array().unwrap()[..4]
        .iter()
        .map(|rejection| rejection["reason"].as_str().unwrap())
        .collect();
    for (reason, word) in reasons.iter().zip(["time", "request", "time", "time"]) {
        assert!(reason.contains(word), "{word}: {reasons:?}");
    }
    // Whoever looks at the terminal hears of them too.
    for told in [
        "line 2 rejected: ",
        "line 20 rejected: ",
        "further rejected lines are only counted",
        "125 rejected",
    ] {
        assert!(said.said.contains(told), "{told}: {}", said.said);
    }
    // In the list of runs they would be too much.
    let listed = super::runs(&api, "b").await;
    assert_eq!(listed[0].get("rejections"), None, "{}", listed[0]);
    assert_eq!(listed[0]["rejected"], 125);
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["totals"]["rejected"], 125);
}

#[tokio::test]
async fn a_line_without_an_end_and_blank_ones_are_lines() {
    let log = format!("{}\r\n\n{}", line(NOON, "/a").trim_end(), line(NOON, "/b"));
    let shown = pages_of(log.trim_end().as_bytes()).await;
    assert_eq!(shown, counts(&[(0, "/a", 1), (0, "/b", 1)]));
}

#[derive(Deserialize)]
struct Case {
    format: String,
    line: String,
    outcome: Vec<Value>,
}

/// All golden lines of a format make one log.
#[tokio::test]
async fn golden_lines_give_what_they_must() {
    let cases = include_str!("../../golden/log_lines.json");
    let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
    assert!(cases.len() >= 33);
    let (_database, server) = harness::start().await;
    let api = server.api();
    for format in ["combined", "common", "caddy"] {
        hours_book(&api, format).await;
        let of_format = cases.iter().filter(|case| case.format == format);
        let of_format: Vec<&Case> = of_format.collect();
        let log = of_format.iter().map(|case| case.line.clone() + "\n");
        let query = format!("format={format}&source=golden");
        let run = post_import(&api, format, &query, log.collect::<String>()).await;
        let run = run.expect(200);

        let mut views: BTreeMap<(i64, String), i64> = BTreeMap::new();
        let mut skipped: BTreeMap<&str, i64> = BTreeMap::new();
        let mut rejected = Vec::new();
        for (number, case) in (1..).zip(&of_format) {
            match case.outcome[0].as_str().unwrap() {
                "view" => {
                    let at = case.outcome[1].as_str().unwrap();
                    let at = chrono::DateTime::parse_from_rfc3339(at).unwrap();
                    let hour = at.timestamp_millis().div_euclid(HOUR_MS) * HOUR_MS;
                    let target = case.outcome[2].as_str().unwrap();
                    let page = target.split('?').next().unwrap();
                    let page = if page == "/" {
                        page
                    } else {
                        page.trim_end_matches('/')
                    };
                    *views.entry((hour, page.to_owned())).or_default() += 1;
                }
                "skipped" => {
                    *skipped
                        .entry(case.outcome[1].as_str().unwrap())
                        .or_default() += 1;
                }
                "rejected" => rejected.push(number),
                other => panic!("an outcome that nobody knows: {other}"),
            }
        }
        assert_eq!(shown(&api, format).await, views, "{format}");
        for (rule, lines) in skipped {
            assert_eq!(run["skipped"][rule], lines, "{format}: {run}");
        }
        let listed = run["rejections"].as_array().unwrap();
        let listed: Vec<i64> = listed.iter().map(|r| r["line"].as_i64().unwrap()).collect();
        assert_eq!(listed, rejected, "{format}: {run}");
    }
}
