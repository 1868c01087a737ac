//! `pagetide recount`: the same from a terminal, beside a server or without one.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use super::{LONG, days_book, fill, in_log, shown, swept};
use crate::consume::Job;
use crate::harness::{Api, Database, Server, start, until};

const STORED: i64 = 100_000;

fn command(database: &Database, book: &str) -> Command {
    let mut command = Server::command();
    command
        .env("DATABASE_URL", database.url())
        .args(["recount", "--book", book])
        .stdin(Stdio::null());
    command
}

/// The runs of the book, oldest first.
async fn runs(api: &Api) -> Vec<Value> {
    let list = api.get("/v1/books/b/runs").await.expect(200);
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_recount_from_the_terminal_is_one_like_any_other() {
    let (database, server) = start().await;
    days_book(&server.api(), "b").await;
    fill(&database, "b", STORED).await;
    // Beside a server, which may take it, and without one.
    let beside = Job::spawn(&mut command(&database, "b"));
    let said = beside.ended_within(LONG).await.well();
    assert!(said.contains("100000"), "{said}");
    assert_eq!(
        shown(&server.api(), "b").await,
        in_log(&database, "b").await
    );
    swept(&database).await;
    assert!(server.terminate().await.success());

    fill(&database, "b", 10).await;
    let alone = Job::spawn(&mut command(&database, "b"));
    let said = alone.ended_within(LONG).await.well();
    assert!(said.contains("100010"), "{said}");
    let server = Server::start(&database).await;
    assert_eq!(
        shown(&server.api(), "b").await,
        in_log(&database, "b").await
    );
    let runs = runs(&server.api()).await;
    let told: Vec<_> = (runs.iter())
        .map(|run| {
            (
                run["state"].as_str().unwrap(),
                run["processed"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [("done", 100_000), ("done", 100_010)]);
    swept(&database).await;
    let ended = Job::spawn(&mut command(&database, "nobody")).ended().await;
    ended.badly("there is no book nobody");
}

#[tokio::test]
async fn a_recount_whose_terminal_is_killed_is_gone_on_with_by_a_server() {
    let (database, server) = start().await;
    days_book(&server.api(), "b").await;
    fill(&database, "b", STORED).await;
    assert!(server.terminate().await.success());
    let job = Job::spawn(&mut command(&database, "b"));
    let sql = "SELECT count(*) FROM runs WHERE processed > 0";
    until("it has begun", async || {
        (database.number(sql).await == 1).then_some(())
    })
    .await;
    job.kill().await;
    let there = "SELECT count(*) FROM runs WHERE state = 'running'";
    assert_eq!(
        database.number(there).await,
        1,
        "it was over before it was killed"
    );
    let server = Server::start(&database).await;
    let api = server.api();
    let id = runs(&api).await[0]["id"].as_str().unwrap().to_owned();
    let done = super::ended(&api, "b", &id).await;
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
    swept(&database).await;
}
