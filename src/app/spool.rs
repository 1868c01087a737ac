//! The spool's folder: opened, and only for the database whose clicks wait in it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use uuid::Uuid;

use crate::ingest::spooled::SpooledClick;
use crate::spool::Store;
use crate::spool::disk::{DiskStore, OpenError};

/// Why the spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Its folder cannot be used.
    #[error(
        "the spool cannot be used; PAGETIDE_DATA_DIR names its place, PAGETIDE_SPOOL=off does without"
    )]
    Open(#[from] OpenError),
    /// Which database it belongs to cannot be read or written.
    #[error("{0} cannot be read or written")]
    Owner(PathBuf, #[source] io::Error),
    /// What waits in it would be thrown away.
    #[error(
        "clicks wait in the spool {0} for another database: start once with that one, name another \
         PAGETIDE_DATA_DIR, or move the folder away"
    )]
    OtherDatabase(PathBuf),
}

/// Opens the spool in `data_dir` for the database `identity`.
///
/// # Errors
/// See [`SpoolError`].
pub(super) fn open(
    data_dir: &Path,
    max_bytes: u64,
    identity: Uuid,
) -> Result<DiskStore<SpooledClick>, SpoolError> {
    let folder = data_dir.join("spool");
    let store = DiskStore::open(&folder, max_bytes)?;
    // Beside the folder, in which every file is a segment.
    let owner = data_dir.join("spool.database");
    let failed = |error| SpoolError::Owner(owner.clone(), error);
    let known = match fs::read_to_string(&owner) {
        Ok(known) => known,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    if known.trim() == identity.to_string() {
        return Ok(store);
    }
    if store.segments() > 0 && !known.is_empty() {
        return Err(SpoolError::OtherDatabase(folder));
    }
    fs::write(&owner, format!("{identity}\n")).map_err(failed)?;
    Ok(store)
}
