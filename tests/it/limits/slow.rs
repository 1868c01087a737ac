//! Clients that send slowly, or nothing.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{connect, head, said, until_closed};
use crate::harness::raw::Raw;
use crate::harness::{Api, Database, PATIENCE, Server};

/// How long a client of these servers may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// When it is cut off at the latest, on a machine that does other things too.
const AT_LAST: Duration = Duration::from_secs(10);

async fn start() -> (Database, Server, Api) {
    let database = Database::create().await;
    let env = [
        ("PAGETIDE_RECEIVE_TIMEOUT_MS", "1000"),
        ("PAGETIDE_HEARTBEAT_MS", "200"),
    ];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    (database, server, api)
}

/// Sends `bytes` one by one, slower than anybody types, until the server has had enough; what it
/// said.
async fn drip(stream: TcpStream, bytes: &[u8]) -> String {
    let (mut reader, mut writer) = stream.into_split();
    let dripping = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for byte in bytes {
            ticks.tick().await;
            if writer.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut text = Vec::new();
    let reading = tokio::time::timeout(PATIENCE, reader.read_to_end(&mut text));
    tokio::select! {
        read = reading => drop(read.expect("the server waits for ever")),
        () = dripping => unreachable!(),
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn whoever_sends_no_whole_head_in_time_is_cut_off() {
    let (_database, _server, api) = start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [&preface[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let beginnings: [&[u8]; 7] = [
        b"",
        b"P",
        &preface[..10],
        preface,
        &settings,
        b"GET /healthz HTT",
        b"GET /healthz HTTP/1.1\r\nhost: b\r\n",
    ];
    for beginning in beginnings {
        let began = Instant::now();
        let mut stream = said(&api, beginning).await;
        let text = until_closed(&mut stream).await;
        let took = began.elapsed();
        let shown = String::from_utf8_lossy(beginning);
        assert!(!text.contains("200 OK"), "{shown}: {text}");
        assert!(took >= TIMEOUT && took < AT_LAST, "{shown}: {took:?}");
    }
    let slow =
        b"GET /healthz HTTP/1.1\r\nhost: b\r\nx-padding: it goes on and on and on and on\r\n\r\n";
    let began = Instant::now();
    let text = drip(connect(&api).await, slow).await;
    assert!(!text.contains("200 OK"), "{text}");
    assert!(began.elapsed() < AT_LAST);
    // A connection that has nothing more to say.
    let mut idle = said(&api, b"GET /healthz HTTP/1.1\r\nhost: b\r\n\r\n").await;
    let text = until_closed(&mut idle).await;
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
}

#[tokio::test]
async fn whoever_sends_no_whole_body_in_time_is_told() {
    let (_database, _server, api) = start().await;
    let line = json!({"page": "/a", "at": 1000}).to_string();
    for sent in ["", &*line] {
        let began = Instant::now();
        let mut stream = said(&api, head(&api, 1000).as_bytes()).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let text = until_closed(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 408"), "{text}");
        assert!(text.contains(r#""code":"timeout""#), "{text}");
        assert!(began.elapsed() < AT_LAST);
    }
    let began = Instant::now();
    let stream = said(&api, head(&api, 1000).as_bytes()).await;
    let text = drip(stream, line.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    assert!(began.elapsed() < AT_LAST);
    let body = api.get("/v1/books/b").await.expect(200);
    assert_eq!(body["totals"]["received"], 0);
}

#[tokio::test]
async fn a_body_that_keeps_coming_may_take_longer() {
    let (_database, _server, api) = start().await;
    let line = format!("{}\n", json!({"page": "/a", "at": 1000}));
    let lines = 20 * 4096 / line.len();
    let body = line.repeat(lines);
    let began = Instant::now();
    let mut stream = said(&api, head(&api, body.len()).as_bytes()).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(150));
    for part in body.as_bytes().chunks(4096) {
        ticks.tick().await;
        stream.write_all(part).await.unwrap();
    }
    let text = until_closed(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(began.elapsed() > 2 * TIMEOUT, "{:?}", began.elapsed());
    let body = api.get("/v1/books/b").await.expect(200);
    assert_eq!(body["totals"]["on_time"], lines);
}

#[tokio::test]
async fn a_stream_is_no_slow_client() {
    let (_database, _server, api) = start().await;
    let mut raw = Raw::get(&api, "/v1/books/b/events", "").await;
    raw.head().await;
    let began = Instant::now();
    while began.elapsed() < 3 * TIMEOUT {
        assert!(raw.chunk().await.is_some(), "it was cut off");
    }
    api.clicks("b", json!({"page": "/a", "at": 1000})).await;
    loop {
        let chunk = raw.chunk().await.expect("it was cut off");
        if chunk.starts_with("event: counts\n") {
            break;
        }
    }
}
