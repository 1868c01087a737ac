//! A job's step in the write path: whole, once, and not for others to take.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pagetide::checkpoint::{self, Checkpoint, CommitMode, State};
use pagetide::click::{Click, ClickId};
use pagetide::ingest::commit::Batch;
use pagetide::ingest::lane::{LaneConfig, Lanes, SubmitError, Work};
use pagetide::ingest::retry::Retries;
use pagetide::stream::hub::Hub;
use pagetide::time::Timestamp;
use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{Source, logged, row, run};
use crate::harness::load::counted;
use crate::harness::steps::{cure, poison};
use crate::harness::{self};

fn click(book: Uuid, index: usize) -> Click {
    let now = Timestamp::now();
    Click {
        id: ClickId::derived(book, "key", index),
        at: now,
        received_at: now,
        page: "/p".to_owned(),
        visitor: None,
        referrer: None,
        source: None,
        value: None,
    }
}

#[tokio::test]
async fn consume_step_whose_answer_was_lost_is_not_taken_twice() {
    let (database, server) = harness::start().await;
    let api = server.api();
    let book = api.plain_book("b", 10_000, 0).await;
    let book = Uuid::parse_str(book["id"].as_str().unwrap()).unwrap();
    let options = PgConnectOptions::from_str(&database.url()).unwrap();
    let pool = pagetide::db::read_pool(&options, 2);
    let hub = Arc::new(Hub::new(pool.clone(), pool.clone()));
    let (tasks, hurry) = (TaskTracker::new(), CancellationToken::new());
    let config = LaneConfig {
        lanes: 1,
        gather: Duration::ZERO,
        queue_clicks: 10_000,
        retries: Retries::default(),
    };
    let lanes = Lanes::start(&config, &options, &hub, &tasks, &hurry);
    let mut conn = database.connect().await;
    let mode = CommitMode::Transactional;
    let begun = checkpoint::begin(&mut conn, (book, "j"), mode, Timestamp::now()).await;
    let begun = begun.unwrap();
    assert_eq!((begun.offset, begun.epoch), (0, 1));
    let step = |from: u64, to: u64, epoch: i64, state: State, clicks: [usize; 2]| {
        Work::Clicks(Arc::new(Batch {
            clicks: clicks.map(|index| click(book, index)).into(),
            rejected: 1,
            checkpoint: Some(Checkpoint {
                job: "j".to_owned(),
                epoch,
                from,
                to,
                state,
            }),
            ..Batch::default()
        }))
    };
    let first = || step(0, 10, 1, State::default(), [0, 1]);
    lanes.submit(book, first()).await.unwrap();
    let (_, state) = row(&database).await.unwrap();
    assert_eq!(state["processed"], 3);
    let before = api.get("/v1/books/b").await.expect(200);
    // Again, as if its answer had been lost; then of a process that has lost the job.
    let again = lanes.submit(book, first()).await;
    assert!(matches!(again, Err(SubmitError::LostLease)), "{again:?}");
    let strange = step(10, 20, 0, State::default(), [2, 3]);
    let strange = lanes.submit(book, strange).await;
    assert!(
        matches!(strange, Err(SubmitError::LostLease)),
        "{strange:?}"
    );
    assert_eq!(logged(&database).await, 2, "all of it was rolled back");
    let after = api.get("/v1/books/b").await.expect(200);
    assert_eq!(after["totals"], before["totals"]);
    assert_eq!(after["position"], before["position"]);
    // Steps that are sent together keep apart, each with its own state.
    let after_first = State {
        processed: 3,
        ..State::default()
    };
    let after_second = State {
        processed: 6,
        ..State::default()
    };
    let (second, third) = (
        step(10, 20, 1, after_first, [1, 2]),
        step(20, 30, 1, after_second, [3, 4]),
    );
    let (second, third) = tokio::join!(lanes.submit(book, second), lanes.submit(book, third));
    second.unwrap();
    third.unwrap();
    let (offset, state) = row(&database).await.unwrap();
    assert_eq!((offset, &state["processed"]), (30, &9.into()));
    assert_eq!(
        (&state["on_time"], &state["duplicates"]),
        (&2.into(), &0.into())
    );
    drop(lanes);
    tasks.close();
    tasks.wait().await;
}

#[tokio::test]
async fn consume_sets_the_line_aside_that_cannot_be_committed_and_goes_on() {
    for mode in ["transactional", "checkpoint-put"] {
        let (database, server) = harness::start().await;
        let api = server.api();
        api.plain_book("b", 10_000, 0).await;
        poison(&database).await;
        let source = Source::of(7);
        source.append("{\"page\":\"/poison\",\"at\":1000}\n");
        source.append("no json\n");
        source.append("{\"page\":\"/b\",\"at\":1000}\n");
        let said = run(&database, &["--commit", mode], source.path())
            .await
            .well();
        assert_eq!(said.matches("not_json").count(), 1, "{said}");
        assert_eq!(counted(&api, "b").await, 8);
        let (offset, state) = row(&database).await.unwrap();
        assert_eq!(
            offset,
            i64::try_from(source.text().len()).unwrap(),
            "{mode}"
        );
        assert_eq!(
            (&state["on_time"], &state["rejected"]),
            (&8.into(), &2.into())
        );
        let letters = api.get("/v1/books/b/dead-letters").await.expect(200);
        assert_eq!(letters["items"].as_array().unwrap().len(), 1);
        let id = letters["items"][0]["id"].as_str().unwrap();
        cure(&database).await;
        let retry = format!("/v1/books/b/dead-letters/{id}/retry");
        let retried = api.post(&retry, &serde_json::json!({})).await;
        assert_eq!(retried.expect(200)["on_time"], 1, "{mode}");
        assert_eq!(counted(&api, "b").await, 9);
    }
}

#[tokio::test]
async fn consume_leaves_a_last_line_that_is_being_written() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let source = Source::of(2);
    source.append("{\"page\":\"/p\"");
    let said = run(&database, &[], source.path()).await.well();
    assert!(said.contains("not finished"), "{said}");
    assert_eq!(row(&database).await.unwrap().1["rejected"], 0);
    source.append(",\"at\":1000}\n");
    run(&database, &[], source.path()).await.well();
    assert_eq!(counted(&api, "b").await, 3);
    // One that can be read needs no end.
    source.append("{\"page\":\"/p\",\"at\":1000}");
    run(&database, &[], source.path()).await.well();
    assert_eq!(counted(&api, "b").await, 4);
}
