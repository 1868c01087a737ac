//! Moments and spans in whole milliseconds.
//!
//! Everything inside is an integer; text is made and read at the edge only.

use std::borrow::Cow;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A moment: milliseconds since the epoch, UTC, within the years 0001 to 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(i64);

impl Timestamp {
    /// `0001-01-01T00:00:00.000Z`.
    pub const MIN: Self = Self(-62_135_596_800_000);
    /// The end of time, `9999-12-31T23:59:59.999Z`.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// The moment `millis` milliseconds after the epoch, or `None` outside the years 0001 to 9999.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Option<Self> {
        if millis < Self::MIN.0 || millis > Self::MAX.0 {
            None
        } else {
            Some(Self(millis))
        }
    }

    /// The moment nearest to `millis` that can be shown.
    #[must_use]
    pub fn saturating_from_millis(millis: i64) -> Self {
        Self(millis.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// What the wall clock says. Called at the edges only; everything inside is handed the time.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
        Self::saturating_from_millis(millis)
    }

    /// Reads RFC 3339 with any offset.
    ///
    /// # Errors
    /// Says whether the text is no RFC 3339 or lies outside the years 0001 to 9999.
    pub fn parse_rfc3339(text: &str) -> Result<Self, TimeError> {
        let parsed = DateTime::parse_from_rfc3339(text).map_err(|_| TimeError::Malformed)?;
        Self::from_millis(parsed.timestamp_millis()).ok_or(TimeError::OutOfRange)
    }

    /// Reads what a query parameter may hold: RFC 3339, or an integer, milliseconds since the epoch.
    ///
    /// # Errors
    /// As [`Timestamp::parse_rfc3339`].
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        match text.parse::<i64>() {
            Ok(millis) => Self::from_millis(millis).ok_or(TimeError::OutOfRange),
            Err(_) => Self::parse_rfc3339(text),
        }
    }

    /// Reads what a body may hold: RFC 3339 text, or an integer, milliseconds since the epoch.
    ///
    /// # Errors
    /// As [`Timestamp::parse_rfc3339`].
    pub fn parse_json(raw: &RawValue) -> Result<Self, TimeError> {
        let text = raw.get();
        if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(text) {
            return Self::parse_rfc3339(&text);
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        match text.parse::<i64>() {
            Ok(millis) => Self::from_millis(millis).ok_or(TimeError::OutOfRange),
            // An integer that 64 bits do not hold is a time all the same, if a far one.
            Err(_) if digits.bytes().all(|b| b.is_ascii_digit()) => Err(TimeError::OutOfRange),
            Err(_) => Err(TimeError::Malformed),
        }
    }
}

/// Why a text is no [`Timestamp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimeError {
    /// Neither RFC 3339 nor an integer.
    #[error("a time is RFC 3339 text, or an integer, milliseconds since the epoch")]
    Malformed,
    /// Before the year 0001 or after 9999.
    #[error("a time lies within the years 0001 to 9999")]
    OutOfRange,
}

impl TimeError {
    /// A short word for programs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "bad_time",
            Self::OutOfRange => "time_out_of_range",
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_millis(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A moment as whole milliseconds since the epoch, for what is kept and not shown.
pub mod millis {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{TimeError, Timestamp};

    /// Writes it.
    ///
    /// # Errors
    /// What the serializer says.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(time.millis())
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is no integer, or outside the years 0001 to 9999.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let millis = i64::deserialize(deserializer)?;
        Timestamp::from_millis(millis).ok_or_else(|| D::Error::custom(TimeError::OutOfRange))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_both_ends_of_the_range() {
        assert_eq!(Timestamp::MIN.to_string(), "0001-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::from_millis(Timestamp::MAX.0 + 1), None);
    }

    #[test]
    fn reads_offsets_and_integers() {
        let zulu = Timestamp::parse("2026-03-01T12:00:00.5Z");
        assert_eq!(Timestamp::parse("2026-03-01T15:30:00.500+03:30"), zulu);
        assert_eq!(Timestamp::parse("1772366400500"), zulu);
        assert_eq!(Timestamp::parse("yesterday"), Err(TimeError::Malformed));
        assert_eq!(
            Timestamp::parse("9223372036854775807"),
            Err(TimeError::OutOfRange)
        );
    }
}
