//! The folder: what its files are called, who may use it, what a crash has left in it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, DirEntry, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::OpenError;
use crate::spool::{SegmentKey, Window};

/// Whoever has locked this file has the folder. The lock ends with the process.
const LOCK: &str = "lock";

/// How much is read at once in search of the last line break.
const BLOCK_BYTES: usize = 64 << 10;

/// A folder that nobody else has open.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// To sync it.
    handle: File,
    syncs: AtomicU64,
    _lock: File,
}

/// What was in the folder.
#[derive(Debug)]
pub(super) struct Contents {
    /// How long each segment is.
    pub(super) segments: BTreeMap<SegmentKey, u64>,
    /// Greater than that of any file.
    pub(super) next_sequence: u64,
}

impl Folder {
    /// Opens `path` for us alone, and looks through it.
    pub(super) fn open(path: &Path) -> Result<(Self, Contents), OpenError> {
        let failed = |what| {
            move |source| OpenError::Io {
                what,
                path: path.to_owned(),
                source,
            }
        };
        make(path).map_err(failed("make the folder"))?;
        let lock = private()
            .create(true)
            .write(true)
            .open(path.join(LOCK))
            .map_err(failed("make a lock in"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let folder = path.to_owned();
                return Err(OpenError::InUse { folder });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        let folder = Self {
            path: path.to_owned(),
            handle: File::open(path).map_err(failed("open"))?,
            syncs: AtomicU64::new(0),
            _lock: lock,
        };
        let contents = folder.look_through().map_err(failed("list"))?;
        Ok((folder, contents))
    }

    fn look_through(&self) -> io::Result<Contents> {
        let mut contents = Contents {
            segments: BTreeMap::new(),
            next_sequence: 0,
        };
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((key, set_aside)) = name.to_str().and_then(parse) else {
                if name != LOCK {
                    tracing::warn!(file = %entry.path().display(), "not a file of the spool");
                }
                continue;
            };
            // What was set aside from a segment must not be overwritten by another of its name.
            contents.next_sequence = contents.next_sequence.max(key.sequence.saturating_add(1));
            if set_aside || !entry.file_type()?.is_file() {
                continue;
            }
            let bytes = mend(&entry)?;
            if bytes > 0 {
                contents.segments.insert(key, bytes);
            } else if let Err(error) = fs::remove_file(entry.path()) {
                let file = entry.path();
                tracing::warn!(file = %file.display(), %error, "cannot remove an empty segment");
            }
        }
        Ok(contents)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn segment(&self, key: SegmentKey) -> PathBuf {
        self.path.join(name(key))
    }

    /// Where the damaged lines of a segment are set aside.
    pub(super) fn set_aside(&self, key: SegmentKey) -> PathBuf {
        self.path.join(format!("{}.bad", name(key)))
    }

    /// Begins a segment.
    pub(super) fn create(&self, key: SegmentKey) -> io::Result<File> {
        private()
            .create_new(true)
            .append(true)
            .open(self.segment(key))
    }

    /// Begins the file for damaged lines, over one that an earlier reading has left.
    pub(super) fn create_set_aside(&self, key: SegmentKey) -> io::Result<File> {
        private()
            .create(true)
            .write(true)
            .truncate(true)
            .open(self.set_aside(key))
    }

    /// Puts what was written to `file` beyond the reach of a crash, and its name too if it is `new`.
    pub(super) fn sync(&self, file: &File, new: bool) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync_data()?;
        if new {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            self.handle.sync_all()?;
        }
        Ok(())
    }

    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

/// Files that only we may read: they hold what visitors did.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

pub(super) fn name(key: SegmentKey) -> String {
    format!("{key}.jsonl")
}

/// The segment that a file belongs to, and whether it holds what was set aside from it. `None` for
/// any name that we would not have given.
fn parse(file: &str) -> Option<(SegmentKey, bool)> {
    let (segment, set_aside) = match file.strip_suffix(".bad") {
        Some(segment) => (segment, true),
        None => (file, false),
    };
    let (window, sequence) = segment.strip_suffix(".jsonl")?.split_once('-')?;
    let key = SegmentKey {
        window: Window(window.parse().ok()?),
        sequence: sequence.parse().ok()?,
    };
    (name(key) == segment).then_some((key, set_aside))
}

/// Makes the folder if it is not there, so that it is still there after a crash.
fn make(folder: &Path) -> io::Result<()> {
    let folder = path::absolute(folder)?;
    let missing: Vec<&Path> = folder.ancestors().take_while(|a| !a.exists()).collect();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    for parent in missing.iter().filter_map(|made| made.parent()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Cuts off a torn last line, and says how long the segment is then. If it cannot be cut, the line is
/// set aside when the segment is read, as any damaged one.
fn mend(entry: &DirEntry) -> io::Result<u64> {
    let bytes = entry.metadata()?.len();
    let file = entry.path();
    match cut_torn_line(&file, bytes) {
        Ok(whole) => {
            if whole < bytes {
                let torn = bytes - whole;
                tracing::warn!(file = %file.display(), bytes = torn, "cut off a torn line");
            }
            Ok(whole)
        }
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "cannot mend a segment");
            Ok(bytes)
        }
    }
}

/// By bytes, not characters: a line may be torn within one.
fn cut_torn_line(path: &Path, bytes: u64) -> io::Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut block = vec![0; BLOCK_BYTES];
    let mut end = bytes;
    let whole = loop {
        if end == 0 {
            break 0;
        }
        let start = end.saturating_sub(BLOCK_BYTES as u64);
        let length = usize::try_from(end - start).unwrap_or(BLOCK_BYTES);
        let block = &mut block[..length];
        file.read_exact_at(block, start)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            break start + at as u64 + 1;
        }
        end = start;
    };
    if whole < bytes {
        file.set_len(whole)?;
        file.sync_all()?;
    }
    Ok(whole)
}
