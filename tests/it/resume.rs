//! Connects while frames are written: everything after the cursor, once, in order; or one resync.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::sync::watch;

use crate::harness::Api;
use crate::harness::steps::{buffered_book, pages};

/// The largest that is not merged, so that each page is told once.
const BUFFER: i64 = 255;

/// What was written: page `/p{n}` stands in the frame at place n of the list.
#[derive(Debug)]
struct Written {
    positions: watch::Sender<Vec<i64>>,
    stop: AtomicBool,
}

impl Written {
    /// Waits until the book stands at `position`; gives where it is then.
    async fn reached(&self, position: i64) -> i64 {
        let mut positions = self.positions.subscribe();
        let there = |all: &Vec<i64>| all.last().is_some_and(|last| *last >= position);
        let there = positions.wait_for(there);
        let all = tokio::time::timeout(Duration::from_mins(1), there).await;
        *all.expect("the writer is too slow")
            .unwrap()
            .last()
            .unwrap()
    }

    /// The pages of the frames after `cursor` and up to `target`.
    fn pages(&self, cursor: i64, target: i64) -> BTreeSet<String> {
        let positions = self.positions.borrow();
        let all = positions.iter().enumerate();
        let wanted = all.filter(|(_, p)| **p > cursor && **p <= target);
        wanted.map(|(n, _)| format!("/p{n}")).collect()
    }
}

/// Posts one click after the other, each on a page of its own, until it is told to stop.
async fn write(api: Api, written: Arc<Written>) -> Duration {
    let began = Instant::now();
    let mut clicks = 0;
    while !written.stop.load(Ordering::SeqCst) {
        let click = json!({"page": format!("/p{clicks}"), "at": 1000});
        let answer = api.clicks("b", click).await;
        let position = answer["position"].as_i64().unwrap();
        written.positions.send_modify(|all| all.push(position));
        clicks += 1;
    }
    began.elapsed()
}

/// One reader: connects when the book has reached `moment`, with a cursor `back` behind it.
async fn resume(api: Api, written: Arc<Written>, moment: i64, back: i64) {
    let cursor = written.reached(moment).await - back;
    let mut events = api.follow("b", "", Some(&cursor.to_string())).await;
    let hello = events.expect("hello").await;
    assert_eq!(hello.data["mode"], "replay", "cursor {cursor}: {hello:?}");
    assert_eq!(hello.id, cursor.to_string());
    // Through the replay and on into what is live.
    let target = hello.data["position"].as_i64().unwrap() + 20;
    let frames = events.through(target).await;
    let mut last = cursor;
    for frame in &frames {
        let position = frame.position().unwrap_or_else(|| panic!("{frame:?}"));
        assert!(position > last, "{position} after {last}");
        last = position;
    }
    let told = pages(&frames);
    let once: BTreeSet<String> = told.iter().cloned().collect();
    assert_eq!(
        told.len(),
        once.len(),
        "cursor {cursor}: a frame came twice"
    );
    // Some of them may have been answered to the writer only after they were read.
    written.reached(last).await;
    let expected = written.pages(cursor, last);
    assert!(
        once == expected,
        "cursor {cursor}: {:?}",
        once.symmetric_difference(&expected)
    );
}

/// One reader whose cursor was pruned away.
async fn too_old(api: Api, written: Arc<Written>, moment: i64, cursor: i64) {
    written.reached(moment).await;
    let mut events = api.follow("b", "", Some(&cursor.to_string())).await;
    assert_eq!(events.expect("hello").await.data["mode"], "resync");
    let resync = events.expect("resync_required").await;
    assert_eq!(resync.data["reason"], "pruned");
    assert_eq!(resync.data["requested"], cursor);
    let oldest = resync.data["oldest"].as_i64().unwrap();
    assert!(cursor < oldest - 1);
    let position = resync.data["position"].as_i64().unwrap();
    assert_eq!(resync.id, position.to_string());
    assert!(position >= moment);
    // No part of what is still kept, and no second resync.
    let frames = events.through(position + 20).await;
    let mut last = position;
    for frame in &frames {
        let at = frame.position().unwrap_or_else(|| panic!("{frame:?}"));
        assert!(at > last, "{at} after {last}");
        last = at;
    }
    let told: BTreeSet<String> = pages(&frames).into_iter().collect();
    written.reached(last).await;
    assert!(told == written.pages(position, last));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_connects_beside_a_busy_writer_miss_nothing_and_see_nothing_twice() {
    let (_database, _server, api) = buffered_book(BUFFER).await;
    let written = Arc::new(Written {
        positions: watch::Sender::new(Vec::new()),
        stop: AtomicBool::new(false),
    });
    let writer = tokio::spawn(write(api.clone(), Arc::clone(&written)));

    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let moment = rng.random_range(BUFFER..1500);
        let back = rng.random_range(0..BUFFER / 2);
        readers.spawn(resume(api.clone(), Arc::clone(&written), moment, back));
    }
    for _ in 0..20 {
        let moment = rng.random_range(2 * BUFFER..1500);
        let cursor = rng.random_range(0..moment - BUFFER);
        readers.spawn(too_old(api.clone(), Arc::clone(&written), moment, cursor));
    }
    while let Some(reader) = readers.join_next().await {
        reader.unwrap();
    }
    written.stop.store(true, Ordering::SeqCst);
    let took = writer.await.unwrap().as_secs_f64();
    let frames = *written.positions.borrow().last().unwrap();
    #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
    let rate = frames as f64 / took;
    eprintln!("{frames} frames in {took:.1} s: {rate:.0} a second");
    // What it is depends on the machine; a writer that hardly writes would show nothing.
    assert!(rate >= 25.0, "{rate:.0} frames a second");
}
