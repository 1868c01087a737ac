//! Counts that are replaced wholesale: whoever follows the book is told, however busy it is.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::task::JoinSet;

use crate::harness;
use crate::harness::raw::Raw;
use crate::harness::steps::{frame_by_hand, single_clicks};

/// The frame that becomes the barrier.
const BARRIER: &str = ", barrier = position + 1";

#[tokio::test]
async fn a_reader_is_told_when_the_counts_are_replaced_under_it() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 3_600_000).await;
    single_clicks(&api, "b", 3).await;
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    frame_by_hand(&database, "status", BARRIER).await;
    let resync = events.expect("resync_required").await;
    let expected = json!({"reason": "replaced", "requested": 3, "oldest": 1, "position": 4});
    assert_eq!(resync.data, expected);
    assert_eq!(resync.id, "4");
    single_clicks(&api, "b", 1).await;
    assert_eq!(events.expect("counts").await.position(), Some(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_is_led_past_a_barrier_on_a_busy_book() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 3_600_000).await;
    let mut readers = JoinSet::new();
    for _ in 0..60 {
        let mut raw = Raw::get(&api, "/v1/books/b/events", "").await;
        raw.head().await;
        readers.spawn(async move {
            let mut resyncs = 0;
            while let Some(frame) = raw.chunk().await {
                // Whoever gets the barrier's own frame as one among others goes on counting from
                // what was replaced.
                assert!(
                    !frame.starts_with("event: status\n"),
                    "after {resyncs}: {frame}"
                );
                if frame.starts_with("event: resync_required\n") {
                    assert!(frame.contains("replaced"), "{frame}");
                    resyncs += 1;
                }
            }
            resyncs
        });
    }
    let done = AtomicBool::new(false);
    let busy = async {
        while !done.load(Ordering::SeqCst) {
            single_clicks(&api, "b", 1).await;
        }
    };
    let replaced = async {
        for _ in 0..100 {
            frame_by_hand(&database, "status", BARRIER).await;
        }
        done.store(true, Ordering::SeqCst);
    };
    tokio::join!(busy, replaced);
    api.delete("/v1/books/b").await.expect(204);
    while let Some(resyncs) = readers.join_next().await {
        assert!(resyncs.unwrap() > 0);
    }
}
