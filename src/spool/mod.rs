//! The spool: where records wait, safe from a crash, until they can go on.
//!
//! **Promises.** What [`Store::append`] has acknowledged is never dropped: it comes back, by window
//! and then in the order in which it came, until its segment is committed. A segment that was opened
//! never grows, so that what is committed is what was read. A store never holds more than its bound
//! and one append.
//!
//! **Never** are these stores asked what records mean, or whether downstream has taken them: that is
//! the caller's part. What was committed may come back after a crash, and what was refused may, if
//! the crash was in the middle of it; records need ids by which their receiver knows them.
//!
//! [`disk`] is the store of the service, [`memory`] one for tests, [`record`] says how a record
//! becomes a line.

use std::fmt;
use std::io;
use std::sync::Arc;

use self::record::Record;

pub mod disk;
pub mod memory;
pub mod record;
#[cfg(test)]
mod suite;

/// A segment that has grown to this is left alone, so that opening one takes bounded memory.
const SEGMENT_BYTES: u64 = 8 << 20;

/// The start of a window of arrival times, in the unit that the caller counts in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Window(pub u64);

/// Which segment. Segments are older the smaller their key is: by window, then by the order in which
/// they were begun. A store never uses a key again that it has given out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentKey {
    window: Window,
    sequence: u64,
}

impl SegmentKey {
    /// When its records arrived.
    #[must_use]
    pub fn window(self) -> Window {
        self.window
    }
}

impl fmt::Display for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Padded, so that the names of files sort as keys do.
        write!(f, "{:020}-{:06}", self.window.0, self.sequence)
    }
}

/// Why records were not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// The store holds as many bytes as it may. Nothing was written.
    #[error("the spool is full")]
    Full,
    /// The records may be there or not, but what was acknowledged before is.
    #[error("the spool cannot be written")]
    Io(#[source] Arc<io::Error>),
}

/// A segment that cannot be opened. It is kept; those after [`key`](Self::key) may be well.
#[derive(Debug, thiserror::Error)]
#[error("the spool's segment {key} cannot be read")]
pub struct ReadError {
    key: SegmentKey,
    source: io::Error,
}

impl ReadError {
    /// Which segment: the cursor with which to pass it over.
    #[must_use]
    pub fn key(&self) -> SegmentKey {
        self.key
    }
}

/// A segment that cannot be removed. It is kept, and comes back.
#[derive(Debug, thiserror::Error)]
#[error("the spool's segment {key} cannot be removed")]
pub struct CommitError {
    key: SegmentKey,
    source: io::Error,
}

/// Keeps records in segments, by the window in which they arrived.
pub trait Store<R: Record>: Send + Sync + 'static {
    /// An opened segment.
    type Segment: Segment<R>;

    /// Keeps `records`, and returns when they would survive a crash. All of them come back in one
    /// segment, in their order, and after those of all calls for the same window that had returned
    /// before this one. Between calls that wait at the same time no order is promised.
    ///
    /// If the future is dropped the records may be kept or not.
    ///
    /// # Errors
    /// The records are not acknowledged; see [`AppendError`].
    fn append(
        &self,
        window: Window,
        records: Vec<R>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send;

    /// Opens the oldest segment, or the oldest that is newer than `after`. From then on it does not
    /// grow; what is appended to its window goes to another. It can be opened again and again.
    ///
    /// # Errors
    /// That segment cannot be read, or its damaged lines cannot be set aside.
    fn oldest(
        &self,
        after: Option<SegmentKey>,
    ) -> impl Future<Output = Result<Option<Self::Segment>, ReadError>> + Send;

    /// How much is stored.
    fn bytes(&self) -> u64;

    /// How many segments are stored.
    fn segments(&self) -> usize;

    /// From how much on nothing more is taken.
    fn max_bytes(&self) -> u64;
}

/// A segment that was opened. Dropped, it stays in the store.
pub trait Segment<R: Record>: Send + 'static {
    /// Which one.
    fn key(&self) -> SegmentKey;

    /// What it holds, in the order in which it came.
    fn records(&self) -> &[R];

    /// Takes the records out of this value, not out of the store.
    fn take_records(&mut self) -> Vec<R>;

    /// How many lines could not be read and were set aside.
    fn damaged(&self) -> usize;

    /// Removes it from the store. Only to be called once downstream has its records for good.
    ///
    /// # Errors
    /// It is still there.
    fn commit(self) -> impl Future<Output = Result<(), CommitError>> + Send;
}
