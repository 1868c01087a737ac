//! The cluster on disk: making it, and knowing it again.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sqlx::{ConnectOptions, Connection, Executor, postgres::PgConnectOptions};
use uuid::Uuid;

use super::{
    ROLE_AND_DATABASE,
    binaries::Binaries,
    error::{EmbeddedError, last_lines},
    folder,
    owner::Owner,
};

/// What the names of clusters in the making begin with.
const UNFINISHED: &str = "postgres.unfinished-";

/// Where the cluster of a data folder lives.
pub(super) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("postgres")
}

/// Where a cluster is made before it takes its place. Never the same twice: an
/// `initdb` outlives our being killed, and must not meet the next one.
fn unfinished(data_dir: &Path) -> PathBuf {
    data_dir.join(format!("{UNFINISHED}{}", Uuid::new_v4().simple()))
}

/// Removes what interrupted starts have left of clusters in the making. An
/// `initdb` that is still at it may get in the way of that; then the remains
/// go at a later start.
pub(super) fn remove_interrupted(data_dir: &Path) {
    let Ok(entries) = fs::read_dir(data_dir) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED)
            && let Err(error) = folder::remove(&entry.path())
        {
            tracing::warn!("{error}, which an interrupted initdb has left");
        }
    }
}

/// The major version that made the cluster, or `None` if there is no cluster.
pub(super) fn major_version(cluster: &Path) -> Result<Option<u32>, EmbeddedError> {
    let not_a_cluster = || EmbeddedError::NotACluster {
        folder: cluster.to_path_buf(),
    };
    match fs::read_to_string(cluster.join("PG_VERSION")) {
        // "15", or "9.6" before PostgreSQL 10.
        Ok(version) => {
            let major = version
                .trim()
                .split('.')
                .next()
                .and_then(|major| major.parse().ok());
            major.map(Some).ok_or_else(not_a_cluster)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_dir(cluster) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(EmbeddedError::file("read", cluster)(error)),
            // A rename may replace an empty folder, so that one is no matter.
            Ok(mut entries) => match entries.next() {
                None => Ok(None),
                Some(_) => Err(not_a_cluster()),
            },
        },
        Err(error) => Err(EmbeddedError::file("read", &cluster.join("PG_VERSION"))(
            error,
        )),
    }
}

/// Makes a cluster. It appears in its place complete, or not at all: a half
/// made one would look whole to the next start.
pub(super) async fn create(
    data_dir: &Path,
    binaries: &Binaries,
    owner: &Owner,
) -> Result<(), EmbeddedError> {
    let unfinished = unfinished(data_dir);
    folder::create_private(&unfinished).map_err(EmbeddedError::file("create", &unfinished))?;
    owner.take(&unfinished)?;

    let initdb = binaries.initdb();
    let mut command = owner.command(&initdb);
    command.arg("-D").arg(&unfinished).args([
        "--username",
        ROLE_AND_DATABASE,
        // No password: the one way in is a Unix socket in a folder that only
        // the owner (and root) may enter, so that the kernel has checked who
        // it is already.
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--data-checksums",
        "--no-instructions",
    ]);
    tracing::info!("making a PostgreSQL {} cluster", binaries.version);
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(EmbeddedError::run(&initdb))?;
    if !output.status.success() {
        return Err(EmbeddedError::Initdb {
            status: output.status,
            output: last_lines(&output.stderr),
        });
    }

    let cluster = folder(data_dir);
    fs::rename(&unfinished, &cluster).map_err(EmbeddedError::file("create", &cluster))?;
    folder::sync(data_dir)
}

/// Creates the program's database if it is missing.
pub(super) async fn create_database(maintenance: &PgConnectOptions) -> Result<(), EmbeddedError> {
    let refused = |source| EmbeddedError::Refused {
        action: "to create the database",
        source,
    };

    let mut connection = maintenance.connect().await.map_err(refused)?;
    let exists: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(ROLE_AND_DATABASE)
            .fetch_one(&mut connection)
            .await
            .map_err(refused)?;
    if !exists {
        connection
            .execute("CREATE DATABASE pagetide")
            .await
            .map_err(refused)?;
    }
    connection.close().await.map_err(refused)
}
