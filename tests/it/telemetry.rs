//! What the program tells about itself.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::harness::{Answer, Api, Database, Server, start};

#[tokio::test]
async fn a_commit_is_logged_below_the_request_that_it_is_for() {
    let database = Database::create().await;
    let mut command = Server::command();
    command
        .env("DATABASE_URL", database.url())
        .env("PAGETIDE_ADMIN_TOKEN", "an-admin-token-of-this-test")
        .env("PAGETIDE_LOG", "pagetide=debug")
        .env("PAGETIDE_LOG_FORMAT", "json")
        .stderr(Stdio::piped());
    let mut server = Server::spawn(command).await;
    let mut lines = BufReader::new(server.stderr().unwrap()).lines();
    let api = Api::new(&server.url, "an-admin-token-of-this-test");
    api.plain_book("b", 60_000, 60_000).await;
    let post = api
        .http
        .post(format!("{}/v1/books/b/clicks?key=pt_secret", api.url));
    let post = post
        .bearer_auth(&api.token)
        .header("x-request-id", "the-request");
    let answer = post
        .json(&json!({"page": "/a", "at": 1000}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-request-id"], "the-request");
    let committed = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        assert!(
            !line.contains("pt_secret") && !line.contains("an-admin-token"),
            "{line}"
        );
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["message"] == "committed" && line["clicks"] == 1 {
            break line;
        }
    };
    let spans = committed["spans"].as_array().unwrap();
    let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
    assert_eq!(names, ["request", "commit"], "{committed}");
    assert_eq!(spans[0]["id"], "the-request");
    assert_eq!(spans[0]["path"], "/v1/books/b/clicks");
}

#[tokio::test]
async fn the_metrics_have_what_an_operator_asks_for() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let mut stream = api.follow("b", "", None).await;
    stream.expect("hello").await;
    let clicks = json!([{"id": "x", "page": "/a", "at": 1000}, {"id": "x", "page": "/a", "at": 1000},
                        {"page": ""}]);
    api.clicks("b", clicks).await;
    stream.expect("counts").await;
    let text = api.get("/metrics").await.text;
    for line in [
        "pagetide_clicks_total{status=\"on_time\"} 1",
        "pagetide_clicks_total{status=\"duplicate\"} 1",
        "pagetide_clicks_total{status=\"rejected\"} 1",
        "pagetide_commits_total 1",
        "pagetide_commit_seconds_count 1",
        "pagetide_commit_clicks_sum 3",
        "pagetide_frames_minted_total 1",
        "pagetide_frames_sent_total 1",
        "pagetide_streams_open 1",
        // The minute's end.
        "pagetide_book_oldest_open_window_end_timestamp_seconds{book=\"b\"} 60",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    let lag = "pagetide_book_watermark_lag_seconds{book=\"b\"} ";
    let lag = text
        .lines()
        .find_map(|line| line.strip_prefix(lag))
        .unwrap();
    // From 1970 to now.
    assert!(lag.parse::<f64>().unwrap() > 1e9, "{lag}");
    for name in [
        "pagetide_lane_queue_requests{lane=",
        "pagetide_frames_pruned_total",
    ] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
    // Each is described, once.
    for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
        assert_eq!(text.matches(&format!("{line}\n")).count(), 1, "{line}");
    }
}

#[tokio::test]
async fn the_metrics_are_for_admins_or_on_an_address_of_their_own() {
    let database = Database::create().await;
    let env = [("PAGETIDE_METRICS_LISTEN", "127.0.0.1:0")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", json!({"page": "/a", "at": 1})).await;
    let mut said = server.said.iter();
    let open = said.find_map(|line| line.strip_prefix("metrics, open to anyone, on "));
    let open = open.expect("it does not say where the metrics are");
    let answer = Answer::of(api.http.get(open)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text.contains("pagetide_commits_total 1\n"));
    // Nothing else is there, whoever asks.
    let root = open.strip_suffix("/metrics").unwrap();
    for path in ["/v1/books", "/healthz", "/openapi.json", "/"] {
        let request = api.http.get(format!("{root}{path}"));
        let answer = Answer::of(request.bearer_auth(&api.token)).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    let elsewhere = api.http.get(format!("{}/metrics", server.url));
    assert_eq!(Answer::of(elsewhere).await.problem(401), "unauthorized");
    assert_eq!(api.get("/metrics").await.status, 200);
}
