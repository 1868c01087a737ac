//! The one folder of the demo.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::DemoError;

/// A folder that is removed, with all that is in it, when this is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes one with a name that nobody has. Others may enter it, for whoever runs Postgres may be
    /// another user; what is private in it has a stricter mode of its own.
    pub(super) fn make() -> Result<Self, DemoError> {
        let name = format!(
            "pagetide-demo-{}",
            &Uuid::new_v4().simple().to_string()[..12]
        );
        let path = std::env::temp_dir().join(name);
        let failed = |error| DemoError::Folder(path.clone(), error);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(failed)?;
        let folder = Self(path.clone());
        // Set afterwards, past the umask.
        fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(failed)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "the demo's folder is left");
        }
    }
}
