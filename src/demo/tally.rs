//! The senders' own count: which clicks they were told are counted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What was sent, and what of it was acknowledged. It knows ids and nothing else, so that nothing
/// that the server says of its counts goes into it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    acknowledged: Mutex<HashSet<String>>,
    waiting: AtomicU64,
}

impl Tally {
    /// Clicks were read that have to be acknowledged.
    pub(crate) fn read(&self, clicks: usize) {
        self.waiting
            .fetch_add(clicks.try_into().unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Clicks of which [`read`](Self::read) was told are acknowledged.
    pub(crate) fn acknowledge_read(&self, ids: Vec<String>) {
        let clicks = ids.len().try_into().unwrap_or(u64::MAX);
        self.acknowledge(ids);
        self.waiting.fetch_sub(clicks, Ordering::SeqCst);
    }

    /// Clicks are acknowledged; each counts once, however often it is.
    pub(crate) fn acknowledge(&self, ids: Vec<String>) {
        let mut acknowledged = self.acknowledged.lock();
        let acknowledged = acknowledged
            .as_mut()
            .unwrap_or_else(|poisoned| poisoned.get_mut());
        acknowledged.extend(ids);
    }

    /// How many clicks were acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        let acknowledged = self
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        acknowledged.len().try_into().unwrap_or(u64::MAX)
    }

    /// How many were read and are not acknowledged yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_twice_counts_once() {
        let tally = Tally::default();
        tally.read(2);
        assert_eq!((tally.acknowledged(), tally.waiting()), (0, 2));
        tally.acknowledge_read(vec!["a".to_owned(), "b".to_owned()]);
        tally.acknowledge(vec!["b".to_owned(), "c".to_owned()]);
        assert_eq!((tally.acknowledged(), tally.waiting()), (3, 0));
    }
}
