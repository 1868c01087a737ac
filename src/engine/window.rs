//! Which windows a moment belongs to.

use crate::rollup::WindowSpec;
use crate::time::Timestamp;

/// The bounds of a window, `[start, end)`, in milliseconds since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// First millisecond.
    pub start_ms: i64,
    /// First millisecond after it.
    pub end_ms: i64,
}

impl Bounds {
    /// Whether both bounds lie within the years 0001 to 9999, so that they can be shown.
    #[must_use]
    pub fn in_range(self) -> bool {
        Timestamp::from_millis(self.start_ms).is_some()
            && Timestamp::from_millis(self.end_ms).is_some()
    }
}

/// The windows that hold `at_ms`, aligned to the epoch; floor division, so that times before 1970
/// fall right.
pub fn assign(spec: WindowSpec, at_ms: i64) -> impl Iterator<Item = Bounds> {
    let WindowSpec::Tumbling { size_ms } = spec;
    // Bounded factors: times by `Timestamp`, sizes by `MAX_SPAN_MS`; saturating all the same.
    let start_ms = at_ms.div_euclid(size_ms).saturating_mul(size_ms);
    std::iter::once(Bounds {
        start_ms,
        end_ms: start_ms.saturating_add(size_ms),
    })
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
    fn the_ends_of_time_do_not_wrap() {
        let last = Timestamp::MAX.millis();
        let hour = WindowSpec::Tumbling { size_ms: 3_600_000 };
        assert!(!assign(hour, last).next().unwrap().in_range());
        assert!(assign(hour, last - 3_600_000).next().unwrap().in_range());
        let (start, end) = bounds(crate::rollup::MAX_SPAN_MS, Timestamp::MIN.millis());
        assert!(start <= Timestamp::MIN.millis() && Timestamp::MIN.millis() < end);
    }
}
