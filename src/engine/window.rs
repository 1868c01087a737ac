//! Which windows a moment belongs to.

use crate::rollup::WindowSpec;
use crate::time::Timestamp;

/// The bounds of a window, `[start, end)`, in milliseconds since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bounds {
    /// First millisecond.
    pub start_ms: i64,
    /// First millisecond after it.
    pub end_ms: i64,
}

impl Bounds {
    /// Whether the two have a moment in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start_ms < other.end_ms && other.start_ms < self.end_ms
    }

    /// Whether both bounds lie within the years 0001 to 9999, so that they can be shown.
    #[must_use]
    pub fn in_range(self) -> bool {
        Timestamp::from_millis(self.start_ms).is_some()
            && Timestamp::from_millis(self.end_ms).is_some()
    }
}

/// The windows that hold `at_ms`, the earliest first. Tumbling and sliding ones are aligned to the
/// epoch by floor division, so that times before 1970 fall right; a session's is the click's own,
/// before it is merged with others.
pub fn assign(spec: WindowSpec, at_ms: i64) -> impl Iterator<Item = Bounds> {
    let (span_ms, step_ms, windows) = match spec {
        WindowSpec::Tumbling { size_ms } => (size_ms, size_ms, 1),
        WindowSpec::Sliding { size_ms, slide_ms } => (size_ms, slide_ms, spec.windows_per_click()),
        WindowSpec::Session { gap_ms } => (gap_ms, 1, 1),
    };
    // Bounded factors: times by `Timestamp`, spans by `MAX_SPAN_MS`; saturating all the same.
    let newest_ms = at_ms.div_euclid(step_ms).saturating_mul(step_ms);
    (0..windows)
        .rev()
        .map(move |back| {
            let start_ms = newest_ms.saturating_sub(step_ms.saturating_mul(back));
            Bounds {
                start_ms,
                end_ms: start_ms.saturating_add(span_ms),
            }
        })
        // Where the size is no multiple of the slide, the earliest may have ended already.
        .filter(move |bounds| bounds.end_ms > at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(size_ms: i64, at_ms: i64) -> (i64, i64) {
        let found: Vec<_> = assign(WindowSpec::Tumbling { size_ms }, at_ms).collect();
        assert_eq!(found.len(), 1);
        (found[0].start_ms, found[0].end_ms)
    }

    #[test]
    fn floors_towards_the_past() {
        assert_eq!(bounds(10, 0), (0, 10));
        assert_eq!(bounds(10, 9), (0, 10));
        assert_eq!(bounds(10, -1), (-10, 0));
        assert_eq!(bounds(10, -10), (-10, 0));
        assert_eq!(bounds(10, -11), (-20, -10));
    }

    #[test]
    fn sliding_windows_are_those_that_hold_the_moment() {
        let starts = |size_ms, slide_ms, at_ms| -> Vec<i64> {
            let windows = assign(WindowSpec::Sliding { size_ms, slide_ms }, at_ms);
            windows
                .inspect(|w| assert!(w.start_ms <= at_ms && at_ms < w.end_ms))
                .map(|w| w.start_ms)
                .collect()
        };
        assert_eq!(starts(10, 5, 7), [0, 5]);
        assert_eq!(starts(10, 5, -1), [-10, -5]);
        assert_eq!(starts(10, 3, 9), [0, 3, 6, 9]);
        assert_eq!(starts(10, 3, 10), [3, 6, 9]);
        assert_eq!(starts(10, 10, 10), [10]);
    }

    #[test]
    fn the_ends_of_time_do_not_wrap() {
        let last = Timestamp::MAX.millis();
        let hour = WindowSpec::Tumbling { size_ms: 3_600_000 };
        assert!(!assign(hour, last).next().unwrap().in_range());
        assert!(assign(hour, last - 3_600_000).next().unwrap().in_range());
        let (start, end) = bounds(crate::rollup::MAX_SPAN_MS, Timestamp::MIN.millis());
        assert!(start <= Timestamp::MIN.millis() && Timestamp::MIN.millis() < end);
    }
}
