//! Ten thousand connections that ask for nothing.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::said;
use crate::harness::{Database, Server, until};

const CONNECTIONS: usize = 10_000;

/// Longest time that anybody else waits for an answer meanwhile, on a machine that does other things.
const QUICKLY: Duration = Duration::from_secs(2);

const MEGABYTE: usize = 1024 * 1024;

/// Lets this process, and those that it starts, open as many files as it may; how many that are.
fn allow_open_files() -> usize {
    let pid = std::process::id().to_string();
    let most = Command::new("prlimit")
        .args([
            "--pid",
            &pid,
            "--nofile",
            "--output",
            "HARD",
            "--noheadings",
        ])
        .output()
        .expect("prlimit is missing: it is in util-linux");
    let most = String::from_utf8(most.stdout).unwrap().trim().to_owned();
    let most: usize = most.parse().unwrap_or(1_000_000);
    let set = format!("--nofile={most}:{most}");
    let status = Command::new("prlimit").args(["--pid", &pid, &set]).status();
    assert!(status.unwrap().success());
    most
}

fn open_files(server: &Server) -> usize {
    let folder = format!("/proc/{}/fd", server.pid());
    std::fs::read_dir(folder).unwrap().count()
}

/// Resident memory of the server, in bytes.
fn memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_half_open_connections_keep_nobody_from_an_answer() {
    let connections = CONNECTIONS.min(allow_open_files() - 1000);
    let database = Database::create().await;
    let env = [("PAGETIDE_RECEIVE_TIMEOUT_MS", "15000")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let (before, files) = (memory(&server), open_files(&server));

    let beginnings: [&[u8]; 4] = [
        b"",
        b"P",
        b"GET / HTTP/1.1\r\nx: ",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    let mut open = Vec::with_capacity(connections);
    let mut slowest = Duration::ZERO;
    let mut answers = 0;
    for number in 0..connections {
        open.push(said(&api, beginnings[number % beginnings.len()]).await);
        if number % 100 == 99 {
            let began = Instant::now();
            // Over a connection of its own, which has to be accepted behind the others.
            let fresh = crate::harness::Api::new(&api.url, &api.token);
            fresh.clicks("b", json!({"page": "/a", "at": 1000})).await;
            slowest = slowest.max(began.elapsed());
            answers += 1;
        }
    }
    until("all are there", async || {
        (open_files(&server) >= files + connections).then_some(())
    })
    .await;
    let began = Instant::now();
    api.get("/v1/books/b/snapshot").await.expect(200);
    slowest = slowest.max(began.elapsed());
    let grown = memory(&server).saturating_sub(before);
    eprintln!(
        "{connections} connections of {CONNECTIONS}; {answers} clicks meanwhile, the slowest \
         answered in {slowest:?}; {} MiB more",
        grown / MEGABYTE
    );
    assert!(slowest < QUICKLY, "{slowest:?}");
    assert!(grown < 300 * MEGABYTE, "{} MiB", grown / MEGABYTE);
    // And they are let go.
    until("the server lets them go", async || {
        (open_files(&server) < files + 100).then_some(())
    })
    .await;
    let body = api.get("/v1/books/b").await.expect(200);
    assert_eq!(body["totals"]["on_time"], answers);
}

#[tokio::test]
async fn a_server_that_has_no_file_left_answers_again_once_the_silent_are_cut_off() {
    const FILES: usize = 150;
    let database = Database::create().await;
    let env = [("PAGETIDE_RECEIVE_TIMEOUT_MS", "2000")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let limit = Command::new("prlimit")
        .args(["--pid", &server.pid().to_string()])
        .arg(format!("--nofile={FILES}:{FILES}"))
        .status();
    assert!(limit.unwrap().success());
    let mut open = Vec::new();
    for _ in 0..2 * FILES {
        open.push(said(&api, b"GET / HTT").await);
    }
    until("no file is left", async || {
        (open_files(&server) >= FILES).then_some(())
    })
    .await;
    // It stands behind all of them.
    let fresh = crate::harness::Api::new(&api.url, &api.token);
    let began = Instant::now();
    let alive = fresh.get("/healthz");
    let alive = tokio::time::timeout(crate::harness::PATIENCE, alive).await;
    assert_eq!(alive.expect("it is not answered").status, 200);
    eprintln!("answered after {:?}", began.elapsed());
    fresh.clicks("b", json!({"page": "/a", "at": 1000})).await;
}
