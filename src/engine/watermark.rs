//! The watermark: how far event time has come.

use crate::time::Timestamp;

/// A bound on event time: what lies at or before it is taken to have arrived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Watermark(i64);

impl Watermark {
    /// Where a book without clicks stands.
    pub const MINUS_INFINITY: Self = Self(i64::MIN);
    /// Where a closed book stands: every window has ended.
    pub const END_OF_TIME: Self = Self(Timestamp::MAX.millis());

    /// The watermark as it is stored: milliseconds since the epoch, null for minus infinity.
    #[must_use]
    pub fn from_stored(millis: Option<i64>) -> Self {
        millis.map_or(Self::MINUS_INFINITY, Self)
    }

    /// The inverse of [`Watermark::from_stored`].
    #[must_use]
    pub fn stored(self) -> Option<i64> {
        (self != Self::MINUS_INFINITY).then_some(self.0)
    }

    /// The moment it stands at, `None` for minus infinity.
    #[must_use]
    pub fn shown(self) -> Option<Timestamp> {
        self.stored().map(Timestamp::saturating_from_millis)
    }

    /// Whether a window that ends at `end_ms` has ended.
    #[must_use]
    pub fn ended(self, end_ms: i64) -> bool {
        end_ms <= self.0
    }

    /// Whether a window that ends at `end_ms` takes no clicks any more.
    #[must_use]
    pub fn gone(self, end_ms: i64, lateness_ms: i64) -> bool {
        end_ms.saturating_add(lateness_ms) <= self.0
    }

    /// The watermark after a click at `event_ms` has been seen. It never goes back.
    #[must_use]
    pub fn after(self, event_ms: i64, delay_ms: i64) -> Self {
        self.max(Self(event_ms.saturating_sub(delay_ms)))
    }
}
