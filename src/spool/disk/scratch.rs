//! A folder for a test.

use std::fs;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Removed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    /// A path at which nothing is yet.
    pub(super) fn new() -> Self {
        Self(std::env::temp_dir().join(format!("pagetide-spool-{}", Uuid::new_v4())))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
