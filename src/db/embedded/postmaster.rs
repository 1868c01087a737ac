//! The postmaster: our child from launch to end.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use sqlx::{ConnectOptions, Connection, postgres::PgConnectOptions};
use tokio::{
    process::Child,
    time::{sleep, timeout},
};

use super::{binaries::Binaries, error::EmbeddedError, log::ServerLog, owner::Owner, socket};

/// The settings that are ours to make, given on the command line so that they
/// follow the program's version and win over the cluster's `postgresql.conf`.
const SETTINGS: [&str; 15] = [
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "max_connections=100",
    "shared_buffers=128MB",
    // After each checkpoint the first change of a page writes all of it to the log. Under load, the
    // defaults would make a checkpoint every quarter of a minute.
    "max_wal_size=2GB",
    "checkpoint_timeout=15min",
    "wal_buffers=16MB",
    // What a client was told is committed stays so through a power cut.
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    // Statements here are short; compiling them takes longer than running.
    "jit=off",
    // To the file that we give it; and little, so that it stays small.
    "log_destination=stderr",
    "logging_collector=off",
    "log_min_messages=warning",
    "log_checkpoints=off",
];

/// How long a server that says nothing is waited for.
const SILENCE: Duration = Duration::from_mins(1);

/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The signals that end the server, and how long it gets to obey each: fast
/// shutdown, then immediate shutdown.
const WAYS_TO_STOP: [(&str, Duration); 2] = [
    ("INT", Duration::from_secs(30)),
    ("QUIT", Duration::from_secs(10)),
];

/// All that it takes to launch the server.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) binaries: &'a Binaries,
    pub(super) owner: &'a Owner,
    pub(super) cluster: &'a Path,
    pub(super) socket_folder: &'a Path,
    /// How to reach the database that always exists.
    pub(super) maintenance: PgConnectOptions,
}

impl Launch<'_> {
    /// Starts the postmaster and waits until it takes connections.
    pub(super) async fn run(&self, log: &ServerLog) -> Result<Postmaster, EmbeddedError> {
        let mut postmaster = self.spawn(log)?;
        postmaster.ready(&self.maintenance, log).await?;
        Ok(postmaster)
    }

    fn spawn(&self, log: &ServerLog) -> Result<Postmaster, EmbeddedError> {
        // Quoted, as the setting is a list.
        let mut socket_folder = OsString::from("unix_socket_directories=\"");
        socket_folder.push(self.socket_folder);
        socket_folder.push("\"");

        let postgres = self.binaries.postgres();
        let mut command = self.owner.command(&postgres);
        command.arg("-D").arg(self.cluster);
        command.arg("-c").arg(socket_folder);
        command.arg("-c").arg(format!("port={}", socket::PORT));
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.stdout(Stdio::null()).stderr(log.writer()?);
        let child = tokio::process::Command::from(command)
            .spawn()
            .map_err(EmbeddedError::run(&postgres))?;
        Ok(Postmaster {
            child,
            pg_ctl: self.binaries.pg_ctl(),
            owner: self.owner.clone(),
        })
    }
}

/// A postmaster that we have started. Dropping it tells it to stop.
#[derive(Debug)]
pub(super) struct Postmaster {
    child: Child,
    pg_ctl: PathBuf,
    owner: Owner,
}

impl Postmaster {
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) async fn wait(&mut self) -> Result<ExitStatus, EmbeddedError> {
        self.child
            .wait()
            .await
            .map_err(|source| EmbeddedError::Wait { source })
    }

    /// Waits until the server takes connections, for as long as it shows that
    /// it is alive: replaying the log after a crash takes what it takes, and
    /// giving up would only begin it anew.
    async fn ready(
        &mut self,
        maintenance: &PgConnectOptions,
        log: &ServerLog,
    ) -> Result<(), EmbeddedError> {
        let mut last_sign = Instant::now();
        let mut told = Instant::now();
        loop {
            let attempt = tokio::select! {
                status = self.child.wait() => {
                    let status = status.map_err(|source| EmbeddedError::Wait { source })?;
                    return Err(EmbeddedError::Exited { status, log: log.tail() });
                }
                attempt = timeout(ATTEMPT, maintenance.connect()) => attempt,
            };
            match attempt {
                Ok(Ok(connection)) => {
                    // That it let us in is all we wanted to know.
                    let _ = connection.close().await;
                    return Ok(());
                }
                Ok(Err(error)) if is_starting_up(&error) => last_sign = Instant::now(),
                Ok(Err(source @ sqlx::Error::Database(_))) => {
                    return Err(EmbeddedError::Refused {
                        action: "our connection",
                        source,
                    });
                }
                // Not listening yet.
                Ok(Err(_)) | Err(_) => {}
            }
            if last_sign.elapsed() > SILENCE {
                return Err(EmbeddedError::Silent {
                    seconds: SILENCE.as_secs(),
                    log: log.tail(),
                });
            }
            if told.elapsed() > Duration::from_secs(10) {
                tracing::info!("postgres is still starting up");
                told = Instant::now();
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends the server, as gently as it lets us. Does nothing if it has ended.
    pub(super) async fn stop(&mut self) -> Result<(), EmbeddedError> {
        for (signal, patience) in WAYS_TO_STOP {
            let Some(command) = self.signal(signal) else {
                return Ok(());
            };
            let sent = tokio::process::Command::from(command).status().await;
            if !sent.is_ok_and(|status| status.success()) {
                tracing::warn!("could not send SIG{signal} to postgres");
                continue;
            }
            if let Ok(ended) = timeout(patience, self.wait()).await {
                let status = ended?;
                if !status.success() {
                    tracing::warn!("postgres ended with {status}");
                }
                return Ok(());
            }
            tracing::warn!("postgres did not end within {patience:?} of SIG{signal}");
        }
        self.child
            .kill()
            .await
            .map_err(|source| EmbeddedError::Wait { source })
    }

    /// A command that sends a signal to the postmaster, or `None` once it has
    /// ended. `pg_ctl` does it, as the standard library only knows `SIGKILL`;
    /// and the id cannot have gone to another process, as a child keeps its
    /// own until it has been waited for.
    fn signal(&self, signal: &str) -> Option<Command> {
        let pid = self.pid()?;
        let mut command = self.owner.command(&self.pg_ctl);
        command.args(["kill", signal, &pid.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Some(command)
    }
}

impl Drop for Postmaster {
    /// Immediate shutdown (`SIGQUIT`), not waited for. It beats a `SIGKILL` of
    /// the postmaster in that it ends the backends too.
    fn drop(&mut self) {
        let Some(mut command) = self.signal("QUIT") else {
            return;
        };
        if !command.status().is_ok_and(|status| status.success()) {
            // Nothing is left to be done if that fails too.
            let _ = self.child.start_kill();
        }
    }
}

/// Whether the server says that it cannot take connections yet.
fn is_starting_up(error: &sqlx::Error) -> bool {
    const CANNOT_CONNECT_NOW: &str = "57P03";
    error
        .as_database_error()
        .is_some_and(|error| error.code().as_deref() == Some(CANNOT_CONNECT_NOW))
}
