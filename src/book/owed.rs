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
    debts: Mutex<HashMap<Uuid, Debt>>,
    settled: Notify,
}

#[derive(Clone, Copy, Default, Debug)]
struct Debt {
    /// Newer clicks of the book come after these.
    ahead: usize,
    /// These could not be delivered, and newer ones do not wait for them.
    passed_over: usize,
}

impl Owed {
    /// Owes so many clicks more.
    pub fn add(&self, book: Uuid, clicks: usize) {
        if clicks > 0 {
            self.lock().entry(book).or_default().ahead += clicks;
        }
    }

    /// So many of the clicks are committed.
    pub fn settle(&self, book: Uuid, clicks: usize) {
        self.change(book, |debt| debt.ahead = debt.ahead.saturating_sub(clicks));
    }

    /// So many of the clicks cannot be delivered for now.
    pub fn pass_over(&self, book: Uuid, clicks: usize) {
        self.change(book, |debt| {
            debt.ahead = debt.ahead.saturating_sub(clicks);
            debt.passed_over += clicks;
        });
    }

    /// So many of the clicks that were passed over are committed.
    pub fn settle_passed_over(&self, book: Uuid, clicks: usize) {
        self.change(book, |debt| {
            debt.passed_over = debt.passed_over.saturating_sub(clicks);
        });
    }

    /// Owes nothing any more; says which books it was owed.
    pub fn forgive(&self) -> Vec<Uuid> {
        let debts = std::mem::take(&mut *self.lock());
        self.settled.notify_waiters();
        debts.into_keys().collect()
    }

    /// Whether anything is owed to `book`.
    #[must_use]
    pub fn owes(&self, book: Uuid) -> bool {
        self.lock().contains_key(&book)
    }

    /// How many clicks newer ones of `book` come after.
    #[must_use]
    pub fn ahead(&self, book: Uuid) -> usize {
        self.lock().get(&book).map_or(0, |debt| debt.ahead)
    }

    /// How many clicks are owed in all.
    #[must_use]
    pub fn all_clicks(&self) -> usize {
        let debts = self.lock();
        debts.values().map(|d| d.ahead + d.passed_over).sum()
    }

    /// Waits until less than now is owed to some book. What happens from the call on is not missed,
    /// even before the wait begins.
    pub fn settled(&self) -> tokio::sync::futures::Notified<'_> {
        self.settled.notified()
    }

    fn change(&self, book: Uuid, change: impl FnOnce(&mut Debt)) {
        let mut debts = self.lock();
        if let Some(debt) = debts.get_mut(&book) {
            change(debt);
            if debt.ahead + debt.passed_over == 0 {
                debts.remove(&book);
            }
        }
        drop(debts);
        self.settled.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Debt>> {
        // Every change to the map is whole.
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
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
        owed.add(Uuid::nil(), 0);
        owed.settle(a, 2);
        assert_eq!((owed.ahead(a), owed.ahead(b), owed.all_clicks()), (1, 1, 2));
        owed.settle(a, 5);
        assert!(!owed.owes(a) && !owed.owes(Uuid::nil()));
        assert_eq!(owed.forgive(), [b]);
        assert_eq!(owed.all_clicks(), 0);
    }

    #[test]
    fn what_was_passed_over_is_owed_and_waited_for_by_nobody() {
        let owed = Owed::default();
        let book = Uuid::from_u128(1);
        owed.add(book, 3);
        owed.pass_over(book, 2);
        assert_eq!((owed.ahead(book), owed.all_clicks()), (1, 3));
        owed.settle(book, 1);
        assert!(owed.owes(book));
        owed.settle_passed_over(book, 2);
        assert!(!owed.owes(book));
    }
}
