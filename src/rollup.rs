//! Rollups: the ways of counting a book's clicks.
//!
//! [`RollupSpec`] is what a client writes; [`Rollup`] is one that has been checked and that the
//! engine counts by.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::click::{Click, referrer_host};
use crate::time::Timestamp;

/// Longest span, in milliseconds, that a window or a lateness may have: the years 0001 to 9999.
/// Sums of a time and a few such spans stay far within 64 bits.
pub const MAX_SPAN_MS: i64 = Timestamp::MAX.millis() - Timestamp::MIN.millis();

/// Most rollups of a book.
pub const MAX_ROLLUPS: usize = 8;

/// One way of counting a book's clicks, as a client writes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollupSpec {
    /// 1 to 64 of a-z, A-Z, 0-9, `-` and `_`; unique within the book.
    #[schema(example = "pages")]
    pub name: String,
    /// What the clicks of one window are told apart by.
    pub group_by: GroupBy,
    /// How time is cut.
    pub window: WindowSpec,
    /// What is computed of the clicks of one window and group.
    pub aggregate: AggregateKind,
    /// How long after its end a window still takes clicks; the book's setting if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub lateness_ms: Option<i64>,
}

/// What the clicks of one window are told apart by. A click that lacks it is not counted there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The canonical page.
    Page,
    /// All clicks of the book in one group, `""`.
    Book,
    /// The visitor.
    Visitor,
    /// The host of the referrer.
    Referrer,
    /// The source.
    Source,
}

impl GroupBy {
    /// The group that `click` belongs to.
    #[must_use]
    pub fn group_of(self, click: &Click) -> Option<Cow<'_, str>> {
        match self {
            Self::Page => Some(Cow::Borrowed(&click.page)),
            Self::Book => Some(Cow::Borrowed("")),
            Self::Visitor => click.visitor.as_deref().map(Cow::Borrowed),
            Self::Referrer => click
                .referrer
                .as_deref()
                .map(|r| Cow::Owned(referrer_host(r))),
            Self::Source => click.source.as_deref().map(Cow::Borrowed),
        }
    }
}

/// How time is cut into windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum WindowSpec {
    /// Windows of one size, side by side, aligned to the epoch.
    Tumbling {
        /// Milliseconds.
        #[schema(minimum = 1)]
        size_ms: i64,
    },
}

/// What is computed of the clicks of one window and group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AggregateKind {
    /// How many clicks.
    Count,
}

/// A rollup that has been checked: every sum that the engine makes with it stays in range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rollup {
    /// Unique within the book.
    pub name: String,
    /// What the clicks of one window are told apart by.
    pub group_by: GroupBy,
    /// How time is cut.
    pub window: WindowSpec,
    /// What is computed.
    pub aggregate: AggregateKind,
    /// How long after its end a window still takes clicks, in milliseconds, from 0.
    pub lateness_ms: i64,
}

/// What is wrong with a rollup: which field, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct RollupError {
    /// Place in the list.
    pub index: usize,
    /// Name of the field, with dots.
    pub field: &'static str,
    /// What it has to be.
    pub detail: String,
}

/// What a book without rollups of its own is counted by.
#[must_use]
pub fn default_rollups() -> Vec<RollupSpec> {
    let pages = |name: &str, size_ms, lateness_ms| RollupSpec {
        name: name.to_owned(),
        group_by: GroupBy::Page,
        window: WindowSpec::Tumbling { size_ms },
        aggregate: AggregateKind::Count,
        lateness_ms,
    };
    vec![
        pages("live", 10_000, None),
        pages("pages", 15 * 60_000, Some(24 * 3_600_000)),
    ]
}

/// Checks a book's rollups; `lateness_ms` is the book's own, for those without one.
///
/// # Errors
/// Everything that is wrong, not only the first.
pub fn check(specs: &[RollupSpec], lateness_ms: i64) -> Result<Vec<Rollup>, Vec<RollupError>> {
    let mut errors = Vec::new();
    if specs.is_empty() || specs.len() > MAX_ROLLUPS {
        errors.push(RollupError {
            index: 0,
            field: "rollups",
            detail: format!("a book has 1 to {MAX_ROLLUPS} rollups"),
        });
    }
    let mut rollups = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        let mut wrong = |field, detail: String| {
            errors.push(RollupError {
                index,
                field,
                detail,
            });
        };
        let name = &spec.name;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) {
            wrong("name", "1 to 64 of a-z, A-Z, 0-9, - and _".to_owned());
        }
        if specs[..index].iter().any(|other| other.name == *name) {
            wrong("name", format!("another rollup is named {name}"));
        }
        let WindowSpec::Tumbling { size_ms } = spec.window;
        if !(1..=MAX_SPAN_MS).contains(&size_ms) {
            wrong("window.size_ms", format!("from 1 to {MAX_SPAN_MS}"));
        }
        let lateness_ms = spec.lateness_ms.unwrap_or(lateness_ms);
        if !(0..=MAX_SPAN_MS).contains(&lateness_ms) {
            wrong("lateness_ms", format!("from 0 to {MAX_SPAN_MS}"));
        }
        rollups.push(Rollup {
            name: name.clone(),
            group_by: spec.group_by,
            window: spec.window,
            aggregate: spec.aggregate,
            lateness_ms,
        });
    }
    if errors.is_empty() {
        Ok(rollups)
    } else {
        Err(errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_all_that_is_wrong_at_once() {
        let spec = |name: &str, size_ms, lateness_ms| RollupSpec {
            name: name.to_owned(),
            group_by: GroupBy::Page,
            window: WindowSpec::Tumbling { size_ms },
            aggregate: AggregateKind::Count,
            lateness_ms,
        };
        let errors = check(
            &[
                spec("a", 0, None),
                spec("a", 1, Some(-1)),
                spec("b b", i64::MAX, Some(i64::MAX)),
            ],
            0,
        )
        .unwrap_err();
        let fields: Vec<_> = errors.iter().map(|e| (e.index, e.field)).collect();
        assert_eq!(
            fields,
            [
                (0, "window.size_ms"),
                (1, "name"),
                (1, "lateness_ms"),
                (2, "name"),
                (2, "window.size_ms"),
                (2, "lateness_ms"),
            ]
        );
        assert!(check(&default_rollups(), 60_000).is_ok());
        assert!(check(&[], 0).is_err());
    }
}
