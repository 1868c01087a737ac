//! Reading a segment, and removing it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::sync::Arc;

use super::Shared;
use crate::spool::record::Record;
use crate::spool::{CommitError, Segment, SegmentKey};

/// A segment of a [`DiskStore`](super::DiskStore). While it lives, the folder stays locked.
#[derive(Debug)]
pub struct DiskSegment<R> {
    pub(super) shared: Arc<Shared>,
    pub(super) key: SegmentKey,
    pub(super) records: Vec<R>,
    pub(super) damaged: usize,
}

/// Reads what was acknowledged of a segment, and sets its damaged lines aside. Those stay when the
/// segment is removed, for people to look at.
pub(super) fn read<R: Record>(
    shared: &Arc<Shared>,
    key: SegmentKey,
    bytes: u64,
) -> io::Result<DiskSegment<R>> {
    let mut lines = Vec::new();
    let file = File::open(shared.folder.segment(key))?;
    file.take(bytes).read_to_end(&mut lines)?;
    let mut records = Vec::new();
    let mut damaged = 0;
    let mut set_aside = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        // Without its break a line may be the beginning of a longer one.
        if let Some(record) = line.strip_suffix(b"\n").and_then(R::decode) {
            records.push(record);
        } else {
            damaged += 1;
            set_aside.extend_from_slice(line);
        }
    }
    if damaged > 0 {
        let file = shared.folder.set_aside(key);
        tracing::warn!(file = %file.display(), lines = damaged, "set damaged lines aside");
        let mut file = shared.folder.create_set_aside(key)?;
        file.write_all(&set_aside)?;
        // Before the segment may be removed.
        shared.folder.sync(&file, true)?;
    }
    Ok(DiskSegment {
        shared: Arc::clone(shared),
        key,
        records,
        damaged,
    })
}

/// The removal is not synced: a segment that comes back after a crash is taken once more, and its
/// records are known by their ids.
fn remove(shared: &Shared, key: SegmentKey) -> io::Result<()> {
    // Before the file, so that nobody is sent to one that has just gone.
    let Some(bytes) = shared.index().remove(key) else {
        // Opened twice, and committed by the other.
        return Ok(());
    };
    match fs::remove_file(shared.folder.segment(key)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            shared.index().put_back(key, bytes);
            Err(error)
        }
        _ => Ok(()),
    }
}

impl<R: Record> Segment<R> for DiskSegment<R> {
    fn key(&self) -> SegmentKey {
        self.key
    }

    fn records(&self) -> &[R] {
        &self.records
    }

    fn take_records(&mut self) -> Vec<R> {
        std::mem::take(&mut self.records)
    }

    fn damaged(&self) -> usize {
        self.damaged
    }

    async fn commit(self) -> Result<(), CommitError> {
        let Self { shared, key, .. } = self;
        let removed = tokio::task::spawn_blocking(move || remove(&shared, key)).await;
        let removed = removed.map_err(io::Error::other).flatten();
        removed.map_err(|source| CommitError { key, source })
    }
}
