//! A store in memory, for tests: what it acknowledges survives no crash.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::{self, Record};
use super::{
    AppendError, CommitError, ReadError, SEGMENT_BYTES, Segment, SegmentKey, Store, Window,
};

/// Keeps segments in memory.
#[derive(Debug)]
pub struct MemoryStore<R> {
    max_bytes: u64,
    held: Arc<Mutex<Held<R>>>,
}

#[derive(Debug)]
struct Held<R> {
    segments: BTreeMap<SegmentKey, (Vec<R>, u64)>,
    /// The segment that takes what comes to its window.
    growing: Option<SegmentKey>,
    next_sequence: u64,
}

impl<R> Held<R> {
    fn bytes(&self) -> u64 {
        self.segments.values().map(|(_, bytes)| bytes).sum()
    }
}

impl<R: Record> MemoryStore<R> {
    /// Holds nothing yet, and up to about `max_bytes` of lines.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            held: Arc::new(Mutex::new(Held {
                segments: BTreeMap::new(),
                growing: None,
                next_sequence: 0,
            })),
        }
    }
}

fn lock<R>(held: &Mutex<Held<R>>) -> MutexGuard<'_, Held<R>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Record> Store<R> for MemoryStore<R> {
    type Segment = MemorySegment<R>;

    async fn append(&self, window: Window, records: Vec<R>) -> Result<(), AppendError> {
        if records.is_empty() {
            return Ok(());
        }
        let lines = record::lines(&records).map_err(|e| AppendError::Io(Arc::new(e)))?;
        let mut held = lock(&self.held);
        if held.bytes() >= self.max_bytes {
            return Err(AppendError::Full);
        }
        let key = match held.growing {
            Some(key) if key.window == window && held.segments[&key].1 < SEGMENT_BYTES => key,
            _ => {
                let sequence = held.next_sequence;
                held.next_sequence += 1;
                SegmentKey { window, sequence }
            }
        };
        held.growing = Some(key);
        let (kept, bytes) = held.segments.entry(key).or_default();
        kept.extend(records);
        *bytes += lines.len() as u64;
        Ok(())
    }

    async fn oldest(
        &self,
        after: Option<SegmentKey>,
    ) -> Result<Option<MemorySegment<R>>, ReadError> {
        let mut held = lock(&self.held);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut newer = held.segments.range((start, Bound::Unbounded));
        let Some((&key, (records, _))) = newer.next() else {
            return Ok(None);
        };
        let records = records.clone();
        if held.growing == Some(key) {
            held.growing = None;
        }
        Ok(Some(MemorySegment {
            key,
            records,
            held: Arc::clone(&self.held),
        }))
    }

    fn bytes(&self) -> u64 {
        lock(&self.held).bytes()
    }

    fn segments(&self) -> usize {
        lock(&self.held).segments.len()
    }

    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }
}

/// A segment of a [`MemoryStore`].
#[derive(Debug)]
pub struct MemorySegment<R> {
    key: SegmentKey,
    records: Vec<R>,
    held: Arc<Mutex<Held<R>>>,
}

impl<R: Record> Segment<R> for MemorySegment<R> {
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
        0
    }

    async fn commit(self) -> Result<(), CommitError> {
        lock(&self.held).segments.remove(&self.key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keeps_to_what_stores_promise() {
        crate::spool::suite::all(MemoryStore::new).await;
    }
}
