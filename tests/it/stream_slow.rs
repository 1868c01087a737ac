//! Readers that do not read: the server keeps nothing for them, lets them go in time, and tells
//! those who come round what they have missed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::raw::Raw;
use crate::harness::steps::{buffered_book as start, streams_open};
use crate::harness::{Api, Server, until};

const EVENTS: &str = "/v1/books/b/events";
const MEGABYTE: i64 = 1024 * 1024;

/// Of a frame that [`big_frames`] makes, about.
const BIG: i64 = 240_000;

/// Posts clicks that make `frames` frames of about [`BIG`] bytes; gives the last position.
async fn big_frames(api: &Api, frames: i64) -> i64 {
    let page = |i: usize| format!("/{i:0>1999}");
    let clicks: Vec<Value> = (0..120)
        .map(|i| json!({"page": page(i), "at": 1000}))
        .collect();
    let clicks = json!(clicks);
    let mut position = 0;
    for _ in 0..frames {
        let answer = api.clicks("b", clicks.clone()).await;
        position = answer["position"].as_i64().unwrap();
    }
    position
}

/// A reader that keeps up. It looks at raw bytes: a parser would be slower than the server.
struct Reader {
    raw: Raw,
    position: i64,
}

impl Reader {
    async fn new(api: &Api) -> Self {
        let mut raw = Raw::get(api, EVENTS, "").await;
        raw.head().await;
        assert!(raw.chunk().await.unwrap().starts_with("event: hello\n"));
        Self { raw, position: 0 }
    }

    /// Reads on up to `position`, frame by frame; none may be missing.
    async fn through(&mut self, position: i64) {
        while self.position < position {
            let frame = self.raw.chunk().await.expect("the stream ended");
            self.position += 1;
            assert!(frame.starts_with("event: counts\n"));
            assert!(frame.ends_with(&format!("\nid: {}\n\n", self.position)));
        }
    }
}

/// Resident memory of the server, in bytes.
fn memory(server: &Server) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<i64>().unwrap() * 1024
}

#[tokio::test]
async fn a_reader_that_never_reads_costs_no_memory_and_is_cut_off() {
    let (_database, server, api) = start(16).await;
    // What the server needs for such clicks in any case.
    let mut reader = Reader::new(&api).await;
    let (last, ()) = tokio::join!(big_frames(&api, 20), reader.through(20));
    assert_eq!(last, 20);
    let before = memory(&server);
    let mut stuck = Raw::get_narrow(&api, EVENTS, "").await;
    stuck.head().await;
    assert_eq!(streams_open(&api, "b").await, 2);

    let frames = 70 * MEGABYTE / BIG;
    let mut most = 0;
    let mut expected = 20;
    for _ in 0..frames {
        big_frames(&api, 1).await;
        most = most.max(memory(&server));
        expected += 1;
        reader.through(expected).await;
    }
    let grown = most - before;
    eprintln!(
        "{} MiB, and {} MiB more",
        before / MEGABYTE,
        grown / MEGABYTE
    );
    assert!(grown < 40 * MEGABYTE, "{} MiB", grown / MEGABYTE);
    until("the reader that never reads is cut off", || async {
        (streams_open(&api, "b").await == 1).then_some(())
    })
    .await;
    big_frames(&api, 1).await;
    reader.through(expected + 1).await;
}

#[tokio::test]
async fn a_reader_that_never_reads_is_cut_off_on_http2_too() {
    let (_database, _server, api) = start(16).await;
    let builder = reqwest::Client::builder()
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(65_535)
        .http2_initial_connection_window_size(1024 * 1024);
    let http2 = Api {
        http: builder.build().unwrap(),
        ..api.clone()
    };
    let request = http2.request(reqwest::Method::GET, EVENTS);
    let stuck = request.send().await.unwrap();
    assert_eq!(stuck.status(), 200);
    assert_eq!(streams_open(&api, "b").await, 1);
    big_frames(&api, 40).await;
    until("the reader that never reads is cut off", || async {
        (streams_open(&api, "b").await == 0).then_some(())
    })
    .await;
    drop(stuck);
}

#[tokio::test]
async fn many_readers_that_replay_and_do_not_read_cost_little_memory() {
    let (_database, server, api) = start(1000).await;
    // Somebody keeps up, so that the newest frames are at hand.
    let mut reader = Reader::new(&api).await;
    let (last, ()) = tokio::join!(big_frames(&api, 60), reader.through(60));
    assert_eq!(last, 60);
    let before = memory(&server);
    let mut stuck = Vec::new();
    for _ in 0..80 {
        let mut one = Raw::get_narrow(&api, EVENTS, "last-event-id: 0\r\n").await;
        one.head().await;
        stuck.push(one);
    }
    assert_eq!(streams_open(&api, "b").await, 81);
    // While they are held and until they are cut off. On a busy machine it takes long until each has
    // been sent what it does not read.
    let mut most = 0;
    let cut_off = async {
        while streams_open(&api, "b").await > 1 {
            most = most.max(memory(&server));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let cut_off = tokio::time::timeout(Duration::from_mins(3), cut_off).await;
    cut_off.expect("they are cut off");
    let grown = most - before;
    eprintln!(
        "{} MiB, and {} MiB more",
        before / MEGABYTE,
        grown / MEGABYTE
    );
    assert!(
        grown < 25 * MEGABYTE,
        "{} MiB for 80 readers",
        grown / MEGABYTE
    );
}

#[tokio::test]
async fn a_cursor_that_is_pruned_while_its_reader_pauses_is_told_in_the_stream() {
    let (_database, _server, api) = start(16).await;
    let mut raw = Raw::get_narrow(&api, EVENTS, "").await;
    raw.head().await;
    raw.chunk().await.unwrap();
    // Far more than the buffer, and whatever the sockets hold.
    let began = std::time::Instant::now();
    let newest = big_frames(&api, 30).await;
    // Past ten seconds it would rightly be cut off.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );

    let mut cursor = 0;
    let resync = loop {
        let chunk = raw.chunk().await.expect("the stream ended");
        let (event, data, id) = parts(&chunk);
        if event == "resync_required" {
            // Told when the server last had room for it, which may be before the last frames.
            assert_eq!(data["position"], id);
            break data;
        }
        assert_eq!(event, "counts");
        assert!(id > cursor);
        cursor = id;
    };
    let position = resync["position"].as_i64().unwrap();
    let oldest = position - 15;
    let expected = json!({"reason": "pruned", "requested": cursor,
                          "oldest": oldest, "position": position});
    assert_eq!(resync, expected);
    assert!(cursor < oldest - 1, "it had not been pruned");

    // And on it goes, live.
    let next = big_frames(&api, 1).await;
    assert_eq!(next, newest + 1);
    for expected in position + 1..=next {
        let (event, _, id) = parts(&raw.chunk().await.unwrap());
        assert_eq!((event.as_str(), id), ("counts", expected));
    }
}

/// Event, data and id of a frame that has no `retry`.
fn parts(frame: &str) -> (String, Value, i64) {
    let field = |name: &str| {
        let line = frame.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {frame}"))
    };
    let data = serde_json::from_str(field("data: ")).unwrap();
    (
        field("event: ").to_owned(),
        data,
        field("id: ").parse().unwrap(),
    )
}
