//! The books whose clicks this process has received and not yet answered.
//!
//! A book is idle when nothing was *received*. What waits in a lane or is held up in a commit was
//! received, although the book's row does not tell of it yet. A request is received once its whole
//! body has come: one that comes slowly could otherwise keep a book from ever being idle.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// The books, by the name in the request's address: to look its id up may take a while.
#[derive(Debug, Default)]
pub struct InHand {
    requests_of: Mutex<HashMap<String, usize>>,
}

/// A request whose clicks are in hand until this is dropped.
#[derive(Debug)]
pub struct Held {
    all: Arc<InHand>,
    name: String,
}

impl InHand {
    /// Notes a request for the book that `name`, an id or a slug, stands for. To be called before
    /// its time of receipt is taken.
    #[must_use]
    pub fn hold(self: &Arc<Self>, name: &str) -> Held {
        let name = Uuid::try_parse(name).map_or_else(|_| name.to_owned(), |id| id.to_string());
        *self.requests().entry(name.clone()).or_default() += 1;
        Held {
            all: Arc::clone(self),
            name,
        }
    }

    /// Whether clicks of this book are in hand. If one that is committed already was received
    /// before the caller took the time, the book's row tells of it by now.
    #[must_use]
    pub fn holds(&self, id: Uuid, slug: &str) -> bool {
        let requests = self.requests();
        requests.contains_key(slug) || requests.contains_key(&id.to_string())
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // Every change to the map is whole.
        self.requests_of
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        let mut requests = self.all.requests();
        if let Entry::Occupied(mut entry) = requests.entry(name) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_is_in_hand_until_its_last_request_is_answered() {
        let all = Arc::new(InHand::default());
        let id = Uuid::now_v7();
        assert!(!all.holds(id, "a-book"));
        let by_slug = all.hold("a-book");
        let by_id = all.hold(&id.to_string().to_uppercase());
        let again = all.hold("a-book");
        drop(by_slug);
        assert!(all.holds(id, "a-book") && !all.holds(Uuid::nil(), "another"));
        drop(again);
        assert!(all.holds(id, "a-book"), "by its id");
        drop(by_id);
        assert!(!all.holds(id, "a-book"));
    }
}
