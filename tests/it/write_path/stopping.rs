#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pagetide::ingest::lane::SubmitError;
use pagetide::ingest::retry::Retries;

use super::{Runtime, id_of};
use crate::harness::steps::execute;
use crate::harness::{start, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_a_back_off_takes_no_longer_than_it_must() {
    let (database, server) = start().await;
    let book = id_of(&server.api().plain_book("b", 60_000, 60_000).await);
    let never = "CREATE SEQUENCE tries;
                 CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     PERFORM nextval('tries');
                     RAISE EXCEPTION 'never' USING ERRCODE = '40001';
                 END $$;
                 CREATE TRIGGER never BEFORE INSERT ON clicks
                 FOR EACH STATEMENT EXECUTE FUNCTION never()";
    execute(&database, never).await;
    // A second, again and again, whatever the jitter makes of it.
    let retries = Retries {
        tries: 1000,
        first_wait: Duration::from_secs(1),
        longest_wait: Duration::from_secs(1),
    };
    let runtime = Runtime::start(&database, 1, retries);
    let lanes = Arc::clone(&runtime.lanes);
    let clicks = vec![super::click("/a")];
    let batch = pagetide::ingest::commit::Batch {
        clicks,
        ..Default::default()
    };
    let work = pagetide::ingest::lane::Work::Clicks(Arc::new(batch));
    let post = tokio::spawn(async move { lanes.submit(book, work).await });
    until("it has failed once", async || {
        (database
            .number("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries")
            .await
            >= 1)
            .then_some(())
    })
    .await;
    let stopped = Instant::now();
    runtime.stop().await;
    let took = stopped.elapsed();
    println!("stopped after {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    let answer = post.await.unwrap();
    assert!(matches!(answer, Err(SubmitError::Busy)), "{answer:?}");
    let left = "SELECT (SELECT count(*) FROM dead_letters) + (SELECT count(*) FROM clicks)";
    assert_eq!(database.number(left).await, 0);
}

async fn stops_under_load(lanes: usize) {
    let (database, server) = start().await;
    let api = server.api();
    let mut books = Vec::new();
    for n in 0..10 {
        books.push(id_of(
            &api.plain_book(&format!("b{n}"), 60_000, 60_000).await,
        ));
    }
    let mut acknowledged = 0;
    for stop in 1..=25 {
        let runtime = Runtime::start(&database, lanes, Retries::default());
        let taken = Arc::new(AtomicUsize::new(0));
        let posts: Vec<_> = (0..200)
            .map(|n| {
                let (lanes, taken) = (Arc::clone(&runtime.lanes), Arc::clone(&taken));
                let book = books[n % books.len()];
                tokio::spawn(async move {
                    let batch = pagetide::ingest::commit::Batch {
                        clicks: vec![super::click("/a")],
                        ..Default::default()
                    };
                    let work = pagetide::ingest::lane::Work::Clicks(Arc::new(batch));
                    if lanes.submit(book, work).await.is_ok() {
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        // At another moment each time: after the first, in the middle, at the end.
        until("some are acknowledged", async || {
            (taken.load(Ordering::SeqCst) >= stop * 3).then_some(())
        })
        .await;
        runtime.stop().await;
        for post in posts {
            post.await.unwrap();
        }
        acknowledged += taken.load(Ordering::SeqCst);
    }
    let committed = database.number("SELECT count(*) FROM clicks").await;
    println!("{lanes} lanes: {acknowledged} acknowledged, {committed} committed");
    assert!(i64::try_from(acknowledged).unwrap() <= committed);
    assert!(acknowledged > 25 * 3);
    assert_eq!(
        database.number("SELECT count(*) FROM dead_letters").await,
        0
    );
    // What was committed is counted, once.
    let on_time = database
        .number("SELECT sum(on_time)::bigint FROM books")
        .await;
    assert_eq!(on_time, committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_five_stops_of_one_lane_acknowledge_nothing_that_is_not_committed() {
    stops_under_load(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_five_stops_of_eight_lanes_acknowledge_nothing_that_is_not_committed() {
    stops_under_load(8).await;
}
