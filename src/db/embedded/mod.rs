//! A Postgres of our own, for when no server was given.
//!
//! [`Embedded::start`] turns one data folder into a running, private server:
//!
//! ```text
//! <data_dir>/pagetide.lock          held for as long as the server runs
//! <data_dir>/postgres/              the cluster, 0700, owned by whoever runs it
//! <data_dir>/postgres.log           what the server says (and postgres.log.1)
//! <data_dir>/postgres-binaries/     only if the machine had no Postgres
//! <run>/pagetide-<hash>/            the Unix socket, 0700
//! ```
//!
//! The server listens on no network address. The postmaster is our child, in a
//! process group of its own so that a Ctrl-C meant for us does not reach it.
//! Three ways lead out:
//!
//! * [`Embedded::stop`] shuts it down in good order;
//! * dropping the handle tells it to stop at once (`SIGQUIT`) without waiting
//!   for it: nothing committed is lost, the next start replays the log;
//! * if we are killed outright the server lives on, and the next start on the
//!   same folder finds it, stops it and starts anew.
//!
//! Starting and stopping use plain blocking file calls here and there: they are
//! few and small, and nothing else runs at that time.

mod binaries;
mod cluster;
mod error;
mod fetch;
mod folder;
mod log;
mod orphan;
mod owner;
mod plug;
mod postmaster;
mod socket;

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use self::{
    binaries::Binaries,
    folder::FolderLock,
    log::ServerLog,
    owner::Owner,
    postmaster::{Launch, Postmaster},
};
pub use self::{binaries::BinarySearch, error::EmbeddedError};

/// Whether this process is root's, which must not run Postgres itself. Must be called within a Tokio
/// runtime.
#[must_use]
pub fn is_root() -> bool {
    owner::effective_ids().is_ok_and(|(uid, _)| uid == 0)
}

/// The cluster's superuser, and the database that the program works in.
const ROLE_AND_DATABASE: &str = "pagetide";

/// How long backends that outlived their killed postmaster may hold the
/// cluster's shared memory before we give up: they go as soon as they look up
/// from what they do.
const SHARED_MEMORY_PATIENCE: Duration = Duration::from_mins(1);

/// A running Postgres that belongs to this process alone.
///
/// Prefer [`stop`](Self::stop) over dropping it; see the [module](self) for
/// what dropping does.
#[derive(Debug)]
pub struct Embedded {
    // Fields drop in this order: the server is told to stop before the lock
    // lets another process have the folder.
    postmaster: Postmaster,
    cluster: PathBuf,
    socket_folder: PathBuf,
    version: String,
    owner: Owner,
    _lock: FolderLock,
}

impl Embedded {
    /// Brings up the Postgres that lives in `data_dir`, creating folder,
    /// cluster and database as needed, and returns once it takes connections.
    ///
    /// Binaries are looked for in the [usual places](BinarySearch::default)
    /// and fetched if there are none. As root, everything of Postgres runs as
    /// an unprivileged user instead: whoever owns the cluster already, else
    /// `postgres`, else `nobody` (from `/etc/passwd`, so local users only).
    ///
    /// Must be called within a Tokio runtime that has I/O and time enabled.
    /// Cancelling it leaves no server behind.
    ///
    /// # Errors
    ///
    /// See [`EmbeddedError`]. The folder is unharmed after every one of them.
    pub async fn start(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::start_with(data_dir, &BinarySearch::default()).await
    }

    /// Does what [`start`](Self::start) does with another idea of where the
    /// Postgres binaries may come from.
    ///
    /// # Errors
    ///
    /// See [`EmbeddedError`].
    pub async fn start_with(data_dir: &Path, search: &BinarySearch) -> Result<Self, EmbeddedError> {
        let data_dir = folder::prepare(data_dir)?;
        let lock = FolderLock::take(&data_dir)?;
        let cluster = cluster::folder(&data_dir);
        let owner = Owner::choose(&cluster)?;
        owner.ensure_can_enter(&data_dir).await?;

        let binaries = prepare_cluster(&data_dir, &cluster, search, &owner).await?;
        // The path as the kernel sees it, which is how a postmaster left over
        // from an earlier run is recognised.
        let cluster = folder::canonical(&cluster)?;
        owner.ensure_can_enter(&cluster).await?;

        let socket_folder = socket::prepare(&data_dir, &owner).await?;
        if orphan::clear(&cluster, &binaries, &owner).await? {
            socket::remove_leftovers(&socket_folder)?;
        }
        let launch = Launch {
            binaries: &binaries,
            owner: &owner,
            cluster: &cluster,
            socket_folder: &socket_folder,
            maintenance: connect_options(&socket_folder).database("postgres"),
        };
        let postmaster = launch_patiently(&launch, &data_dir).await?;
        cluster::create_database(&launch.maintenance).await?;

        let embedded = Self {
            postmaster,
            cluster,
            socket_folder,
            version: binaries.version,
            owner,
            _lock: lock,
        };
        tracing::info!("embedded {}", embedded.describe());
        Ok(embedded)
    }

    /// How to connect to the server that another process of ours runs in `data_dir`, if one does.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError`], if the folder cannot be looked into.
    pub fn running(data_dir: &Path) -> Result<Option<PgConnectOptions>, EmbeddedError> {
        let data_dir = folder::prepare(data_dir)?;
        let owner = Owner::choose(&cluster::folder(&data_dir))?;
        let socket_folder = socket::existing(&data_dir, &owner);
        Ok(socket_folder.map(|folder| connect_options(&folder)))
    }

    /// Kills the server that runs in `data_dir`, all of its processes at once, as a power cut would,
    /// and returns when it is gone. What was committed is there after the next start. Does nothing
    /// if none runs there.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError`], if its processes cannot be found or killed.
    pub async fn kill(data_dir: &Path) -> Result<(), EmbeddedError> {
        let data_dir = folder::prepare(data_dir)?;
        let cluster = folder::canonical(&cluster::folder(&data_dir))?;
        plug::pull(&cluster).await?;
        // Its socket is nobody's now.
        if let Some(folder) = socket::existing(&data_dir, &Owner::choose(&cluster)?) {
            socket::remove_leftovers(&folder)?;
            let _ = std::fs::remove_dir(&folder);
        }
        Ok(())
    }

    /// How to connect: over the Unix socket, as superuser `pagetide`, to
    /// database `pagetide`. The server allows 100 connections, three of them
    /// kept for superusers such as this one.
    #[must_use]
    pub fn connect_options(&self) -> PgConnectOptions {
        connect_options(&self.socket_folder)
    }

    /// One line for people: version, cluster folder, and the user it runs as.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "PostgreSQL {} in {}, run by {}",
            self.version,
            self.cluster.display(),
            self.owner
        )
    }

    /// Process id of the postmaster, or `None` once [`wait`](Self::wait) has
    /// seen it end.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.pid()
    }

    /// Returns when the postmaster has ended by itself, which it never should.
    ///
    /// Cancelling it is harmless, so that it fits a branch of `select!`; after
    /// it has returned, further calls return the same at once.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::Wait`] if the operating system would not say.
    pub async fn wait(&mut self) -> Result<ExitStatus, EmbeddedError> {
        self.postmaster.wait().await
    }

    /// Shuts the server down: open transactions are rolled back, data is
    /// written out, and the folder is free again when this returns.
    ///
    /// That usually takes well under a second. A server that is not done
    /// within 30 seconds is told to stop at once, and 10 seconds later is
    /// killed; the next start then replays its log.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::Wait`] if the end of the server could not be learnt.
    pub async fn stop(mut self) -> Result<(), EmbeddedError> {
        self.postmaster.stop().await?;
        // Empty now; left in place if it is not, as the next start copes.
        let _ = std::fs::remove_dir(&self.socket_folder);
        Ok(())
    }
}

/// Makes sure there is a cluster, and gives the binaries that can run it.
async fn prepare_cluster(
    data_dir: &Path,
    cluster: &Path,
    search: &BinarySearch,
    owner: &Owner,
) -> Result<Binaries, EmbeddedError> {
    cluster::remove_interrupted(data_dir);
    let existing = cluster::major_version(cluster)?;
    if existing.is_some() {
        owner.ensure_owns(cluster)?;
    }
    let found = search.find(data_dir, owner).await;
    let binaries = match existing {
        Some(major) => {
            search
                .for_cluster(major, cluster, found, data_dir, owner)
                .await?
        }
        None => search.newest(found, data_dir, owner).await?,
    };
    if existing.is_none() {
        cluster::create(data_dir, &binaries, owner).await?;
    }
    Ok(binaries)
}

/// Launches the postmaster, and again for as long as it only fails because
/// backends of a killed predecessor are still about.
async fn launch_patiently(
    launch: &Launch<'_>,
    data_dir: &Path,
) -> Result<Postmaster, EmbeddedError> {
    let give_up = Instant::now() + SHARED_MEMORY_PATIENCE;
    loop {
        let log = ServerLog::open(data_dir)?;
        match launch.run(&log).await {
            Err(EmbeddedError::Exited { log, .. })
                if log.contains("pre-existing shared memory block") && Instant::now() < give_up =>
            {
                tracing::info!("waiting for what a killed postgres left running to end");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            outcome => return outcome,
        }
    }
}

fn connect_options(socket_folder: &Path) -> PgConnectOptions {
    // Every setting that decides where we end up is given here, as the
    // defaults come from PGHOST and its like. No TLS: sqlx would otherwise ask
    // for it on a Unix socket too.
    PgConnectOptions::new_without_pgpass()
        .socket(socket_folder)
        .port(socket::PORT)
        .username(ROLE_AND_DATABASE)
        .database(ROLE_AND_DATABASE)
        .ssl_mode(PgSslMode::Disable)
        .application_name("pagetide")
}
