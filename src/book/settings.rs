//! What can be set on a book.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::FieldError;
use crate::rollup::{MAX_SPAN_MS, Rollup, RollupSpec};

/// A book's settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, as people set them"
)]
pub struct Settings {
    /// How far the watermark stays behind the newest event time, in milliseconds.
    pub delay_ms: i64,
    /// How long after its end a window still takes clicks, in milliseconds.
    pub lateness_ms: i64,
    /// After this long with nothing received, event time goes on with the clock; null: it does not.
    pub idle_timeout_ms: Option<i64>,
    /// A click further ahead of its receipt than this is refused; null: none is.
    pub max_future_ms: Option<i64>,
    /// How many frames the event stream's buffer holds. From 256 on, its older half holds a quarter
    /// of a second in one frame.
    pub buffer_frames: i64,
    /// Whether pages are made canonical.
    pub canonical_pages: bool,
    /// The path below which all pages of the book stand.
    pub base_path: String,
    /// Whether clicks that bots send with a write key in the address are left out.
    #[serde(default = "yes")]
    pub filter_bots: bool,
    /// Whether readers whose browsers ask not to be followed (`DNT`, `Sec-GPC`) get no name.
    #[serde(default = "yes")]
    pub respect_gpc: bool,
    /// Whether anyone may see how often the book and its pages are read.
    #[serde(default)]
    pub public_counter: bool,
    /// A visitor's click on a page within this time of event, in milliseconds, of one that was
    /// counted is left out; 0: none is.
    #[serde(default)]
    pub debounce_ms: i64,
    /// The same for a visitor's click on a page with the same value.
    #[serde(default)]
    pub value_debounce_ms: i64,
    /// For how many days after their receipt clicks are kept in the log; null: for ever.
    #[serde(default)]
    pub click_retention_days: Option<i64>,
    /// For how many days counts are kept, after a window's end and after its last change; null: for
    /// ever.
    #[serde(default)]
    pub count_retention_days: Option<i64>,
}

/// Books that were made before there was such a setting have it too.
fn yes() -> bool {
    true
}

/// Changes to settings; what is absent stays as it is, `null` means off.
#[derive(Clone, Default, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsPatch {
    /// How far the watermark stays behind the newest event time, in milliseconds. Default 2000.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub delay_ms: Option<i64>,
    /// How long after its end a window still takes clicks, in milliseconds. Default 60000.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub lateness_ms: Option<i64>,
    /// After this many milliseconds with nothing received, event time goes on with the clock, so
    /// that the last windows fire; null: off. Default 10000.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub idle_timeout_ms: Option<Option<i64>>,
    /// A click further ahead of its receipt than this, in milliseconds, is refused; null: off.
    /// Default 2000, or delay plus smallest lateness if that is less; it may not be more.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub max_future_ms: Option<Option<i64>>,
    /// How many frames the event stream's buffer holds, 16 to 65536. From 256 on, its older half
    /// holds a quarter of a second in one frame, so it reaches back for longer. Default 512.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 16, maximum = 65536)]
    pub buffer_frames: Option<i64>,
    /// Whether pages are made canonical. Default true.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<bool>)]
    pub canonical_pages: Option<bool>,
    /// The path below which all pages of the book stand. Default "".
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub base_path: Option<String>,
    /// Whether clicks that bots send with `?key=` are `filtered`. Default true.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<bool>)]
    pub filter_bots: Option<bool>,
    /// Whether readers whose browsers ask not to be followed (`DNT: 1`, `Sec-GPC: 1`) get no
    /// visitor made for clicks with `?key=`. Default true.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<bool>)]
    pub respect_gpc: Option<bool>,
    /// Whether anyone may see how often the book and its pages are read: `GET …/public`, and the badge.
    /// Default false.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<bool>)]
    pub public_counter: Option<bool>,
    /// A visitor's click on the same page within this time of event, in milliseconds, is
    /// `filtered`; 0: none is. Default 0.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub debounce_ms: Option<i64>,
    /// A visitor's click on the same page with the same value within this time of event, in
    /// milliseconds, is `filtered`; 0: none is. Default 0.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub value_debounce_ms: Option<i64>,
    /// For how many days after their receipt clicks are kept in the log, 1 to 36500; null: for ever.
    /// One that was removed is forgotten: sent again, it counts again. Default null.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 36500)]
    pub click_retention_days: Option<Option<i64>>,
    /// For how many days counts are kept, 1 to 36500: a window goes once both its end and its last
    /// change are older; null: for ever. Default null.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 36500)]
    pub count_retention_days: Option<Option<i64>>,
}

/// Tells a field that is there from one that is absent, so that `null` is only taken where the
/// field's own type takes it.
pub(super) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

const DEFAULT_MAX_FUTURE_MS: i64 = 2000;

impl Settings {
    /// What a new book gets: `patch`, and defaults for the rest.
    #[must_use]
    pub fn new(patch: SettingsPatch, rollups: &[RollupSpec]) -> Self {
        let delay_ms = patch.delay_ms.unwrap_or(2000);
        let lateness_ms = patch.lateness_ms.unwrap_or(60_000);
        let latenesses = rollups.iter().map(|r| r.lateness_ms.unwrap_or(lateness_ms));
        let bound = delay_ms.saturating_add(latenesses.min().unwrap_or(lateness_ms));
        Self {
            delay_ms,
            lateness_ms,
            idle_timeout_ms: patch.idle_timeout_ms.unwrap_or(Some(10_000)),
            max_future_ms: patch
                .max_future_ms
                .unwrap_or(Some(DEFAULT_MAX_FUTURE_MS.min(bound))),
            buffer_frames: patch.buffer_frames.unwrap_or(512),
            canonical_pages: patch.canonical_pages.unwrap_or(true),
            base_path: patch.base_path.unwrap_or_default(),
            filter_bots: patch.filter_bots.unwrap_or_else(yes),
            respect_gpc: patch.respect_gpc.unwrap_or_else(yes),
            public_counter: patch.public_counter.unwrap_or_default(),
            debounce_ms: patch.debounce_ms.unwrap_or_default(),
            value_debounce_ms: patch.value_debounce_ms.unwrap_or_default(),
            click_retention_days: patch.click_retention_days.unwrap_or_default(),
            count_retention_days: patch.count_retention_days.unwrap_or_default(),
        }
    }

    /// These settings with `patch` laid over them.
    #[must_use]
    pub fn patched(self, patch: SettingsPatch) -> Self {
        Self {
            delay_ms: patch.delay_ms.unwrap_or(self.delay_ms),
            lateness_ms: patch.lateness_ms.unwrap_or(self.lateness_ms),
            idle_timeout_ms: patch.idle_timeout_ms.unwrap_or(self.idle_timeout_ms),
            max_future_ms: patch.max_future_ms.unwrap_or(self.max_future_ms),
            buffer_frames: patch.buffer_frames.unwrap_or(self.buffer_frames),
            canonical_pages: patch.canonical_pages.unwrap_or(self.canonical_pages),
            base_path: patch.base_path.unwrap_or(self.base_path),
            filter_bots: patch.filter_bots.unwrap_or(self.filter_bots),
            respect_gpc: patch.respect_gpc.unwrap_or(self.respect_gpc),
            public_counter: patch.public_counter.unwrap_or(self.public_counter),
            debounce_ms: patch.debounce_ms.unwrap_or(self.debounce_ms),
            value_debounce_ms: patch.value_debounce_ms.unwrap_or(self.value_debounce_ms),
            click_retention_days: patch
                .click_retention_days
                .unwrap_or(self.click_retention_days),
            count_retention_days: patch
                .count_retention_days
                .unwrap_or(self.count_retention_days),
        }
    }

    /// Everything that is wrong with a single setting.
    pub(super) fn check(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut within = |field: &str, value: i64, least: i64, most: i64| {
            if !(least..=most).contains(&value) {
                let field = format!("settings.{field}");
                let detail = format!("from {least} to {most}");
                errors.push(FieldError::new(&field, "out_of_range", detail));
            }
        };
        within("delay_ms", self.delay_ms, 0, MAX_SPAN_MS);
        within("lateness_ms", self.lateness_ms, 0, MAX_SPAN_MS);
        within("buffer_frames", self.buffer_frames, 16, 65_536);
        within("debounce_ms", self.debounce_ms, 0, MAX_SPAN_MS);
        within("value_debounce_ms", self.value_debounce_ms, 0, MAX_SPAN_MS);
        if let Some(timeout) = self.idle_timeout_ms {
            within("idle_timeout_ms", timeout, 1, MAX_SPAN_MS);
        }
        if let Some(ahead) = self.max_future_ms {
            within("max_future_ms", ahead, 0, MAX_SPAN_MS);
        }
        for (field, days) in [
            ("click_retention_days", self.click_retention_days),
            ("count_retention_days", self.count_retention_days),
        ] {
            if let Some(days) = days {
                within(field, days, 1, 36_500);
            }
        }
        let path = &self.base_path;
        let fine = path.is_empty() || (path.starts_with('/') && path.len() <= 2048);
        if !fine || path.chars().any(char::is_control) {
            let detail = "empty, or a path that begins with /";
            errors.push(FieldError::new("settings.base_path", "bad_path", detail));
        }
        errors
    }

    /// One clock ahead by `max_future_ms` may not make honest clicks too late for any rollup.
    pub(super) fn check_future(&self, rollups: &[Rollup]) -> Option<FieldError> {
        let smallest = rollups.iter().map(|r| r.lateness_ms).min()?;
        let bound = self.delay_ms.saturating_add(smallest);
        let ahead = self.max_future_ms?;
        (ahead > bound).then(|| {
            let detail = format!(
                "at most delay_ms plus the smallest lateness_ms, {bound}: beyond that one fast \
                 clock makes honest clicks too late"
            );
            FieldError::new("settings.max_future_ms", "too_far_ahead", detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(json: &str) -> Result<SettingsPatch, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn absent_null_and_set_differ() {
        let settings = Settings::new(SettingsPatch::default(), &[]);
        assert_eq!(settings.max_future_ms, Some(2000));
        let off = settings
            .clone()
            .patched(patch(r#"{"max_future_ms":null}"#).unwrap());
        assert_eq!(off.max_future_ms, None);
        assert_eq!(off.patched(patch("{}").unwrap()).max_future_ms, None);
        assert!(patch(r#"{"delay_ms":null}"#).is_err());
        assert!(patch(r#"{"delay":1}"#).is_err());
    }

    #[test]
    fn the_future_is_bounded_by_what_it_could_spoil() {
        let strict = Settings::new(patch(r#"{"delay_ms":0,"lateness_ms":100}"#).unwrap(), &[]);
        assert_eq!(strict.max_future_ms, Some(100));
        let rollups = crate::rollup::default_rollups();
        let wild = Settings::new(patch(r#"{"max_future_ms":62001}"#).unwrap(), &rollups);
        let errors = super::super::check_counting(&wild, &rollups);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field.as_deref(), Some("settings.max_future_ms"));
    }
}
