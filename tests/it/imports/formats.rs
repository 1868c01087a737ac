//! The same log in other forms and by other ways counts as it did, once.

use std::io::Write;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{
    File, LONG, beginning, check_done, command, expected, expected_of_log, hours_book, import, log,
    newest_run, post_import,
};
use crate::consume::Job;
use crate::harness::{self, Answer};
use crate::independent::{PAGE_VIEWS, Rules};
use crate::real_log::shown;

fn gzip(parts: &[&[u8]]) -> Vec<u8> {
    let mut packed = Vec::new();
    for part in parts {
        // Each a member of its own, as where packed logs are joined.
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(part).unwrap();
        packed.extend(gzip.finish().unwrap());
    }
    packed
}

#[tokio::test]
async fn a_packed_log_is_the_log_that_was_packed() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let first = beginning(4000);
    let log = log();
    let packed = gzip(&[&first, &log[first.len()..]]);
    let file = File::new("access.log.gz", &packed);
    import(&database, "b", &["--format", "combined", &file.arg()])
        .await
        .well();
    let all = expected_of_log(PAGE_VIEWS);
    check_done(&newest_run(&api, "b").await, 10_000, &all, 0);
    assert_eq!(shown(&api, "b").await, all.counts);
    // The name without folder and `.gz` is the source.
    let plain = File::new("access.log", &log);
    import(&database, "b", &["--format", "combined", &plain.arg()])
        .await
        .well();
    check_done(&newest_run(&api, "b").await, 10_000, &all, all.views());

    // And so it is over HTTP.
    let path = "/v1/books/b/imports?format=combined&source=access.log";
    let packed_body = |bytes: &[u8]| {
        let request = api.request(Method::POST, path).body(bytes.to_vec());
        Answer::of(request.header("content-encoding", "gzip"))
    };
    let run = packed_body(&packed).await.expect(200);
    check_done(&run, 10_000, &all, all.views());
    packed_body(&packed[..packed.len() / 2]).await.problem(400);
    assert_eq!(newest_run(&api, "b").await["state"], "failed");

    // One that was cut says so; what it held until then counts.
    hours_book(&api, "cut").await;
    let cut = File::new("cut.log.gz", &packed[..packed.len() / 2]);
    let ended = import(&database, "cut", &["--format", "combined", &cut.arg()]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.said);
    let run = newest_run(&api, "cut").await;
    assert_eq!(run["state"], "failed", "{run}");
    let counted = run["counted"].as_i64().unwrap();
    let there: i64 = shown(&api, "cut").await.values().sum();
    assert_eq!(there, counted, "{run}");
    cut.write(packed);
    import(&database, "cut", &["--format", "combined", &cut.arg()])
        .await
        .well();
    check_done(&newest_run(&api, "cut").await, 10_000, &all, counted);
    assert_eq!(shown(&api, "cut").await, all.counts);
}

#[tokio::test]
async fn standard_input_is_a_source_by_the_name_that_it_is_given() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let arguments = ["--format", "combined", "--source", "access.log", "-"];
    let log = log();
    let all = expected_of_log(PAGE_VIEWS);
    for duplicates in [0, all.views()] {
        let mut command = command(&database, "b", &arguments);
        let mut job = Job::spawn(command.stdin(Stdio::piped()));
        let mut input = job.child().stdin.take().unwrap();
        input.write_all(&log).await.unwrap();
        drop(input);
        job.ended_within(LONG).await.well();
        check_done(&newest_run(&api, "b").await, 10_000, &all, duplicates);
    }
    let file = File::new("access.log", &log);
    import(&database, "b", &["--format", "combined", &file.arg()])
        .await
        .well();
    check_done(&newest_run(&api, "b").await, 10_000, &all, all.views());
    // Under another name it is another.
    let other = ["--format", "combined", "--source", "other", &file.arg()];
    import(&database, "b", &other).await.well();
    check_done(&newest_run(&api, "b").await, 10_000, &all, 0);
}

/// The parts of a line in the combined format that is as it must be.
struct Parts<'a> {
    before_request: &'a str,
    request: &'a str,
    status: &'a str,
    referrer: &'a str,
    agent: &'a str,
}

impl<'a> Parts<'a> {
    fn of(line: &'a str) -> Self {
        let fields: Vec<&str> = line.split('"').collect();
        let [before_request, request, status, referrer, _, agent, ""] = fields[..] else {
            panic!("a line of another form: {line}");
        };
        Self {
            before_request,
            request,
            status: status.trim(),
            referrer,
            agent,
        }
    }
}

/// The first thousand lines, none of which has an odd quotation mark.
fn thousand() -> String {
    String::from_utf8(beginning(1000)).unwrap()
}

#[tokio::test]
async fn the_common_format_knows_no_bots() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let combined = File::new("access.log", thousand());
    let common = thousand();
    let common = common.lines().map(|line| {
        let parts = Parts::of(line);
        let (before, request, status) = (parts.before_request, parts.request, parts.status);
        format!("{before}\"{request}\" {status}\n")
    });
    let query = "format=common&source=access.log";
    let run = post_import(&api, "b", query, common.collect::<String>()).await;
    let all = Rules {
        bots: true,
        ..PAGE_VIEWS
    };
    let expected = expected(&combined.path(), all);
    check_done(&run.expect(200), 1000, &expected, 0);
    assert_eq!(shown(&api, "b").await, expected.counts);
}

/// A line as Caddy would have written it.
fn caddy(line: &str) -> String {
    let parts = Parts::of(line);
    let (_, time) = parts.before_request.split_once('[').unwrap();
    let time = time.trim_end_matches("] ");
    let at = chrono::DateTime::parse_from_str(time, "%d/%b/%Y:%H:%M:%S %z").unwrap();
    let [method, uri, proto] = parts.request.split(' ').collect::<Vec<_>>()[..] else {
        panic!("a request of another form: {line}");
    };
    let status: u16 = parts.status.split(' ').next().unwrap().parse().unwrap();
    let mut headers = json!({"User-Agent": [parts.agent]});
    if parts.referrer != "-" {
        headers["Referer"] = json!([parts.referrer]);
    }
    #[allow(clippy::cast_precision_loss, reason = "seconds of this century")]
    let ts = at.timestamp() as f64 + 0.25;
    let request = json!({"remote_ip": "10.0.0.1", "proto": proto, "method": method,
                         "host": "example.org", "uri": uri, "headers": headers});
    let line = json!({"level": "info", "ts": ts, "logger": "http.log.access.log0",
                      "msg": "handled request", "request": request, "duration": 0.001,
                      "size": 10, "status": status, "resp_headers": {"Server": ["Caddy"]}});
    format!("{line}\n")
}

#[tokio::test]
async fn a_log_of_caddy_counts_as_the_combined_log_that_it_was_made_of() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let combined = File::new("access.log", thousand());
    let log: String = thousand().lines().map(caddy).collect();
    let file = File::new("caddy.log", log);
    import(&database, "b", &["--format", "caddy", &file.arg()])
        .await
        .well();
    let expected = expected(&combined.path(), PAGE_VIEWS);
    check_done(&newest_run(&api, "b").await, 1000, &expected, 0);
    assert_eq!(shown(&api, "b").await, expected.counts);
}

/// Referrers go with the clicks, whichever the format.
#[tokio::test]
async fn referrers_of_a_log_are_counted_by_host() {
    let (database, server) = harness::start().await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "referrers", "group_by": "referrer", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": super::DAY_MS}}],
        "settings": {"lateness_ms": super::DAY_MS, "max_future_ms": null},
    });
    let log: String = thousand().lines().map(caddy).collect();
    for (book, format, log) in [("b", "combined", thousand()), ("c", "caddy", log)] {
        api.book(book, fields.clone()).await;
        let file = File::new("access.log", log);
        import(&database, book, &["--format", format, &file.arg()])
            .await
            .well();
    }
    let counted = api.counts("b", "referrers").await;
    assert_eq!(counted, api.counts("c", "referrers").await);
    let with_referrer = "SELECT count(*) FROM clicks c JOIN books b ON b.id = c.book_id
                         WHERE b.slug = 'b' AND c.referrer IS NOT NULL";
    let sum: i64 = counted.iter().map(|c| c["value"].as_i64().unwrap()).sum();
    assert_eq!(sum, database.number(with_referrer).await);
    assert!(sum > 20, "{counted:?}");
}
