//! What this process still owes a book: clicks that it has acknowledged and not yet committed.
//!
//! A book is at rest only when nothing is owed: a stream that ended a moment before the last frames
//! would leave its readers without them. Whoever looks at a book's row asks here *before* reading
//! it; asked afterwards, a debt that was settled in between would hide the frames it left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

/// Clicks by book.
#[derive(Debug, Default)]
pub struct Owed {
    clicks: Mutex<HashMap<Uuid, usize>>,
    settled: Notify,
}

impl Owed {
    /// Owes so many clicks more.
    pub fn add(&self, book: Uuid, clicks: usize) {
        if clicks > 0 {
            *self.lock().entry(book).or_default() += clicks;
        }
    }

    /// Owes so many clicks less.
    pub fn settle(&self, book: Uuid, clicks: usize) {
        let mut owed = self.lock();
        if let Some(left) = owed.get_mut(&book) {
            *left = left.saturating_sub(clicks);
            if *left == 0 {
                owed.remove(&book);
            }
        }
        drop(owed);
        self.settled.notify_waiters();
    }

    /// Owes nothing any more; says which books it was owed.
    pub fn forgive(&self) -> Vec<Uuid> {
        let owed = std::mem::take(&mut *self.lock());
        self.settled.notify_waiters();
        owed.into_keys().collect()
    }

    /// How many clicks are owed to `book`.
    #[must_use]
    pub fn clicks(&self, book: Uuid) -> usize {
        self.lock().get(&book).copied().unwrap_or(0)
    }

    /// How many clicks are owed in all.
    #[must_use]
    pub fn all_clicks(&self) -> usize {
        self.lock().values().sum()
    }

    /// Waits until less than now is owed to some book. What happens from the call on is not missed,
    /// even before the wait begins.
    pub fn settled(&self) -> tokio::sync::futures::Notified<'_> {
        self.settled.notified()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        // Every change to the map is whole.
        self.clicks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_settled_book_by_book() {
        let owed = Owed::default();
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        owed.add(a, 3);
        owed.add(b, 1);
        owed.add(b, 0);
        owed.settle(a, 2);
        assert_eq!(
            (owed.clicks(a), owed.clicks(b), owed.all_clicks()),
            (1, 1, 2)
        );
        owed.settle(a, 5);
        assert_eq!(owed.clicks(a), 0);
        assert_eq!(owed.forgive(), [b]);
        assert_eq!(owed.all_clicks(), 0);
    }
}
