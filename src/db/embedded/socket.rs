//! The folder of the Unix socket: short, private and ours.

use std::{
    env,
    fmt::Write,
    fs::{self, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{error::EmbeddedError, folder, owner::Owner};

/// Only part of the socket's name here, as each server has its own folder.
pub(super) const PORT: u16 = 5432;

/// What `sun_path` holds on the systems where it is shortest, in bytes
/// without the final zero.
pub(super) const LONGEST_PATH: usize = 103;

/// The environment variables that decide where the folder goes.
pub(super) const PLACE_VARIABLES: &str = "XDG_RUNTIME_DIR or TMPDIR";

/// Creates the socket folder of a data folder, or makes sure that the one
/// that exists can be trusted, and gives its path.
pub(super) async fn prepare(data_dir: &Path, owner: &Owner) -> Result<PathBuf, EmbeddedError> {
    let name = format!("pagetide-{}", fingerprint(data_dir));
    let (first, fallback) = places(owner);
    let folder = match claim(first.join(&name), owner) {
        // Missing, not writable or too long: of no use, but no danger either.
        Err(error @ (EmbeddedError::File { .. } | EmbeddedError::SocketPathTooLong { .. }))
            if first != fallback =>
        {
            tracing::debug!(place = %first.display(), %error, "the socket folder goes elsewhere");
            claim(fallback.join(&name), owner)?
        }
        claimed => claimed?,
    };
    owner.ensure_can_enter(&folder).await?;
    Ok(folder)
}

/// The socket folder of a data folder whose server runs, if it can be trusted.
pub(super) fn existing(data_dir: &Path, owner: &Owner) -> Option<PathBuf> {
    let name = format!("pagetide-{}", fingerprint(data_dir));
    let (first, fallback) = places(owner);
    let folders = [first.join(&name), fallback.join(&name)];
    folders.into_iter().find(|folder| {
        let theirs = fs::symlink_metadata(folder);
        theirs.is_ok_and(|found| found.is_dir() && found.uid() == owner.uid())
            && socket(folder).exists()
    })
}

/// Removes the socket of a server that is known to run no longer. Postgres
/// would do so itself, unless the process id in the socket's lock file has
/// gone to someone else meanwhile.
pub(super) fn remove_leftovers(folder: &Path) -> Result<(), EmbeddedError> {
    folder::remove_file(&socket(folder))?;
    folder::remove_file(&folder.join(format!(".s.PGSQL.{PORT}.lock")))
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

/// The best place for the folder, and the one that always exists.
fn places(owner: &Owner) -> (PathBuf, PathBuf) {
    let best = if owner.is_stand_in() {
        Some(PathBuf::from("/run"))
    } else {
        env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|place| place.is_absolute())
    };
    let fallback = env::temp_dir();
    (best.unwrap_or_else(|| fallback.clone()), fallback)
}

/// Twelve hexadecimal digits that tell data folders apart.
fn fingerprint(data_dir: &Path) -> String {
    let digest = Sha256::digest(data_dir.as_os_str().as_bytes());
    digest[..6].iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn claim(folder: PathBuf, owner: &Owner) -> Result<PathBuf, EmbeddedError> {
    let socket = socket(&folder);
    if socket.as_os_str().len() > LONGEST_PATH {
        return Err(EmbeddedError::SocketPathTooLong { path: socket });
    }
    match folder::create_private(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => examine(&folder, owner)?,
        Err(error) => return Err(EmbeddedError::file("create", &folder)(error)),
    }
    owner.take(&folder)?;
    Ok(folder)
}

/// The place may be one where everyone can create things, such as `/tmp`, so
/// that someone else may have been here first.
fn examine(folder: &Path, owner: &Owner) -> Result<(), EmbeddedError> {
    let refuse = |reason| {
        Err(EmbeddedError::SocketFolder {
            folder: folder.to_path_buf(),
            reason,
        })
    };
    let found = fs::symlink_metadata(folder).map_err(EmbeddedError::file("read", folder))?;
    if !found.is_dir() {
        return refuse("is no folder".to_owned());
    }
    // Root's own is what a start that was interrupted here has left.
    let left_by_root = owner.is_stand_in() && found.uid() == 0;
    if found.uid() != owner.uid() && !left_by_root {
        return refuse(format!("belongs to uid {} instead of {owner}", found.uid()));
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700))
        .map_err(EmbeddedError::file("change the mode of", folder))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn data_folders_are_told_apart() {
        let one = fingerprint(Path::new("/var/lib/pagetide"));
        assert_eq!(one.len(), 12);
        assert_ne!(one, fingerprint(Path::new("/var/lib/pagetide2")));
    }

    #[tokio::test]
    async fn a_path_that_no_socket_can_have_is_refused() {
        let owner = Owner::choose(Path::new("/nonexistent")).unwrap();
        let folder = env::temp_dir().join("x".repeat(100));
        let error = claim(folder.clone(), &owner).unwrap_err();
        assert!(
            matches!(error, EmbeddedError::SocketPathTooLong { .. }),
            "{error}"
        );
        assert!(!folder.exists());
    }
}
