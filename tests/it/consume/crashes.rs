//! What a crash may do, in each mode.

use std::collections::HashSet;

use rand::RngExt;
use serde_json::json;

use super::{Job, LINE, LINE_BYTES, Source, row, run};
use crate::harness::cluster::Cluster;
use crate::harness::load::counted;
use crate::harness::steps::execute;
use crate::harness::{self, Api, Database, Server, until};

/// Eight lines are taken with a checkpoint every five, the job is killed, four lines come, and it is
/// run to the end. Gives what was counted, and the clicks that the job's state tells of.
async fn twelve_clicks(mode: &str) -> (i64, i64) {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let source = Source::of(8);
    let arguments = ["--commit", mode, "--checkpoint-every", "5"];
    let following = [&arguments[..], &["--follow"]].concat();
    let job = Job::start(&database, &following, source.path());
    let eight = async || (counted(&api, "b").await == 8).then_some(());
    until("eight clicks are counted", eight).await;
    job.kill().await;
    let (offset, _) = row(&database).await.unwrap();
    let lines = if mode == "transactional" { 8 } else { 5 };
    assert_eq!(offset, lines * LINE_BYTES, "{mode}");

    source.append(&LINE.repeat(4));
    run(&database, &arguments, source.path()).await.well();
    let (offset, state) = row(&database).await.unwrap();
    assert_eq!(offset, 12 * LINE_BYTES, "{mode}");
    (
        counted(&api, "b").await,
        state["processed"].as_i64().unwrap(),
    )
}

#[tokio::test]
async fn consume_auto_counts_twice_what_is_read_again() {
    assert_eq!(twelve_clicks("auto").await.0, 15);
}

#[tokio::test]
async fn consume_checkpoint_add_keeps_its_state_right_and_counts_twice() {
    assert_eq!(twelve_clicks("checkpoint-add").await, (15, 12));
}

#[tokio::test]
async fn consume_checkpoint_put_converges() {
    assert_eq!(twelve_clicks("checkpoint-put").await, (12, 12));
}

#[tokio::test]
async fn consume_transactional_counts_exactly_once() {
    assert_eq!(twelve_clicks("transactional").await, (12, 12));
}

async fn cut_connections(database: &Database) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'pagetide'";
    execute(database, sql).await;
}

/// Two thousand lines, a hundred pages.
fn many() -> Source {
    let lines = (0..2000).map(|n| format!("{{\"page\":\"/p{}\",\"at\":{n}}}\n", n % 100));
    Source::new(&lines.collect::<String>())
}

async fn assert_each_once(database: &Database, api: &Api) {
    assert_eq!(super::logged(database).await, 2000);
    let views = harness::load::views(api, "b").await;
    assert_eq!(views.len(), 100);
    assert!(views.values().all(|count| *count == 20), "{views:?}");
    let (_, state) = row(database).await.unwrap();
    assert_eq!(state["processed"], 2000);
    assert_eq!(state["on_time"], 2000);
    assert_eq!(state["duplicates"], 0);
}

#[tokio::test]
async fn consume_counts_each_line_once_whatever_is_killed() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let source = many();
    let arguments = ["--checkpoint-every", "10"];
    let mut stops = HashSet::new();
    for round in 0..8 {
        let before = super::logged(&database).await;
        if before == 2000 {
            break;
        }
        let job = Job::start(&database, &arguments, source.path());
        until("the job goes on", async || {
            (super::logged(&database).await > before).then_some(())
        })
        .await;
        if round % 2 == 1 {
            cut_connections(&database).await;
        }
        let pause = rand::rng().random_range(0..250);
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        job.kill().await;
        stops.insert(super::logged(&database).await);
    }
    eprintln!("killed at {stops:?}");
    assert!(stops.len() > 2, "the job was too fast: {stops:?}");
    run(&database, &arguments, source.path()).await.well();
    assert_each_once(&database, &api).await;
}

#[tokio::test]
async fn consume_waits_while_postgres_is_away_and_loses_nothing() {
    let cluster = Cluster::start();
    let database = Database::create_on(cluster.socket_url()).await;
    let server = Server::start(&database).await;
    server.api().plain_book("b", 10_000, 0).await;
    server.terminate().await;
    let source = many();
    let job = Job::start(&database, &["--checkpoint-every", "10"], source.path());
    until("the job has begun", async || {
        (super::logged(&database).await > 0).then_some(())
    })
    .await;
    cluster.stop("immediate");
    // Lines come while nobody can count them.
    source.append(LINE);
    cluster.resume();
    job.ended().await.well();
    assert_eq!(super::logged(&database).await, 2001);
    let (_, state) = row(&database).await.unwrap();
    assert_eq!(state["on_time"], 2001);
    drop(database);
}

#[tokio::test]
async fn consume_ends_with_a_checkpoint_when_it_is_asked_to() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let source = Source::of(3);
    let arguments = ["--commit", "checkpoint-add", "--follow"];
    let job = Job::start(&database, &arguments, source.path());
    until("all is counted", async || {
        (counted(&api, "b").await == 3).then_some(())
    })
    .await;
    assert_eq!(row(&database).await.unwrap().0, 0, "not kept yet");
    let said = job.terminate().await.well();
    assert!(said.contains("3 lines in this run"), "{said}");
    let (offset, state) = row(&database).await.unwrap();
    assert_eq!(offset, 3 * LINE_BYTES);
    assert_eq!(state["on_time"], json!(3));
    run(&database, &arguments[..2], source.path()).await.well();
    assert_eq!(counted(&api, "b").await, 3);
}

#[tokio::test]
async fn consume_ends_when_it_is_asked_to_while_postgres_is_away() {
    let cluster = Cluster::start();
    let database = Database::create_on(cluster.socket_url()).await;
    let server = Server::start(&database).await;
    server.api().plain_book("b", 10_000, 0).await;
    server.terminate().await;
    let source = Source::of(2);
    let counts = async |clicks| {
        let there = async || (super::logged(&database).await == clicks).then_some(());
        until("the lines are counted", there).await;
    };
    let exact = Job::start(&database, &["--follow"], source.path());
    counts(2).await;
    cluster.stop("immediate");
    source.append(LINE);
    until("it tries again and again", async || {
        exact.said().contains("gave up").then_some(())
    })
    .await;
    // Its place was kept with the last lines that were counted.
    exact.terminate().await.well();
    cluster.resume();
    run(&database, &[], source.path()).await.well();
    counts(3).await;

    let arguments = ["--commit", "checkpoint-add", "--job", "add", "--follow"];
    let adding = Job::start(&database, &arguments, source.path());
    counts(6).await;
    cluster.stop("immediate");
    let ended = adding.terminate().await;
    ended.badly("so the place could not be kept");
    cluster.resume();
    drop(database);
}
