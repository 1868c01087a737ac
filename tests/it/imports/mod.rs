//! Imports: what a log holds counts once, however it gets here and whatever is killed meanwhile.

mod formats;
mod goaccess;
mod killed;
mod lines;
mod log;
mod ndjson;
mod readers;
mod refusals;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::consume::{Ended, Job};
use crate::embedded::Scratch;
use crate::harness::{Answer, Api, Database, Server};
use crate::independent::{self, RULES, Rules, Tally};
use crate::real_log;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Longest time that an import of a test may take, on a machine that does other things.
const LONG: Duration = Duration::from_mins(2);

/// `pagetide import` for a book, with more arguments, the files among them.
fn command(database: &Database, book: &str, arguments: &[&str]) -> Command {
    let mut command = Server::command();
    command
        .env("DATABASE_URL", database.url())
        .args(["import", "--book", book])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

/// Runs `pagetide import` to its end.
async fn import(database: &Database, book: &str, arguments: &[&str]) -> Ended {
    let job = Job::spawn(&mut command(database, book, arguments));
    job.ended_within(LONG).await
}

/// The same for the log of all tests, in the combined format.
async fn import_log(database: &Database, book: &str, arguments: &[&str]) -> Ended {
    let arguments = [&["--format", "combined", real_log::LOG], arguments].concat();
    import(database, book, &arguments).await
}

/// A book that counts pages by the hour and takes clicks a day late.
async fn hours_book(api: &Api, slug: &str) {
    api.plain_book(slug, HOUR_MS, DAY_MS).await;
}

/// All runs of a book, the oldest first.
async fn runs(api: &Api, book: &str) -> Vec<Value> {
    let path = format!("/v1/books/{book}/runs?limit=1000");
    let list = api.get(&path).await.expect(200);
    let mut runs = list["items"].as_array().unwrap().clone();
    // Their ids grow with time.
    runs.sort_by_key(|run| run["id"].as_str().unwrap().to_owned());
    runs
}

/// The newest run of a book, with all that is told of it.
async fn newest_run(api: &Api, book: &str) -> Value {
    let runs = runs(api, book).await;
    let id = runs.last().expect("there is no run")["id"]
        .as_str()
        .unwrap();
    let path = format!("/v1/books/{book}/runs/{id}");
    api.get(&path).await.expect(200)
}

/// What an import says of itself when it is done with all of a log that holds so many `lines`, of which
/// so many were in the book's log before. Blank lines there are none.
#[track_caller]
fn check_done(run: &Value, lines: usize, expected: &Tally, duplicates: i64) {
    assert_eq!(run["kind"], "import", "{run}");
    assert_eq!(run["state"], "done", "{run}");
    assert_eq!(run["error"], Value::Null, "{run}");
    assert_eq!(run["processed"], lines, "{run}");
    assert_eq!(run["duplicates"], duplicates, "{run}");
    assert_eq!(run["counted"], expected.views() - duplicates, "{run}");
    assert_eq!(run["rejected"], expected.rejected.len(), "{run}");
    for rule in RULES {
        assert_eq!(
            run["skipped"][rule], expected.skipped[rule],
            "{rule}: {run}"
        );
    }
    let listed = run["rejections"].as_array().unwrap();
    let listed: Vec<i64> = listed.iter().map(|r| r["line"].as_i64().unwrap()).collect();
    let few = &expected.rejected[..expected.rejected.len().min(100)];
    assert_eq!(listed, few, "{run}");
    let (began, ended) = (&run["started_at"], &run["finished_at"]);
    assert!(began.as_str().unwrap() <= ended.as_str().unwrap(), "{run}");
}

/// Sends a log to be imported; `query` holds format, source and what else is to be said.
async fn post_import(api: &Api, book: &str, query: &str, body: impl Into<reqwest::Body>) -> Answer {
    let path = format!("/v1/books/{book}/imports?{query}");
    Answer::of(api.request(Method::POST, &path).body(body)).await
}

/// An import that is being sent, and goes on as the test says.
struct Feed {
    pieces: mpsc::Sender<Bytes>,
    answer: JoinHandle<Option<Answer>>,
}

impl Feed {
    fn start(api: &Api, book: &str, query: &str) -> Self {
        let (pieces, waiting) = mpsc::channel::<Bytes>(1);
        let body = stream::unfold(waiting, |mut waiting| async move {
            let piece = waiting.recv().await?;
            Some((Ok::<_, Infallible>(piece), waiting))
        });
        let path = format!("/v1/books/{book}/imports?{query}");
        let request = api.request(Method::POST, &path);
        let request = request.body(reqwest::Body::wrap_stream(body));
        let answer = tokio::spawn(crate::harness::load::answer(request));
        Self { pieces, answer }
    }

    /// Sends more of it.
    async fn send(&self, piece: impl Into<Bytes>) {
        self.pieces.send(piece.into()).await.unwrap();
    }

    /// That was all; gives the answer, unless the connection broke.
    async fn end(self) -> Option<Answer> {
        drop(self.pieces);
        let answer = tokio::time::timeout(LONG, self.answer).await;
        answer.expect("the import is not answered").unwrap()
    }

    /// The client goes away in the midst of it.
    fn break_off(self) {
        self.answer.abort();
    }
}

/// A file in a folder of its own.
struct File {
    folder: Scratch,
    name: String,
}

impl File {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let (folder, name) = (Scratch::new(), name.to_owned());
        let file = Self { folder, name };
        file.write(content);
        file
    }

    fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(), content).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.0.join(&self.name)
    }

    /// As an argument.
    fn arg(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }
}

/// The log of all tests.
fn log() -> Vec<u8> {
    std::fs::read(real_log::LOG).unwrap()
}

/// The first `lines` of it.
fn beginning(lines: usize) -> Vec<u8> {
    let log = log();
    let mut ends = log.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let (end, _) = ends.nth(lines - 1).unwrap();
    log[..=end].to_vec()
}

/// What comes of a log in the combined format, by the script.
fn expected(log: &Path, rules: Rules<'_>) -> Tally {
    Tally::of(&independent::judge(log, rules))
}

/// What comes of the log of all tests.
fn expected_of_log(rules: Rules<'_>) -> Tally {
    expected(Path::new(real_log::LOG), rules)
}

/// How many clicks are in the log of all books.
async fn logged(database: &Database) -> i64 {
    database.number("SELECT count(*) FROM clicks").await
}

/// Closes a book.
async fn close(api: &Api, book: &str) {
    let path = format!("/v1/books/{book}/close");
    api.post(&path, &json!(null)).await.expect(200);
}
