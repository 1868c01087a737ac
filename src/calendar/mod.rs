//! Local calendars: the hour, day, week or month of a time zone that a moment lies in.
//!
//! Pure. The rules of time zones are compiled in, so that an answer does not depend on the machine.
//! The buckets of an interval never overlap and leave nothing out, whatever clocks did.

use jiff::Timestamp as Moment;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::time::Timestamp;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The calendar, weekdays included, repeats every 400 years, and so do the rules of the far future.
const CYCLE_MS: i64 = 146_097 * DAY_MS;

/// From the year 9800 on moments are looked up one cycle earlier: jiff ends a day before the end of
/// 9999.
const FAR_MS: i64 = 247_090_953_600_000;

/// How a calendar is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// From one full hour of the local clock to the next, or to where the clock is changed. An hour
    /// that comes twice is two.
    Hour,
    /// The 23 to 25 hours, mostly, of a local date.
    Day,
    /// From Monday to Sunday.
    Week,
    /// A month.
    Month,
}

impl Interval {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}

/// One piece of a calendar, `[start, end)`, in milliseconds since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// First millisecond.
    pub start_ms: i64,
    /// First millisecond after it.
    pub end_ms: i64,
}

impl Bucket {
    /// Whether `at_ms` lies in it.
    #[must_use]
    pub fn holds(self, at_ms: i64) -> bool {
        self.start_ms <= at_ms && at_ms < self.end_ms
    }

    /// Whether windows of this size, which are aligned to the epoch, fill it without reaching over
    /// either bound.
    #[must_use]
    pub fn is_filled_by(self, size_ms: i64) -> bool {
        self.start_ms % size_ms == 0 && self.end_ms % size_ms == 0
    }

    fn moved_by(self, ms: i64) -> Self {
        Self {
            start_ms: self.start_ms.saturating_add(ms),
            end_ms: self.end_ms.saturating_add(ms),
        }
    }
}

/// There is no such time zone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no time zone {0:?}; they are named as in Europe/Berlin")]
pub struct UnknownZone(String);

/// A time zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// The time zone of this name in the tz database; case does not matter.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self, UnknownZone> {
        match TimeZone::get(name) {
            Ok(zone) if !zone.is_unknown() => Ok(Self(zone)),
            _ => Err(UnknownZone(name.to_owned())),
        }
    }

    /// Its name in the tz database.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The bucket that holds `at_ms`; a moment outside of the years 0001 to 9999 is taken for the
    /// nearest within. The bucket itself may reach beyond them.
    #[must_use]
    pub fn bucket(&self, interval: Interval, at_ms: i64) -> Bucket {
        let at_ms = Timestamp::saturating_from_millis(at_ms).millis();
        let moved_ms = if at_ms < FAR_MS { 0 } else { CYCLE_MS };
        let at_ms = at_ms - moved_ms;
        let bucket = match interval {
            Interval::Hour => self.hour(at_ms),
            Interval::Day | Interval::Week | Interval::Month => self.days(interval, at_ms),
        };
        bucket.moved_by(moved_ms)
    }

    fn hour(&self, at_ms: i64) -> Bucket {
        let offset_ms = self.offset_ms(at_ms);
        let local_ms = (at_ms + offset_ms).div_euclid(HOUR_MS) * HOUR_MS;
        let start_ms = local_ms - offset_ms;
        let end_ms = start_ms + HOUR_MS;
        // A clock that is changed amid an hour ends it, and begins another.
        let begun = self.last_change_until(at_ms, start_ms);
        let mut later = self.0.following(moment(at_ms));
        let ended = later
            .by_ref()
            .map(|change| change.timestamp().as_millisecond())
            .take_while(|ms| *ms < end_ms)
            .find(|ms| self.is_changed_at(*ms));
        Bucket {
            start_ms: begun.unwrap_or(start_ms),
            end_ms: ended.unwrap_or(end_ms),
        }
    }

    fn days(&self, interval: Interval, at_ms: i64) -> Bucket {
        let mut day = (at_ms + self.offset_ms(at_ms)).div_euclid(DAY_MS);
        loop {
            let (first, next) = whole(interval, day);
            let end_ms = self.first_moment(next);
            if at_ms < end_ms {
                let start_ms = self.first_moment(first);
                return Bucket { start_ms, end_ms };
            }
            // The clock went back over midnight, to a date that had ended.
            day = next;
        }
    }

    /// The first moment at which the local date is that day, counted from the epoch, or a later
    /// one. Mostly it is midnight, but where the clock is put forward at midnight, there is none.
    fn first_moment(&self, day: i64) -> i64 {
        let midnight_ms = day * DAY_MS;
        let before = match self.0.to_ambiguous_timestamp(civil(midnight_ms)).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            // The first of the two.
            AmbiguousOffset::Fold { before, .. } => before,
            AmbiguousOffset::Gap { before, .. } => {
                let without_the_change_ms = midnight_ms - millis(before);
                let changed = self.last_change_until(without_the_change_ms, i64::MIN);
                return changed.unwrap_or(without_the_change_ms);
            }
        };
        midnight_ms - millis(before)
    }

    /// When the clock was last changed, at or before `at_ms` and after `after_ms`.
    fn last_change_until(&self, at_ms: i64, after_ms: i64) -> Option<i64> {
        self.0
            .preceding(moment(at_ms + 1))
            .map(|change| change.timestamp().as_millisecond())
            .take_while(|ms| *ms > after_ms)
            .find(|ms| self.is_changed_at(*ms))
    }

    /// The database also knows of changes that no clock shows, as of the zone's abbreviation.
    fn is_changed_at(&self, at_ms: i64) -> bool {
        self.offset_ms(at_ms - 1) != self.offset_ms(at_ms)
    }

    /// How far local clocks are ahead of UTC.
    fn offset_ms(&self, at_ms: i64) -> i64 {
        millis(self.0.to_offset(moment(at_ms)))
    }
}

/// The first day of what holds `day`, and the first after it, counted from the epoch.
fn whole(interval: Interval, day: i64) -> (i64, i64) {
    match interval {
        Interval::Hour | Interval::Day => (day, day + 1),
        Interval::Week => {
            // The epoch was a Thursday.
            let monday = day - (day + 3).rem_euclid(7);
            (monday, monday + 7)
        }
        Interval::Month => {
            let date = civil(day * DAY_MS).date();
            let first = day - i64::from(date.day() - 1);
            (first, first + i64::from(date.days_in_month()))
        }
    }
}

fn millis(offset: Offset) -> i64 {
    i64::from(offset.seconds()) * 1000
}

fn moment(ms: i64) -> Moment {
    let nearest = if ms < 0 { Moment::MIN } else { Moment::MAX };
    Moment::from_millisecond(ms).unwrap_or(nearest)
}

/// What a clock shows that stands at this number of milliseconds after its own epoch.
fn civil(local_ms: i64) -> DateTime {
    Offset::UTC.to_datetime(moment(local_ms))
}

#[cfg(test)]
mod tests;
