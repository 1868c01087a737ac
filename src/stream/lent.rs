//! Pages that were read for a reader behind a full ring, lent to others while it holds them.
//!
//! Many readers that replay and take nothing stand before the same frames, as far as their sockets
//! went. Each with a copy of its own, they would cost as much as the largest frames times their
//! number. Nothing is kept alive here: a page goes with the last reader that has not written it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::ring::Encoded;

/// How many pages there may be before those are looked for that nobody holds any more.
const FEW: usize = 16;

/// The pages of one book that readers hold, by the cursor that they follow.
#[derive(Debug, Default)]
pub(super) struct Lent {
    pages: BTreeMap<i64, Vec<(i64, Weak<Bytes>)>>,
    /// At this many pages, the next look.
    sweep_at: usize,
}

impl Lent {
    /// The page after `cursor`, if a reader holds all of it.
    pub(super) fn find(&self, cursor: i64) -> Option<Vec<Encoded>> {
        let frames = self.pages.get(&cursor)?.iter();
        let frames = frames.map(|(position, held)| {
            let bytes = held.upgrade()?;
            Some(shared(*position, bytes))
        });
        frames.collect()
    }

    /// Lends `frames`, which follow `cursor`.
    pub(super) fn lend(&mut self, cursor: i64, frames: Vec<Encoded>) -> Vec<Encoded> {
        if self.pages.len() >= self.sweep_at.max(FEW) {
            let held = |held: &Weak<Bytes>| held.strong_count() > 0;
            self.pages
                .retain(|_, frames| frames.iter().all(|(_, bytes)| held(bytes)));
            self.sweep_at = 2 * self.pages.len();
        }
        let mut page = Vec::with_capacity(frames.len());
        let lend = |frame: Encoded| {
            let bytes = Arc::new(frame.bytes);
            page.push((frame.position, Arc::downgrade(&bytes)));
            shared(frame.position, bytes)
        };
        let frames = frames.into_iter().map(lend).collect();
        self.pages.insert(cursor, page);
        frames
    }
}

fn shared(position: i64, bytes: Arc<Bytes>) -> Encoded {
    /// Tells, by living, that a reader holds the bytes.
    struct Held(Arc<Bytes>);

    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    Encoded {
        position,
        bytes: Bytes::from_owner(Held(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(position: i64) -> Encoded {
        Encoded::new(position, "counts", "{}")
    }

    #[test]
    fn a_page_is_lent_as_long_as_somebody_holds_all_of_it() {
        let mut lent = Lent::default();
        let mut first = lent.lend(4, vec![frame(5), frame(7)]);
        let second = lent.find(4).unwrap();
        let positions: Vec<i64> = second.iter().map(|frame| frame.position).collect();
        assert_eq!(positions, [5, 7]);
        assert_eq!(second[0].bytes, frame(5).bytes);
        assert_eq!(second[0].bytes.as_ptr(), first[0].bytes.as_ptr());
        assert!(lent.find(5).is_none());

        drop(second);
        assert!(lent.find(4).is_some());
        first.remove(0);
        assert!(lent.find(4).is_none(), "half of a page is none");
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let mut lent = Lent::default();
        let held = lent.lend(0, vec![frame(1)]);
        for cursor in 1..1000 {
            lent.lend(cursor, vec![frame(cursor + 1)]);
            assert!(lent.pages.len() <= FEW);
        }
        assert!(lent.find(0).is_some());
        drop(held);
    }
}
