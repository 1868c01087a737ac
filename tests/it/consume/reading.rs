//! What is read: files that grow, pipes, access logs.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::{Job, LINE, LINE_BYTES, Source, command, logged, row, run};
use crate::harness::load::counted;
use crate::harness::{self, until};
use crate::independent::{PAGE_VIEWS, Tally, judge};
use crate::real_log;

#[tokio::test]
async fn consume_follows_a_file_as_it_grows() {
    let (database, server) = harness::start().await;
    server.api().plain_book("b", 10_000, 0).await;
    let source = Source::of(1);
    let job = Job::start(&database, &["--follow"], source.path());
    let counts = async |clicks| {
        let there = async || (logged(&database).await == clicks).then_some(());
        until("the clicks are counted", there).await;
    };
    counts(1).await;
    let (first, second) = LINE.split_at(10);
    source.append(first);
    // Long enough that half a line would have been taken for one.
    tokio::time::sleep(Duration::from_millis(600)).await;
    source.append(second);
    counts(2).await;
    source.append(&LINE.repeat(1500));
    counts(1502).await;
    source.append(LINE.trim_end());
    job.terminate().await.well();
    let (offset, state) = row(&database).await.unwrap();
    assert_eq!(offset, 1502 * LINE_BYTES);
    assert_eq!(state["rejected"], 0);
    // At the end of a file that is not followed, what is there is all of the line.
    run(&database, &[], source.path()).await.well();
    assert_eq!(logged(&database).await, 1503);
    std::fs::write(source.path(), LINE).unwrap();
    run(&database, &[], source.path())
        .await
        .badly("has 24 bytes, but 36071 of it have been read");
}

#[tokio::test]
async fn consume_of_standard_input_reads_over_what_it_had() {
    let (database, server) = harness::start().await;
    server.api().plain_book("b", 10_000, 0).await;
    let mut expected = 0;
    for lines in [3, 1500] {
        let mut command = command(&database, &[], std::path::Path::new("-"));
        let mut job = Job::spawn(command.stdin(Stdio::piped()));
        let mut input = job.child().stdin.take().unwrap();
        input
            .write_all(LINE.repeat(lines).as_bytes())
            .await
            .unwrap();
        drop(input);
        let said = job.ended().await.well();
        let new = i64::try_from(lines).unwrap() - expected;
        assert!(said.contains(&format!("{new} lines in this run")), "{said}");
        expected += new;
        assert_eq!(logged(&database).await, expected);
    }
    let mut command = command(&database, &[], std::path::Path::new("-"));
    let ended = Job::spawn(command.stdin(Stdio::null())).ended().await;
    ended.badly("the input ended at byte 0, before 36000");
    // A pipe on which nothing comes does not keep the job from ending.
    let mut waiting = self::command(&database, &["--job", "k"], std::path::Path::new("-"));
    let job = Job::spawn(waiting.stdin(Stdio::piped()));
    let there = "SELECT count(*) FROM jobs";
    until("the job has begun", async || {
        (database.number(there).await == 2).then_some(())
    })
    .await;
    job.terminate().await.well();
}

#[tokio::test]
async fn consume_counts_an_access_log_as_an_independent_script_does() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 3_600_000, 24 * 3_600_000).await;
    let source = std::path::Path::new(real_log::LOG);
    let arguments = ["--format", "combined"];
    let said = run(&database, &arguments, source).await.well();
    eprintln!("{said}");
    let expected = Tally::of(&judge(source, PAGE_VIEWS));
    assert_eq!(real_log::shown(&api, "b").await, expected.counts);
    let (_, state) = row(&database).await.unwrap();
    assert_eq!(state["processed"], 10_000);
    let bots = expected.skipped["bots"];
    assert_eq!(state["skipped"]["bots"], bots);
    let views = expected.views();
    assert!(views > 1000 && bots > 100, "{views} views, {bots} bots");
    let again = run(&database, &arguments, source).await.well();
    assert!(again.contains("0 lines in this run"), "{again}");
    assert_eq!(counted(&api, "b").await, views);
}
