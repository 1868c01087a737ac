//! One process at a time has a job.

use super::{Job, LINE, LINE_BYTES, Source, logged, row, run};
use crate::harness::steps::execute;
use crate::harness::{self, Database, until};

async fn counts(database: &Database, clicks: i64) {
    let there = async || (logged(database).await == clicks).then_some(());
    until("the clicks are counted", there).await;
}

#[tokio::test]
async fn consume_of_the_same_job_is_refused_until_the_first_is_dead() {
    let (database, server) = harness::start().await;
    server.api().plain_book("b", 10_000, 0).await;
    let source = Source::of(2);
    let first = Job::start(&database, &["--follow"], source.path());
    counts(&database, 2).await;
    let second = run(&database, &[], source.path()).await;
    second.badly("the job j of this book is run by another process");
    source.append(LINE);
    counts(&database, 3).await;
    first.kill().await;
    source.append(LINE);
    run(&database, &[], source.path()).await.well();
    assert_eq!(logged(&database).await, 4);
    let epoch = database.number("SELECT epoch FROM jobs").await;
    assert_eq!(epoch, 2, "the refused one raised nothing");
}

/// Somebody else raises the epoch while the job waits for lines.
async fn taken_over(mode: &str) {
    let (database, server) = harness::start().await;
    server.api().plain_book("b", 10_000, 0).await;
    let source = Source::of(2);
    let arguments = ["--follow", "--commit", mode, "--checkpoint-every", "2"];
    let job = Job::start(&database, &arguments, source.path());
    let kept = async || {
        let (offset, _) = row(&database).await?;
        (offset == 2 * LINE_BYTES).then_some(())
    };
    until("the place is kept", kept).await;
    execute(&database, "UPDATE jobs SET epoch = epoch + 1").await;
    if mode == "transactional" {
        source.append(LINE);
    }
    let ended = job.ended().await;
    ended.badly("the job j was taken over by another process");
    assert_eq!(logged(&database).await, 2);
    assert_eq!(row(&database).await.unwrap().0, 2 * LINE_BYTES);
}

#[tokio::test]
async fn consume_that_was_taken_over_counts_nothing_more() {
    taken_over("transactional").await;
    taken_over("checkpoint-put").await;
}

#[tokio::test]
async fn consume_goes_on_when_its_lease_connection_was_lost() {
    let (database, server) = harness::start().await;
    server.api().plain_book("b", 10_000, 0).await;
    let source = Source::of(1);
    let job = Job::start(&database, &["--follow"], source.path());
    counts(&database, 1).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_locks
               WHERE locktype = 'advisory' AND database =
                     (SELECT oid FROM pg_database WHERE datname = current_database())";
    execute(&database, cut).await;
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
                (SELECT oid FROM pg_database WHERE datname = current_database())";
    let again = async || (database.number(held).await == 1).then_some(());
    until("the lease is taken again", again).await;
    run(&database, &[], source.path())
        .await
        .badly("run by another process");
    source.append(LINE);
    counts(&database, 2).await;
    job.terminate().await.well();
}

#[tokio::test]
async fn consume_keeps_to_the_mode_in_which_it_was_begun() {
    let (database, server) = harness::start().await;
    server.api().plain_book("b", 10_000, 0).await;
    let source = Source::of(1);
    run(&database, &["--commit", "auto"], source.path())
        .await
        .well();
    run(&database, &[], source.path())
        .await
        .badly("begun with --commit auto");
}

#[tokio::test]
async fn consume_for_a_book_that_takes_no_clicks_says_so() {
    let (database, server) = harness::start().await;
    let source = Source::of(1);
    run(&database, &[], source.path())
        .await
        .badly("there is no book b");
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let job = Job::start(&database, &["--follow"], source.path());
    counts(&database, 1).await;
    api.post("/v1/books/b/close", &serde_json::Value::Null)
        .await
        .expect(200);
    source.append(LINE);
    job.ended().await.badly("the book b is closed");
    run(&database, &[], source.path())
        .await
        .badly("the book b is closed");
    assert_eq!(row(&database).await.unwrap().0, LINE_BYTES);
    api.post("/v1/books/b/reopen", &serde_json::Value::Null)
        .await
        .expect(200);
    run(&database, &[], source.path()).await.well();
    assert_eq!(logged(&database).await, 2);
}
