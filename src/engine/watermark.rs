//! The watermark: how far event time has come.

use super::Progress;
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

    /// The watermark once `newest_ms` is the greatest event time seen. It never goes back.
    #[must_use]
    pub fn after(self, newest_ms: i64, delay_ms: i64) -> Self {
        self.max(Self(newest_ms.saturating_sub(delay_ms)))
    }
}

/// When nothing is received, event time goes on with the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Idleness {
    /// How long nothing must have been received, in milliseconds.
    pub timeout_ms: i64,
    /// How far the watermark stays behind, in milliseconds.
    pub delay_ms: i64,
    /// When a click was last received, in milliseconds since the epoch.
    pub last_received_ms: i64,
    /// The time of day, in milliseconds since the epoch.
    pub now_ms: i64,
}

impl Idleness {
    /// Where the watermark of a book stands that has been idle: as if event time had run with the
    /// clock since the last receipt, but never past the clock less the delay. `None`: it is not
    /// idle, or the watermark does not move.
    #[must_use]
    pub fn watermark(self, progress: Progress) -> Option<Watermark> {
        let idle_ms = self.now_ms.saturating_sub(self.last_received_ms);
        if idle_ms < self.timeout_ms {
            return None;
        }
        let ran_to = progress.newest_event_ms?.saturating_add(idle_ms);
        let to = Watermark(ran_to.min(self.now_ms).saturating_sub(self.delay_ms));
        (to > progress.watermark).then_some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(newest_event_ms: Option<i64>, now_ms: i64) -> Option<i64> {
        let idleness = Idleness {
            timeout_ms: 10,
            delay_ms: 2,
            last_received_ms: 100,
            now_ms,
        };
        let progress = Progress {
            watermark: newest_event_ms.map_or(Watermark::MINUS_INFINITY, |ms| Watermark(ms - 2)),
            newest_event_ms,
        };
        idleness.watermark(progress).and_then(Watermark::stored)
    }

    #[test]
    fn event_time_runs_with_the_clock_once_nothing_comes() {
        assert_eq!(idle(Some(95), 109), None);
        assert_eq!(idle(Some(95), 110), Some(103));
        assert_eq!(idle(Some(95), 1000), Some(993));
        // Old clicks, posted now.
        assert_eq!(idle(Some(-7000), 110), Some(-6992));
        // A fast clock: never past the time of day.
        assert_eq!(idle(Some(103), 112), Some(110));
        assert_eq!(idle(Some(150), 112), None);
        // A clock that was set back, and a book without clicks.
        assert_eq!(idle(Some(95), 50), None);
        assert_eq!(idle(None, 1000), None);
    }
}
