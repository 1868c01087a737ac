//! The server that is shown: this very program, as a child with a data folder of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::DemoError;
use crate::db::embedded::Embedded;
use crate::demo::show::Board;

/// How long the server may take to end in order; its own grace time is shorter.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the dark lasts once the plug was pulled.
const DARK: Duration = Duration::from_secs(2);

/// How much of the server's log is told if it ends by itself, in lines.
const LOG_LINES: usize = 12;

/// What the server is started with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) program: PathBuf,
    pub(super) data_dir: PathBuf,
    pub(super) log: PathBuf,
    pub(super) admin_token: String,
    /// The origin whose pages show the dashboard in a frame.
    pub(super) stage: String,
}

struct Server {
    child: Child,
    /// Held here, for waiting for the child would close it.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts it, on a port of its choice. Its standard input is a pipe that nothing comes from: it
    /// ends with us, however we end. It leads a group of its own, so that a Ctrl-C is ours alone.
    fn spawn(settings: &Settings) -> Result<Self, DemoError> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&settings.log)
            .map_err(DemoError::Start)?;
        let mut command = Command::new(&settings.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PAGETIDE_") || name == "DATABASE_URL" {
                command.env_remove(name);
            }
        }
        command
            .args(["serve", "--end-with-stdin", "--listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(&settings.data_dir)
            .env("PAGETIDE_ADMIN_TOKEN", &settings.admin_token)
            .env("PAGETIDE_FRAME_ANCESTORS", &settings.stage)
            .env("PAGETIDE_DRAIN_MS", "2000")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0);
        let mut child = command.spawn().map_err(DemoError::Start)?;
        let stdout = child.stdout.take();
        let stdout = stdout.ok_or_else(|| DemoError::Start(std::io::ErrorKind::Other.into()))?;
        let lines = BufReader::new(stdout).lines();
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            stdin,
            lines,
        })
    }

    /// Waits until it listens, and says where.
    async fn ready(&mut self, settings: &Settings) -> Result<SocketAddr, DemoError> {
        while let Ok(Some(line)) = self.lines.next_line().await {
            let address = line.strip_prefix("listening on http://");
            if let Some(address) = address.and_then(|address| address.parse().ok()) {
                return Ok(address);
            }
        }
        Err(self.ended(settings).await)
    }

    /// Waits until it has ended by itself, which it never should.
    async fn ended(&mut self, settings: &Settings) -> DemoError {
        let status = self.child.wait().await;
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let log = last_lines(&settings.log);
        DemoError::ServerEnded { status, log }
    }

    /// Ends it in order, its Postgres with it.
    async fn end(mut self, settings: &Settings) -> Result<(), DemoError> {
        drop(self.stdin.take());
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(ended) => ended.map(|_| ()).map_err(DemoError::Start),
            Err(_) => self.kill(settings).await,
        }
    }

    /// Kills it, and then every process of its Postgres.
    async fn kill(mut self, settings: &Settings) -> Result<(), DemoError> {
        self.child.kill().await.map_err(DemoError::Start)?;
        Ok(Embedded::kill(&settings.data_dir).await?)
    }
}

fn last_lines(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Why a server is no more.
enum Ended {
    Asked,
    Unplugged,
    Failed(DemoError),
}

/// Keeps the server running, whose address `upstream` says, and pulls the plug whenever `plug` rings,
/// until `stop`. Nothing of it is left when this returns.
pub(super) async fn power(
    settings: Settings,
    upstream: watch::Sender<Option<SocketAddr>>,
    plug: Arc<Notify>,
    board: Board,
    stop: CancellationToken,
) -> Result<(), DemoError> {
    loop {
        let mut server = Server::spawn(&settings)?;
        let ended = tokio::select! {
            ended = run(&mut server, &settings, &upstream, &plug, &board) => ended,
            () = stop.cancelled() => Ended::Asked,
        };
        upstream.send_replace(None);
        board.change(|show| show.running = false);
        match ended {
            Ended::Asked => return server.end(&settings).await,
            Ended::Failed(error) => {
                server.end(&settings).await?;
                return Err(error);
            }
            Ended::Unplugged => {
                server.kill(&settings).await?;
                board.tell(
                    "The plug is out: kill -9 for the server and every process of its Postgres. \
                     The readers read on; what they click waits with them until somebody says \
                     that it is counted.",
                );
            }
        }
        tokio::select! {
            () = sleep(DARK) => {}
            () = stop.cancelled() => return Ok(()),
        }
        board.tell(
            "The plug is in again. Postgres replays its log, the server starts, and whatever was not \
             acknowledged is sent again.",
        );
    }
}

/// Runs the server until it is to end.
async fn run(
    server: &mut Server,
    settings: &Settings,
    upstream: &watch::Sender<Option<SocketAddr>>,
    plug: &Notify,
    board: &Board,
) -> Ended {
    let address = match server.ready(settings).await {
        Ok(address) => address,
        Err(error) => return Ended::Failed(error),
    };
    upstream.send_replace(Some(address));
    board.change(|show| show.running = true);
    tokio::select! {
        () = plug.notified() => Ended::Unplugged,
        error = server.ended(settings) => Ended::Failed(error),
    }
}
