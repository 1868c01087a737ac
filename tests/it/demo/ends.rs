//! However the demo ends, nothing of it runs on.

use std::fs;
use std::process::Stdio;

use super::play::{Demo, all_gone};
use crate::embedded::Scratch;
use crate::harness::{PATIENCE, Server, until};

fn left_in(place: &Scratch) -> Vec<String> {
    let left = fs::read_dir(&place.0).unwrap();
    left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

#[tokio::test]
async fn whoever_kills_the_demo_ends_its_server_too() {
    let demo = Demo::start(&[]).await;
    let children = demo.children();
    assert!(children.len() > 2, "a server and a Postgres: {children:?}");
    let (status, _place) = demo.end("KILL").await;
    assert!(!status.success());
    all_gone(&children).await;
}

#[tokio::test]
async fn a_demo_that_has_not_begun_yet_leaves_nothing() {
    let place = Scratch::new();
    let mut command = Server::command();
    command.args(["demo", "--no-open", "--listen", "127.0.0.1:0"]);
    command
        .env("TMPDIR", &place.0)
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let mut demo = command.spawn().unwrap();
    let pid = demo.id().unwrap().to_string();
    // The cluster is in the making.
    until("it has begun to make its cluster", async || {
        let folder = left_in(&place).into_iter().next()?;
        place.0.join(folder).join("data").exists().then_some(())
    })
    .await;
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(sent.unwrap().success());
    let ended = tokio::time::timeout(PATIENCE, demo.wait()).await.unwrap();
    assert!(ended.unwrap().success());
    assert_eq!(left_in(&place), Vec::<String>::new());
}
