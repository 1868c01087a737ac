//! What was read is remembered for a moment, and read by one caller at a time (two where both are
//! the first to ask).
//!
//! For what every request needs and the database must not be asked for every time. Nothing is
//! remembered of what is not there, so that what has just been made is found. While the database
//! does not answer, what was read last is believed on: clicks for known books can be spooled.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

/// How long what was read is believed. Another process's change shows after this at the latest.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// How long a caller waits for a reading where something older is known.
const PATIENCE: Duration = Duration::from_millis(500);

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

    /// What was read last, however long ago; it is believed for another moment.
    fn believed_on(&self) -> Option<V> {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, read_at) = value.as_mut()?;
        *read_at = Instant::now();
        Some(value.clone())
    }

    fn is_known(&self) -> bool {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        value.is_some()
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

    /// What is remembered under `key`, else what `read` finds. If that fails or takes long, what was
    /// read last, if anything was.
    ///
    /// # Errors
    /// What `read` says where nothing is known.
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
        let found = if slot.is_known() {
            match tokio::time::timeout(PATIENCE, read).await {
                Ok(Ok(found)) => found,
                Ok(Err(_)) | Err(_) => return Ok(slot.believed_on()),
            }
        } else {
            read.await?
        };
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
    async fn what_was_read_last_is_believed_while_reading_fails() {
        let memo = Memo::<u8, u8>::new();
        let fails = async { Err::<Option<u8>, _>("away") };
        assert_eq!(memo.get(&1, fails).await, Err("away"), "nothing is known");
        let found = async { Ok::<_, &str>(Some(7)) };
        assert_eq!(memo.get(&1, found).await, Ok(Some(7)));
        let slot = memo.slots.get(&1).unwrap();
        let age = || slot.set(Some((7, Instant::now().checked_sub(TRUSTED_FOR).unwrap())));
        age();
        assert_eq!(memo.get(&1, async { Err("away") }).await, Ok(Some(7)));
        age();
        assert_eq!(
            memo.get(&1, std::future::pending::<Result<_, &str>>())
                .await,
            Ok(Some(7))
        );
        age();
        assert_eq!(
            memo.get(&1, async { Ok::<_, &str>(Some(8)) }).await,
            Ok(Some(8))
        );
        memo.forget(&1);
        assert_eq!(memo.get(&1, async { Err("away") }).await, Err("away"));
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
