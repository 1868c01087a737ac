//! The file that takes what the server says.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::error::{EmbeddedError, last_lines};

/// Past this many bytes the log is put aside at the next start.
const ROTATE_ABOVE: u64 = 10 * 1024 * 1024;

/// `postgres.log`, open for one launch of the server.
#[derive(Debug)]
pub(super) struct ServerLog {
    path: PathBuf,
    file: File,
    /// Where this launch's lines begin, in bytes.
    begin: u64,
}

impl ServerLog {
    /// Opens the log for appending. One that has grown too long replaces
    /// `postgres.log.1` first.
    pub(super) fn open(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let path = data_dir.join("postgres.log");
        if fs::metadata(&path).is_ok_and(|log| log.len() > ROTATE_ABOVE) {
            fs::rename(&path, data_dir.join("postgres.log.1"))
                .map_err(EmbeddedError::file("rename", &path))?;
        }
        // Failed statements are logged with their text: for our eyes only.
        let opened = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path);
        let file = opened.map_err(EmbeddedError::file("open", &path))?;
        let begin = file
            .metadata()
            .map_err(EmbeddedError::file("read", &path))?
            .len();
        Ok(Self { path, file, begin })
    }

    /// A handle for the server to write to.
    pub(super) fn writer(&self) -> Result<File, EmbeddedError> {
        self.file
            .try_clone()
            .map_err(EmbeddedError::file("open", &self.path))
    }

    /// The last lines that this launch has written.
    pub(super) fn tail(&self) -> String {
        let read = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.begin))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            std::io::Result::Ok(text)
        };
        last_lines(&read().unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::io::Write;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_log_that_has_grown_too_long_is_put_aside() {
        let folder = std::env::temp_dir().join(format!("pagetide-log-{}", Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();

        let log = ServerLog::open(&folder).unwrap();
        log.writer().unwrap().set_len(ROTATE_ABOVE).unwrap();
        let log = ServerLog::open(&folder).unwrap();
        assert!(!folder.join("postgres.log.1").exists());
        assert_eq!(log.tail(), "(nothing)");
        log.writer().unwrap().write_all(b"new\n").unwrap();
        assert_eq!(log.tail(), "new");

        let log = ServerLog::open(&folder).unwrap();
        assert!(fs::metadata(folder.join("postgres.log.1")).unwrap().len() > ROTATE_ABOVE);
        assert_eq!(fs::metadata(folder.join("postgres.log")).unwrap().len(), 0);
        assert_eq!(log.tail(), "(nothing)");
        fs::remove_dir_all(&folder).unwrap();
    }
}
