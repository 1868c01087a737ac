//! Beside a server that has brought up the embedded Postgres, and without one.

use serde_json::json;

use super::{Ended, Job, Source};
use crate::embedded::Scratch;
use crate::harness::Server;
use crate::harness::server::ADMIN;

async fn run(scratch: &Scratch, source: &Source) -> Ended {
    let mut command = Server::command();
    command
        .env("PAGETIDE_DATA_DIR", scratch.data())
        .args(["consume", "--book", "b", "--job", "j"])
        .arg(source.path());
    Job::spawn(&mut command).ended().await
}

#[tokio::test]
async fn consume_uses_the_embedded_postgres_of_a_server_or_brings_it_up() {
    let scratch = Scratch::new();
    let mut command = Server::command();
    command
        .env("PAGETIDE_DATA_DIR", scratch.data())
        .env("PAGETIDE_ADMIN_TOKEN", ADMIN);
    let server = Server::spawn(command).await;
    server.api().book("b", json!({})).await;
    let source = Source::new("{\"page\":\"/p\"}\n{\"page\":\"/p\"}\n");
    let said = run(&scratch, &source).await.well();
    assert!(said.contains("in all 2 on time"), "{said}");
    let book = server.api().get("/v1/books/b").await.expect(200);
    assert_eq!(book["totals"]["on_time"], 2);
    server.terminate().await;

    source.append("{\"page\":\"/q\"}\n");
    let said = run(&scratch, &source).await.well();
    assert!(said.contains("1 lines in this run"), "{said}");
    assert!(said.contains("in all 3 on time"), "{said}");
}
