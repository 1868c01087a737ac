//! `pagetide consume`: what jobs read is counted as their mode says, whatever is killed.

mod beside;
mod crashes;
mod fencing;
mod reading;
mod steps;
mod telling;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::harness::{Database, PATIENCE, Server};

/// A running `pagetide consume`; killed when dropped.
pub(super) struct Job {
    child: Child,
    said: Arc<Mutex<String>>,
    reading: JoinHandle<()>,
}

/// How it ended, and what it said on standard error.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) said: String,
}

impl Ended {
    #[track_caller]
    pub(super) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.said);
        self.said
    }

    /// Ended with 1, and said this.
    #[track_caller]
    pub(super) fn badly(self, why: &str) {
        assert_eq!(self.code, Some(1), "{}", self.said);
        assert!(self.said.contains(why), "{}", self.said);
    }
}

/// `pagetide consume --book b` with `arguments`, and the source; the job is `j` if they name none.
pub(super) fn command(database: &Database, arguments: &[&str], source: &Path) -> Command {
    let mut command = Server::command();
    command
        .env("DATABASE_URL", database.url())
        .args(["consume", "--book", "b"])
        .args(arguments);
    if !arguments.contains(&"--job") {
        command.args(["--job", "j"]);
    }
    command.arg(source);
    command
}

impl Job {
    pub(super) fn start(database: &Database, arguments: &[&str], source: &Path) -> Self {
        Self::spawn(command(database, arguments, source).stdin(Stdio::null()))
    }

    pub(super) fn spawn(command: &mut Command) -> Self {
        let command = command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let said: Arc<Mutex<String>> = Arc::default();
        let mut from = child.stderr.take().unwrap();
        let heard = Arc::clone(&said);
        let reading = tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = tokio::io::AsyncReadExt::read(&mut from, &mut piece).await
            {
                let text = String::from_utf8_lossy(&piece[..length]).into_owned();
                heard.lock().unwrap().push_str(&text);
            }
        });
        Self {
            child,
            said,
            reading,
        }
    }

    pub(super) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(super) async fn ended(self) -> Ended {
        self.ended_within(PATIENCE).await
    }

    pub(super) async fn ended_within(mut self, patience: Duration) -> Ended {
        let ended = tokio::time::timeout(patience, self.child.wait()).await;
        let Ok(ended) = ended else {
            panic!("the job did not end; it said {}", self.said());
        };
        self.reading.await.unwrap();
        let said = self.said.lock().unwrap().clone();
        Ended {
            code: ended.unwrap().code(),
            said,
        }
    }

    /// `kill -9`.
    pub(super) async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
    }

    pub(super) async fn terminate(self) -> Ended {
        let pid = self.child.id().unwrap().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status();
        assert!(sent.unwrap().success());
        self.ended().await
    }
}

/// Runs a job to the end of its source.
pub(super) async fn run(database: &Database, arguments: &[&str], source: &Path) -> Ended {
    Job::start(database, arguments, source).ended().await
}

/// A file that grows; removed when dropped.
pub(super) struct Source(PathBuf);

impl Source {
    pub(super) fn new(content: &str) -> Self {
        let name = format!("pt-source-{}", uuid::Uuid::new_v4().simple());
        let source = Self(std::env::temp_dir().join(name));
        fs::write(&source.0, content).unwrap();
        source
    }

    /// With so many lines of [`LINE`].
    pub(super) fn of(lines: usize) -> Self {
        Self::new(&LINE.repeat(lines))
    }

    pub(super) fn append(&self, text: &str) {
        let mut file = OpenOptions::new().append(true).open(&self.0).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        fs::File::open(&self.0)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A click without an id.
pub(super) const LINE: &str = "{\"page\":\"/p\",\"at\":1000}\n";

/// Length of [`LINE`].
pub(super) const LINE_BYTES: i64 = 24;

/// Where the job stands: its offset and its state.
pub(super) async fn row(database: &Database) -> Option<(i64, Value)> {
    let mut conn = database.connect().await;
    let row = sqlx::query_as("SELECT source_offset, state FROM jobs WHERE name = 'j'");
    row.fetch_optional(&mut conn).await.unwrap()
}

/// How many clicks are in the log.
pub(super) async fn logged(database: &Database) -> i64 {
    database.number("SELECT count(*) FROM clicks").await
}
