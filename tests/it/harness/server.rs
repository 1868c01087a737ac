//! The program as a process.

use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{Api, Database, PATIENCE};

/// The admin token of every test server.
pub(crate) const ADMIN: &str = "an-admin-token-for-tests-alone";

/// A running `pagetide serve`; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// What it printed before and with its address.
    pub(crate) said: Vec<String>,
}

impl Server {
    pub(crate) async fn start(database: &Database) -> Self {
        Self::start_with(database, &[]).await
    }

    /// With more settings, by environment.
    pub(crate) async fn start_with(database: &Database, env: &[(&str, &str)]) -> Self {
        let mut command = Self::command();
        command
            .env("DATABASE_URL", database.url())
            .env("PAGETIDE_ADMIN_TOKEN", ADMIN)
            .envs(env.iter().copied());
        Self::spawn(command).await
    }

    /// With a spool in `folder`, and more settings by environment.
    pub(crate) async fn start_with_spool(
        database: &Database,
        folder: &std::path::Path,
        env: &[(&str, &str)],
    ) -> Self {
        let folder = folder.to_str().unwrap();
        let spool = [("PAGETIDE_SPOOL", "jsonl"), ("PAGETIDE_DATA_DIR", folder)];
        let all: Vec<(&str, &str)> = spool.iter().chain(env).copied().collect();
        Self::start_with(database, &all).await
    }

    /// The program, on a port of its choice, with nothing of this environment's settings.
    /// `PAGETIDE_TEST_BINARY` names another build of it, such as an optimised one.
    pub(crate) fn command() -> Command {
        let other = std::env::var_os("PAGETIDE_TEST_BINARY");
        let mut command =
            Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_pagetide").into()));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("PAGETIDE_") || name == "DATABASE_URL" {
                command.env_remove(&*name);
            }
        }
        command.env("PAGETIDE_LISTEN", "127.0.0.1:0");
        // Two servers cannot share a folder; those that spool are given one of their own.
        command.env("PAGETIDE_SPOOL", "off");
        command
    }

    /// Starts `command` and waits until it listens.
    pub(crate) async fn spawn(command: Command) -> Self {
        let server = Self::try_spawn(command).await;
        server
            .unwrap_or_else(|said| panic!("the server ended before it listened; it said {said:?}"))
    }

    /// The same; what it said, if it ends before it listens.
    pub(crate) async fn try_spawn(mut command: Command) -> Result<Self, Vec<String>> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                said.push(line.clone());
                if let Some(url) = line.strip_prefix("listening on ") {
                    return Some(url.to_owned());
                }
            }
            None
        };
        let url = tokio::time::timeout(PATIENCE, listening).await.unwrap();
        let Some(url) = url else {
            return Err(said);
        };
        // Whatever else it says is read, so that it never waits for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, url, said })
    }

    /// A client with the admin token.
    pub(crate) fn api(&self) -> Api {
        Api::new(&self.url, ADMIN)
    }

    /// What it writes to standard error, if that is a pipe.
    pub(crate) fn stderr(&mut self) -> Option<tokio::process::ChildStderr> {
        self.child.stderr.take()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Kills it at once, and waits for its end.
    pub(crate) async fn kill(self) {
        self.signal("KILL");
        self.ended().await;
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("the server did not end").unwrap()
    }

    /// Ends it as an operator would, and waits for it.
    pub(crate) async fn terminate(self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }
}
