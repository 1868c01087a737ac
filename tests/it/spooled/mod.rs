//! The spool: what is acknowledged while Postgres is away is counted once it is back, exactly once
//! and in order, whoever is killed meanwhile.

mod bounds;
mod closed;
mod damage;
mod order;
mod outage;
mod segments;

use std::path::{Path, PathBuf};

use pagetide::ingest::spooled::SpooledClick;
use pagetide::spool::record::Record;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::steps::execute;
use crate::harness::{Api, Database, Server, until};

/// A data folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("pt-spool-{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The files with this ending that the spool has now, by name.
    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.0.join("spool")) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<PathBuf> = paths
            .filter(|path| path.extension().is_some_and(|e| e == ending))
            .collect();
        paths.sort();
        paths
    }

    fn segments(&self) -> Vec<PathBuf> {
        self.files("jsonl")
    }

    /// Writes a segment as a spool leaves it.
    fn write_segment(&self, window: u64, clicks: &[SpooledClick]) {
        let mut text = Vec::new();
        for click in clicks {
            click.encode(&mut text).unwrap();
            text.push(b'\n');
        }
        let spool = self.0.join("spool");
        std::fs::create_dir_all(&spool).unwrap();
        std::fs::write(spool.join(format!("{window:020}-000000.jsonl")), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// From now on no click can be written, as if the database were shutting down; all else goes on.
pub(crate) async fn away(database: &Database) {
    let sql = "CREATE FUNCTION away() RETURNS trigger LANGUAGE plpgsql AS $$
               BEGIN RAISE EXCEPTION 'away' USING ERRCODE = '57P03'; END $$;
               CREATE TRIGGER away BEFORE INSERT ON clicks
               FOR EACH ROW EXECUTE FUNCTION away()";
    execute(database, sql).await;
}

/// The end of [`away`].
pub(crate) async fn back(database: &Database) {
    execute(database, "DROP TRIGGER away ON clicks; DROP FUNCTION away").await;
}

/// A click with an id; `at` is the same for all, so that none is late.
fn click(id: &str, page: &str) -> Value {
    json!({"id": id, "page": page, "at": 1000})
}

/// Posts clicks that are to go into the spool.
async fn spool(api: &Api, book: &str, clicks: &Value) -> Value {
    let answer = api.post(&format!("/v1/books/{book}/clicks"), clicks).await;
    answer.expect(202)
}

/// What readiness says of the spool.
async fn check(api: &Api) -> Value {
    let ready = api.get("/readyz").await.json();
    let checks = ready["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|c| c["name"] == "spool")
        .unwrap()
        .clone()
}

/// Waits until nothing is left in the spool.
pub(crate) async fn drained(api: &Api) {
    until("the spool is empty", async || {
        check(api).await.get("detail").is_none().then_some(())
    })
    .await;
}

async fn server(database: &Database, folder: &Folder) -> Server {
    Server::start_with_spool(database, folder.path(), &[]).await
}
