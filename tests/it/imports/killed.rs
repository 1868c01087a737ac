//! Whatever is killed while a log is imported, each of its lines counts once in the end.

use rand::RngExt;

use super::{
    Feed, File, LONG, beginning, check_done, command, expected_of_log, hours_book, import,
    import_log, log, logged, newest_run, post_import, runs,
};
use crate::consume::Job;
use crate::harness::{self, Database, Server, chance, until};
use crate::independent::ALL_REQUESTS;
use crate::real_log::{LOG, shown};

const KILLS: usize = 10;

/// All requests of the log, so that there is enough to do.
const ALL: [&str; 7] = [
    "--format",
    "combined",
    "--assets",
    "--bots",
    "--errors",
    "--methods",
    "GET,HEAD,POST,OPTIONS",
];

/// Waits until so many clicks are logged, or the job has ended.
async fn reached(database: &Database, job: &mut Job, clicks: i64) {
    until("the import goes on", async || {
        let ended = job.child().try_wait().unwrap().is_some();
        (ended || logged(database).await >= clicks).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_import_that_is_killed_ten_times_counts_what_one_that_is_not_counts() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    // Long enough that there are many commits.
    let file = File::new("access.log", log().repeat(3));
    let expected = expected_of_log(ALL_REQUESTS).times(3);
    let all = expected.views();
    let mut random = chance();
    let mut moments: Vec<i64> = (0..KILLS).map(|_| random.random_range(0..all)).collect();
    moments.sort_unstable();
    let path = file.arg();
    let arguments = [&ALL[..], &[&*path]].concat();
    let mut killed_at = Vec::new();
    for moment in moments {
        let mut job = Job::spawn(&mut command(&database, "b", &arguments));
        reached(&database, &mut job, moment).await;
        // Somewhere between two commits, or within one.
        let pause = random.random_range(0..30);
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        job.kill().await;
        killed_at.push(logged(&database).await);
    }
    eprintln!("killed at {killed_at:?} of {all}");
    let midway = killed_at.iter().filter(|clicks| (1..all).contains(clicks));
    assert!(midway.count() >= 3, "too few were hit: {killed_at:?}");

    import(&database, "b", &arguments).await.well();
    let last = newest_run(&api, "b").await;
    let before = last["duplicates"].as_i64().unwrap();
    assert_eq!(before, *killed_at.last().unwrap(), "{last}");
    check_done(&last, 30_000, &expected, before);
    assert_eq!(shown(&api, "b").await, expected.counts);
    let sum: i64 = (runs(&api, "b").await.iter())
        .map(|run| run["counted"].as_i64().unwrap())
        .sum();
    assert_eq!(sum, all, "what was counted is told by some run");
    for run in runs(&api, "b").await {
        let state = if run["id"] == last["id"] {
            "done"
        } else {
            "failed"
        };
        // The last of the killed ones may have been done already.
        assert!(run["state"] == state || run["state"] == "done", "{run}");
    }
}

#[tokio::test]
async fn an_import_whose_server_is_killed_is_failed_and_goes_on_when_it_is_sent_again() {
    let database = Database::create().await;
    let server = Server::start(&database).await;
    let api = server.api();
    hours_book(&api, "b").await;
    let query = "format=combined&source=access.log&assets=true&bots=true&errors=true\
                 &methods=GET,HEAD,POST,OPTIONS";
    let feed = Feed::start(&api, "b", query);
    feed.send(beginning(6000)).await;
    until("some of it is counted", async || {
        (logged(&database).await > 0).then_some(())
    })
    .await;
    server.kill().await;
    assert!(feed.end().await.is_none_or(|answer| answer.status != 200));

    let server = Server::start(&database).await;
    let api = server.api();
    let failed = until("the import is known to have failed", async || {
        let run = newest_run(&api, "b").await;
        (run["state"] != "running").then_some(run)
    })
    .await;
    assert_eq!(failed["state"], "failed", "{failed}");
    assert!(failed["error"].is_string(), "{failed}");
    assert!(failed["finished_at"].is_string(), "{failed}");
    let before = logged(&database).await;
    assert_eq!(failed["counted"], before, "{failed}");

    let run = post_import(&api, "b", query, log()).await.expect(200);
    let expected = expected_of_log(ALL_REQUESTS);
    check_done(&run, 10_000, &expected, before);
    assert_eq!(shown(&api, "b").await, expected.counts);
}

/// The client of an import goes away in its midst.
#[tokio::test]
async fn an_import_whose_sender_goes_away_is_failed_and_goes_on_when_it_is_sent_again() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let query = "format=combined&source=access.log&assets=true&bots=true&errors=true\
                 &methods=GET,HEAD,POST,OPTIONS";
    let feed = Feed::start(&api, "b", query);
    feed.send(beginning(6000)).await;
    until("some of it is counted", async || {
        (logged(&database).await > 0).then_some(())
    })
    .await;
    feed.break_off();
    let failed = until("the import is known to have failed", async || {
        let run = newest_run(&api, "b").await;
        (run["state"] != "running").then_some(run)
    })
    .await;
    assert_eq!(failed["state"], "failed", "{failed}");
    let before = logged(&database).await;
    assert_eq!(failed["counted"], before, "{failed}");
    let run = post_import(&api, "b", query, log()).await.expect(200);
    let expected = expected_of_log(ALL_REQUESTS);
    check_done(&run, 10_000, &expected, before);
    assert_eq!(shown(&api, "b").await, expected.counts);
}

/// Postgres ends the connections of an import that goes on.
#[tokio::test]
async fn an_import_whose_connections_are_cut_goes_on_or_says_that_it_failed() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let arguments = [&ALL[..], &[LOG]].concat();
    let mut job = Job::spawn(&mut command(&database, "b", &arguments));
    reached(&database, &mut job, 1).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'pagetide'";
    harness::steps::execute(&database, cut).await;
    let ended = job.ended_within(LONG).await;
    let expected = expected_of_log(ALL_REQUESTS);
    if ended.code != Some(0) {
        import_log(&database, "b", &ALL[2..]).await.well();
    }
    let last = newest_run(&api, "b").await;
    check_done(
        &last,
        10_000,
        &expected,
        last["duplicates"].as_i64().unwrap(),
    );
    assert_eq!(shown(&api, "b").await, expected.counts);
}
