//! Large buffers, whose older half is merged: a reader that was away for long comes to the same
//! numbers as one that was not, wherever it stood, and the buffer stays bounded.
//!
//! What is merged hangs on when frames are minted, so the clicks are committed by the test itself,
//! by a clock of its own; real servers stream them.

mod busy;

use std::collections::BTreeMap;

use serde_json::json;

use self::busy::{Busy, check_bounds, follow, parts, told};
use crate::harness::Server;
use crate::harness::steps::{Known, buffered_book};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_away_for_long_comes_to_the_same_numbers_from_anywhere() {
    const BUFFER: i64 = 512;
    let mut busy = Busy::start(BUFFER, 47, 2).await;
    for n in 0..1500 {
        busy.click().await;
        if n % 100 == 0 {
            busy.check_bounds(BUFFER).await;
        }
        if n % 500 == 499 {
            busy.rename().await;
        }
    }
    busy.check_bounds(BUFFER).await;
    busy.tell().await;
    busy.agrees_with_a_snapshot().await;
    let (rows, oldest) = (busy.rows().await, busy.oldest().await);
    eprintln!("{rows} rows for all from {oldest} to {}", busy.position);
    // 15 s are there, in which the buffer would have been overrun twice.
    assert_eq!(oldest, 1);
    // The newest half and a step, and before that a frame for each quarter of a second.
    assert!(rows <= BUFFER / 2 + 128 + 15 * 4 + 16, "{rows} rows");

    // One that has its frames from when they were new, and one that has just come.
    let other = Server::start(&busy.database).await;
    for cursor in busy.cursors(oldest) {
        let held = busy.resumes(&busy.server.api(), cursor).await;
        assert_eq!(held, busy.position - cursor);
        let read = busy.resumes(&other.api(), cursor).await;
        assert!(read <= rows);
    }
}

/// The frames that a process holds begin within a stretch that is one frame in the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_what_a_process_holds_and_what_was_merged() {
    let mut busy = Busy::start(512, 53, 1800).await;
    for _ in 0..1100 {
        busy.click().await;
    }
    busy.tell().await;
    busy.agrees_with_a_snapshot().await;
    let oldest = busy.oldest().await;
    let api = busy.server.api();
    let mut joined = 0;
    for cursor in busy.cursors(oldest) {
        let frames = busy.resumes(&api, cursor).await;
        let merged = format!("SELECT count(*) FROM frames WHERE position > {cursor}");
        let merged = busy.number(&merged).await;
        // Some as they were, some merged.
        if (merged + 1..busy.position - cursor).contains(&frames) {
            joined += 1;
        }
    }
    assert!(joined > 0, "nobody came from the table to what is held");
}

/// Frames that cannot be merged fill the buffer, so that much is pruned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merged_buffer_is_bounded_and_says_what_was_pruned() {
    const BUFFER: i64 = 256;
    let mut busy = Busy::start(BUFFER, 1, 2).await;
    for n in 0..900 {
        busy.click().await;
        if n % 4 == 3 {
            busy.rename().await;
        }
        if n % 30 == 0 {
            busy.check_bounds(BUFFER).await;
        }
    }
    busy.tell().await;
    let (position, oldest) = (busy.position, busy.oldest().await);
    // Two of five are left in the older half.
    assert!(busy.rows().await >= BUFFER);
    assert!(oldest > 1 && position - oldest > BUFFER + BUFFER / 4);
    let other = Server::start(&busy.database).await;
    for api in [busy.server.api(), other.api()] {
        for cursor in [oldest - 1, oldest, oldest + 1, oldest + 100, position - 1] {
            busy.resumes(&api, cursor).await;
        }
        let (mut raw, hello) = follow(&api, oldest - 2).await;
        assert_eq!(hello["mode"], "resync");
        let chunk = told(&mut raw).await;
        let (event, data, id) = parts(&chunk);
        assert_eq!((event, id), ("resync_required", Some(position)));
        let expected = json!({"reason": "pruned", "requested": oldest - 2, "oldest": oldest,
                              "position": position});
        assert_eq!(data, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buffer_is_as_large_as_it_is_set_at_once_and_loses_nothing_by_it() {
    let mut busy = Busy::start(1000, 23, 2).await;
    for size in [1000, 256, 100, 16, 600, 256] {
        busy.resize(size).await;
        busy.check_bounds(size).await;
        for n in 0..300 {
            busy.click().await;
            if n % 60 == 0 {
                busy.check_bounds(size).await;
            }
        }
        busy.tell().await;
        let oldest = busy.oldest().await;
        for cursor in busy.cursors(oldest) {
            busy.resumes(&busy.server.api(), cursor).await;
        }
    }
    busy.agrees_with_a_snapshot().await;
}

/// The same with posts, at whatever rate they are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clicks_that_are_posted_one_by_one_are_merged_and_not_lost() {
    const BUFFER: i64 = 256;
    let (database, _server, api) = buffered_book(BUFFER).await;
    let (mut known, mut at) = (Known::default(), BTreeMap::new());
    let (mut live, _) = follow(&api, 0).await;
    for n in 1..=700 {
        let page = format!("/{}", n % 11);
        let answer = api.clicks("b", json!({"page": page, "at": 1000})).await;
        assert_eq!(answer["position"], n);
        let chunk = told(&mut live).await;
        let (_, data, id) = parts(&chunk);
        assert_eq!(id, Some(n));
        known.learn(&data);
        at.insert(n, known.clone());
    }
    check_bounds(&database, BUFFER).await;
    let oldest = database.number("SELECT oldest FROM books").await;
    let other = Server::start(&database).await;
    for cursor in (oldest.max(2) - 1..700).step_by(43) {
        let (mut raw, hello) = follow(&other.api(), cursor).await;
        assert_eq!(hello["mode"], "replay");
        let mut resumed = at[&cursor].clone();
        let mut last = cursor;
        while last < 700 {
            let chunk = told(&mut raw).await;
            let (_, data, id) = parts(&chunk);
            assert!(id.unwrap() > last);
            resumed.learn(&data);
            last = id.unwrap();
        }
        assert!(resumed == known, "cursor {cursor}");
    }
}
