#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use uuid::Uuid;

use super::{Folder, away, back, check, click, drained, server, spool};
use crate::harness::load::{counted, stored};
use crate::harness::{Api, Server, start};

/// A disk of its own, as small as it is asked to be.
struct Disk(Folder);

impl Disk {
    fn new(kibibytes: usize) -> Self {
        let folder = Folder::new();
        let size = format!("size={kibibytes}k");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .status();
        assert!(mounted.unwrap().success(), "a small disk needs root");
        Self(folder)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Posts until a post is refused; gives what was acknowledged and the problem.
async fn fill(api: &Api) -> (HashSet<Uuid>, String) {
    let mut acknowledged = HashSet::new();
    loop {
        let ids: Vec<Uuid> = (0..20).map(|_| Uuid::new_v4()).collect();
        let clicks: Vec<_> = ids.iter().map(|id| click(&id.to_string(), "/a")).collect();
        let answer = api.post("/v1/books/b/clicks", &json!(clicks)).await;
        if answer.status != 202 {
            assert!(answer.headers.contains_key("retry-after"));
            return (acknowledged, answer.problem(503));
        }
        acknowledged.extend(ids);
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing_that_was_acknowledged() {
    let (database, _other) = start().await;
    let disk = Disk::new(256);
    let first = server(&database, &disk.0).await;
    let api = first.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("0", "/a")).await;
    away(&database).await;
    let (mut acknowledged, code) = fill(&api).await;
    assert_eq!(code, "unavailable");
    assert!(acknowledged.len() > 200, "{}", acknowledged.len());
    // Killed with a disk on which nothing can be written.
    first.kill().await;
    let next = server(&database, &disk.0).await;
    let api = next.api();
    back(&database).await;
    drained(&api).await;
    let clicks = acknowledged.len();
    println!("{clicks} clicks fitted on the disk");
    let stored = stored(&database).await;
    let lost: Vec<Uuid> = acknowledged.difference(&stored).copied().collect();
    assert_eq!(lost, Vec::<Uuid>::new(), "acknowledged and not stored");
    let counted_now = counted(&api, "b").await;
    assert_eq!(usize::try_from(counted_now).unwrap(), stored.len());
    // There is room again.
    away(&database).await;
    let id = Uuid::new_v4();
    spool(&api, "b", &click(&id.to_string(), "/a")).await;
    acknowledged.insert(id);
    back(&database).await;
    drained(&api).await;
    assert_eq!(counted(&api, "b").await, counted_now + 1);
}

#[tokio::test]
async fn a_full_spool_refuses_and_readiness_says_so() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let bound = [("PAGETIDE_SPOOL_MAX_BYTES", "20000")];
    let server = Server::start_with_spool(&database, folder.path(), &bound).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("0", "/a")).await;
    away(&database).await;
    let (acknowledged, code) = fill(&api).await;
    assert_eq!(code, "spool_full");
    let said = check(&api).await;
    assert_eq!(said["ok"], false);
    let waiting = acknowledged.len();
    assert_eq!(
        said["detail"],
        format!("the spool is full; {waiting} clicks wait in it")
    );
    assert_eq!(api.get("/readyz").await.status, 503);
    back(&database).await;
    drained(&api).await;
    assert_eq!(api.get("/readyz").await.status, 200);
    assert_eq!(
        usize::try_from(counted(&api, "b").await).unwrap(),
        waiting + 1
    );
}

/// What the program says when it cannot start.
fn complaint(folder: &Path, database: &str) -> String {
    let mut command = Server::command().into_std();
    command
        .env("DATABASE_URL", database)
        .env("PAGETIDE_SPOOL", "jsonl")
        .env("PAGETIDE_DATA_DIR", folder)
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_folder_is_one_processs_own_and_must_be_usable() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let _first = server(&database, &folder).await;
    let said = complaint(folder.path(), &database.url());
    assert!(
        said.contains("in use") && said.contains("PAGETIDE_DATA_DIR"),
        "{said}"
    );
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let said = complaint(&file, &database.url());
    assert!(said.contains("PAGETIDE_SPOOL=off"), "{said}");
}

#[tokio::test]
async fn what_waits_for_one_database_is_not_thrown_at_another() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let first = server(&database, &folder).await;
    let api = first.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("0", "/a")).await;
    away(&database).await;
    spool(&api, "b", &click("1", "/a")).await;
    first.kill().await;
    let (another, other) = start().await;
    let said = complaint(folder.path(), &another.url());
    assert!(said.contains("another database"), "{said}");
    drop(other);
    back(&database).await;
    let api = server(&database, &folder).await;
    drained(&api.api()).await;
    assert_eq!(counted(&api.api(), "b").await, 2);
    api.terminate().await;
    // Nothing waits: the folder may serve another.
    server(&another, &folder).await;
}
