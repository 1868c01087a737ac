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

/// How long what was read is believed, if nothing else is said. Another process's change shows after
/// this at the latest.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// How long a caller waits for a reading where something older is known.
const PATIENCE: Duration = Duration::from_millis(500);

/// For how long what was read last is believed while readings are merely slow. A database that hangs
/// looks so at first, and so does one whose answer would be that a token was revoked.
const MERELY_SLOW: Duration = Duration::from_mins(5);

/// Most things that are remembered.
const CAPACITY: usize = 10_000;

/// A bounded memory of values by key.
#[derive(Debug)]
pub(crate) struct Memo<K, V> {
    trusted_for: Duration,
    /// How long ago what is given may have been read, whatever happens.
    at_most: Duration,
    slots: Cache<K, Arc<Slot<V>>>,
}

/// What a reading found.
#[derive(Clone, Copy, Debug)]
struct Found<V> {
    value: V,
    /// When the reading began.
    read_at: Instant,
    /// Since when it is believed.
    believed_at: Instant,
}

#[derive(Debug)]
struct Slot<V> {
    found: Mutex<Option<Found<V>>>,
    /// When a reading failed, and nothing was known.
    failed_at: Mutex<Option<Instant>>,
    /// Held by the caller who reads, while the others wait for what it finds.
    reading: tokio::sync::Mutex<()>,
}

/// An error of a reading.
pub(crate) trait ReadError {
    /// Whether the database did not answer at all: then what was read last is believed on.
    fn is_outage(&self) -> bool;
}

impl<V: Clone> Slot<V> {
    fn new() -> Self {
        Self {
            found: Mutex::new(None),
            failed_at: Mutex::new(None),
            reading: tokio::sync::Mutex::new(()),
        }
    }

    /// What was read last, less than `at_most` ago, if it is believed: for so long.
    fn current(&self, trusted_for: Duration, at_most: Duration) -> Option<V> {
        let found = lock(&self.found);
        let found = found.as_ref()?;
        let believed =
            found.believed_at.elapsed() < trusted_for && found.read_at.elapsed() < at_most;
        believed.then(|| found.value.clone())
    }

    /// What was read last, if that was less than `most` ago; it is believed for another moment.
    fn believed_on(&self, most: Duration) -> Option<V> {
        let mut found = lock(&self.found);
        let found = found.as_mut()?;
        if found.read_at.elapsed() > most {
            return None;
        }
        found.believed_at = Instant::now();
        Some(found.value.clone())
    }

    fn is_known(&self) -> bool {
        lock(&self.found).is_some()
    }

    fn failed_lately(&self) -> bool {
        lock(&self.failed_at).is_some_and(|at| at.elapsed() < TRUSTED_FOR)
    }

    /// Before the reading, `read_at`: what changes during it may not be believed for longer.
    fn set(&self, value: V, read_at: Instant) {
        *lock(&self.found) = Some(Found {
            value,
            read_at,
            believed_at: read_at,
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a reading puts what it finds when its caller may no longer wait. Nobody looks there once its key was
/// forgotten.
#[derive(Debug)]
pub(crate) struct Place<V>(Arc<Slot<V>>);

impl<V: Clone> Place<V> {
    /// Remembers `value`, the reading of which began at `read_at`.
    pub(crate) fn put(&self, value: V, read_at: Instant) {
        self.0.set(value, read_at);
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Memo<K, V> {
    /// Remembers nothing yet.
    pub(crate) fn new() -> Self {
        Self::trusting_for(TRUSTED_FOR)
    }

    /// The same; what was read is believed for so long.
    pub(crate) fn trusting_for(trusted_for: Duration) -> Self {
        Self {
            trusted_for,
            at_most: Duration::MAX,
            slots: Cache::new(CAPACITY),
        }
    }

    /// The same; what was read `at_most` ago is given no more, even if the database does not answer.
    pub(crate) fn giving_at_most(self, at_most: Duration) -> Self {
        Self { at_most, ..self }
    }

    /// The place of `key`, for a reading that begins after this.
    pub(crate) fn place(&self, key: &K) -> Place<V> {
        Place(self.slot(key))
    }

    fn slot(&self, key: &K) -> Arc<Slot<V>> {
        self.slots.get(key).unwrap_or_else(|| {
            let slot = Arc::new(Slot::new());
            self.slots.insert(key.clone(), Arc::clone(&slot));
            slot
        })
    }

    /// What is remembered under `key`, else what `read` finds. While the database does not answer,
    /// what was read last, if anything was.
    ///
    /// # Errors
    /// What `read` says where nothing is known.
    pub(crate) async fn get<E: ReadError>(
        &self,
        key: &K,
        read: impl Future<Output = Result<Option<V>, E>>,
    ) -> Result<Option<V>, E> {
        let slot = self.slot(key);
        if let Some(value) = slot.current(self.trusted_for, self.at_most) {
            return Ok(Some(value));
        }
        let one_at_a_time = slot.reading.lock().await;
        // Of readings that fail slowly, each would wait for all before it.
        let _one_at_a_time = (!slot.failed_lately()).then_some(one_at_a_time);
        if let Some(value) = slot.current(self.trusted_for, self.at_most) {
            return Ok(Some(value));
        }
        let read_at = Instant::now();
        let mut read = std::pin::pin!(read);
        let mut answer = None;
        if slot.is_known() {
            answer = tokio::time::timeout(PATIENCE, &mut read).await.ok();
            if answer.is_none()
                && let Some(value) = slot.believed_on(MERELY_SLOW.min(self.at_most))
            {
                return Ok(Some(value));
            }
        }
        let found = match answer {
            Some(answer) => answer,
            None => read.await,
        };
        match found {
            Ok(Some(value)) => {
                slot.set(value.clone(), read_at);
                Ok(Some(value))
            }
            Ok(None) => {
                drop(self.slots.remove(key));
                Ok(None)
            }
            Err(error) => {
                if error.is_outage()
                    && let Some(value) = slot.believed_on(self.at_most)
                {
                    return Ok(Some(value));
                }
                *lock(&slot.failed_at) = Some(Instant::now());
                Err(error)
            }
        }
    }

    /// What was read last under `key`, however long ago; nothing is read.
    pub(crate) fn peek(&self, key: &K) -> Option<V> {
        let slot = self.slots.peek(key)?;
        let found = lock(&slot.found);
        found.as_ref().map(|found| found.value.clone())
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(PartialEq, Debug)]
    enum Failure {
        Away,
        Broken,
    }

    impl ReadError for Failure {
        fn is_outage(&self) -> bool {
            *self == Self::Away
        }
    }

    type Answer = Result<Option<u8>, Failure>;

    fn says(answer: Answer) -> std::future::Ready<Answer> {
        std::future::ready(answer)
    }

    #[tokio::test]
    async fn many_callers_cost_one_reading() {
        let memo = Memo::<u8, u8>::new();
        let readings = AtomicUsize::new(0);
        let read = || async {
            readings.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            says(Ok(Some(7))).await
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
    async fn what_was_read_last_is_believed_while_the_database_does_not_answer() {
        let memo = Memo::<u8, u8>::new();
        let away = || says(Err(Failure::Away));
        assert_eq!(
            memo.get(&1, away()).await,
            Err(Failure::Away),
            "nothing is known"
        );
        assert_eq!(memo.get(&1, says(Ok(Some(7)))).await, Ok(Some(7)));
        let slot = memo.slots.get(&1).unwrap();
        let age = |by: Duration| slot.set(7, Instant::now().checked_sub(by).unwrap());
        age(MERELY_SLOW * 2);
        assert_eq!(memo.get(&1, away()).await, Ok(Some(7)));
        // One that answers, though with an error, is asked.
        age(TRUSTED_FOR);
        let broken = memo.get(&1, says(Err(Failure::Broken))).await;
        assert_eq!(broken, Err(Failure::Broken));
        // One that hangs is believed for a while.
        age(TRUSTED_FOR);
        assert_eq!(
            memo.get(&1, std::future::pending::<Answer>()).await,
            Ok(Some(7))
        );
        age(MERELY_SLOW);
        let late = async {
            tokio::time::sleep(PATIENCE * 2).await;
            says(Ok(Some(8))).await
        };
        assert_eq!(memo.get(&1, late).await, Ok(Some(8)));
        memo.forget(&1);
        assert_eq!(memo.get(&1, away()).await, Err(Failure::Away));
    }

    #[tokio::test]
    async fn nothing_older_is_given_than_may_be() {
        let at_most = Duration::from_mins(2);
        let memo = Memo::<u8, u8>::new().giving_at_most(at_most);
        let away = || says(Err(Failure::Away));
        let place = memo.place(&1);
        let age = |by: Duration| place.put(7, Instant::now().checked_sub(by).unwrap());
        age(at_most / 2);
        assert_eq!(memo.get(&1, away()).await, Ok(Some(7)));
        age(at_most);
        assert_eq!(memo.get(&1, away()).await, Err(Failure::Away));
        // Believed a moment ago, but too old by now.
        lock(&place.0.found).as_mut().unwrap().believed_at = Instant::now();
        assert_eq!(memo.get(&1, away()).await, Err(Failure::Away));
        // A reading that ends after its key was forgotten is not found.
        memo.forget(&1);
        age(Duration::ZERO);
        assert_eq!(memo.get(&1, away()).await, Err(Failure::Away));
    }

    #[tokio::test]
    async fn readings_that_fail_slowly_do_not_wait_for_one_another() {
        let memo = Memo::<u8, u8>::new();
        let slowly = || async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            says(Err(Failure::Away)).await
        };
        let begun = Instant::now();
        let callers = (0..50).map(|_| memo.get(&1, slowly()));
        for found in futures_util::future::join_all(callers).await {
            assert_eq!(found, Err(Failure::Away));
        }
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_remembered() {
        let memo = Memo::<u8, u8>::new();
        assert_eq!(memo.get(&1, says(Ok(None))).await, Ok(None));
        assert_eq!(memo.get(&1, says(Ok(Some(1)))).await, Ok(Some(1)));
    }
}
