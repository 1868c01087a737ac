//! What was read is remembered for a moment, and read by one caller at a time (two where both are
//! the first to ask).
//!
//! For what every request needs and the database must not be asked for every time. Nothing is
//! remembered of what is not there, so that what has just been made is found.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

/// How long what was read is believed. Another process's change shows after this at the latest.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Most things that are remembered.
const CAPACITY: usize = 10_000;

/// A bounded memory of values by key.
#[derive(Debug)]
pub(crate) struct Memo<K, V> {
    slots: Cache<K, Arc<Slot<V>>>,
}

#[derive(Debug)]
struct Slot<V> {
    value: Mutex<Option<(V, Instant)>>,
    /// Held by the caller who reads, while the others wait for what it finds.
    reading: tokio::sync::Mutex<()>,
}

impl<V: Clone> Slot<V> {
    fn current(&self) -> Option<V> {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, read_at) = value.as_ref()?;
        (read_at.elapsed() < TRUSTED_FOR).then(|| value.clone())
    }

    fn set(&self, value: Option<(V, Instant)>) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Memo<K, V> {
    /// Remembers nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            slots: Cache::new(CAPACITY),
        }
    }

    /// What is remembered under `key`, else what `read` finds.
    ///
    /// # Errors
    /// What `read` says.
    pub(crate) async fn get<E>(
        &self,
        key: &K,
        read: impl Future<Output = Result<Option<V>, E>>,
    ) -> Result<Option<V>, E> {
        let slot = self.slots.get(key).unwrap_or_else(|| {
            let slot = Arc::new(Slot {
                value: Mutex::new(None),
                reading: tokio::sync::Mutex::new(()),
            });
            self.slots.insert(key.clone(), Arc::clone(&slot));
            slot
        });
        if let Some(value) = slot.current() {
            return Ok(Some(value));
        }
        let _one_at_a_time = slot.reading.lock().await;
        if let Some(value) = slot.current() {
            return Ok(Some(value));
        }
        // Before the reading: what changes during it may not be believed for longer.
        let read_at = Instant::now();
        let found = read.await?;
        match &found {
            Some(value) => slot.set(Some((value.clone(), read_at))),
            None => drop(self.slots.remove(key)),
        }
        Ok(found)
    }

    /// Forgets `key`, because this process has just changed what is behind it. A reading that is
    /// under way writes into a slot that nobody finds any more.
    pub(crate) fn forget(&self, key: &K) {
        self.slots.remove(key);
    }

    /// Forgets everything.
    pub(crate) fn forget_all(&self) {
        self.slots.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn many_callers_cost_one_reading() {
        let memo = Memo::<u8, u8>::new();
        let readings = AtomicUsize::new(0);
        let read = || async {
            readings.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Some(7))
        };
        let callers = (0..50).map(|_| memo.get(&1, read()));
        for found in futures_util::future::join_all(callers).await {
            assert_eq!(found, Ok(Some(7)));
        }
        assert_eq!(readings.load(Ordering::SeqCst), 1);
        memo.forget(&1);
        assert_eq!(memo.get(&1, read()).await, Ok(Some(7)));
        assert_eq!(readings.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_remembered() {
        let memo = Memo::<u8, u8>::new();
        let nothing = memo.get(&1, async { Ok::<_, Infallible>(None) }).await;
        assert_eq!(nothing, Ok(None));
        let made = memo.get(&1, async { Ok::<_, Infallible>(Some(1)) }).await;
        assert_eq!(made, Ok(Some(1)));
    }
}
