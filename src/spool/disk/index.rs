//! Which segments there are, so that the folder need not be asked.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::spool::SegmentKey;

/// The segments that hold something acknowledged, and how much.
#[derive(Debug)]
pub(super) struct Index {
    segments: BTreeMap<SegmentKey, u64>,
    bytes: u64,
    /// The segment that the writer still adds to, if one is.
    growing: Option<SegmentKey>,
}

/// A segment that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) key: SegmentKey,
    /// How long the part of its file is that was acknowledged.
    pub(super) bytes: u64,
    pub(super) growing: bool,
}

impl Index {
    pub(super) fn new(segments: BTreeMap<SegmentKey, u64>) -> Self {
        Self {
            bytes: segments.values().sum(),
            segments,
            growing: None,
        }
    }

    /// Notes that the writer adds to `key`, and has come to `bytes`.
    pub(super) fn grow(&mut self, key: SegmentKey, bytes: u64) {
        let before = self.segments.insert(key, bytes).unwrap_or(0);
        self.bytes += bytes - before;
        self.growing = Some(key);
    }

    /// Notes that no segment grows.
    pub(super) fn seal(&mut self) {
        self.growing = None;
    }

    /// How long it was; `None` if it was not there.
    pub(super) fn remove(&mut self, key: SegmentKey) -> Option<u64> {
        let bytes = self.segments.remove(&key)?;
        self.bytes -= bytes;
        Some(bytes)
    }

    /// Undoes [`remove`](Self::remove).
    pub(super) fn put_back(&mut self, key: SegmentKey, bytes: u64) {
        self.segments.insert(key, bytes);
        self.bytes += bytes;
    }

    pub(super) fn oldest(&self, after: Option<SegmentKey>) -> Option<Found> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (&key, &bytes) = self.segments.range((start, Bound::Unbounded)).next()?;
        Some(Found {
            key,
            bytes,
            growing: self.growing == Some(key),
        })
    }

    pub(super) fn holds(&self, key: SegmentKey) -> bool {
        self.segments.contains_key(&key)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }
}
