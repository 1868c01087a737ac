//! The data folder, and the lock that keeps it ours.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

use super::error::EmbeddedError;

/// Creates the data folder if it is missing, and gives its canonical path.
pub(super) fn prepare(data_dir: &Path) -> Result<PathBuf, EmbeddedError> {
    create_open(data_dir)?;
    canonical(data_dir)
}

/// The one true path of something that exists.
pub(super) fn canonical(path: &Path) -> Result<PathBuf, EmbeddedError> {
    fs::canonicalize(path).map_err(EmbeddedError::file("find", path))
}

/// Creates a folder, and those above it, that everyone may enter: what is
/// private in there has a stricter mode of its own.
pub(super) fn create_open(folder: &Path) -> Result<(), EmbeddedError> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        create_open(parent)?;
    }
    let created = DirBuilder::new()
        .create(folder)
        // The mode is set afterwards, as a strict umask would take its bits
        // off and lock out the user who runs Postgres.
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o755)));
    match created {
        // Someone who starts at the same moment was faster.
        Err(_) if folder.is_dir() => Ok(()),
        created => created.map_err(EmbeddedError::file("create", folder)),
    }
}

/// Creates a folder that only its owner may enter.
pub(super) fn create_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

/// Removes a folder and all in it; that there is none is fine.
pub(super) fn remove(folder: &Path) -> Result<(), EmbeddedError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(EmbeddedError::file("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// Removes a file; that there is none is fine.
pub(super) fn remove_file(file: &Path) -> Result<(), EmbeddedError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(EmbeddedError::file("remove", file)(error))
        }
        _ => Ok(()),
    }
}

/// Makes a rename inside `folder` outlast a power cut.
pub(super) fn sync(folder: &Path) -> Result<(), EmbeddedError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(EmbeddedError::file("sync", folder))
}

/// Holds `pagetide.lock` in a data folder. The kernel gives the lock back when
/// the process ends, however it ends; the file stays and means nothing then.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    pub(super) fn take(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let path = data_dir.join("pagetide.lock");
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            // What is in there belongs to the holder until the lock is ours.
            .truncate(false)
            .open(&path)
            .map_err(EmbeddedError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                return Err(EmbeddedError::Locked {
                    folder: data_dir.to_path_buf(),
                    pid: holder.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(EmbeddedError::file("lock", &path)(error));
            }
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", process::id()))
            .map_err(EmbeddedError::file("write to", &path))?;
        Ok(Self { _file: file })
    }
}
