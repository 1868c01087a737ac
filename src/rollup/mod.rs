//! Rollups: the ways of counting a book's clicks.
//!
//! [`RollupSpec`] is what a client writes; [`Rollup`] is one that has been checked ([`check()`]) and
//! that the engine counts by.

mod check;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use check::{RollupError, check};

use crate::click::{Click, Micros, referrer_host};
use crate::structure::Structure;
use crate::time::Timestamp;

/// Longest span, in milliseconds, that a window or a lateness may have: the years 0001 to 9999.
/// Sums of a time and a few such spans stay far within 64 bits.
pub const MAX_SPAN_MS: i64 = Timestamp::MAX.millis() - Timestamp::MIN.millis();

/// Most rollups of a book.
pub const MAX_ROLLUPS: usize = 8;

/// Most windows that one click may fall into, over all rollups of its book.
pub const MAX_WINDOWS_PER_CLICK: i64 = 100;

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
    /// What of a click is aggregated; a click that lacks it is not counted in this rollup. Absent:
    /// `visitor` for distinct, `page` for top, the click itself for count, `value` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Field>,
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
    /// The chapter that the page is in; `""` for a page in none.
    Chapter,
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
    pub fn group_of<'a>(self, click: &'a Click, structure: &Structure) -> Option<Cow<'a, str>> {
        match self {
            Self::Page => Some(Cow::Borrowed(&click.page)),
            Self::Chapter => Some(Cow::Owned(structure.chapter_of(&click.page).to_owned())),
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

/// What of a click is aggregated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// Its value, a number.
    Value,
    /// The visitor.
    Visitor,
    /// The canonical page.
    Page,
    /// The host of the referrer.
    Referrer,
    /// The source.
    Source,
}

/// A field of one click.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// None is wanted: the click itself counts.
    Click,
    /// A number.
    Number(Micros),
    /// A text.
    Text(Cow<'a, str>),
}

impl Field {
    /// This field of `click`; `None` if it lacks it.
    #[must_use]
    pub fn item_of(self, click: &Click) -> Option<Item<'_>> {
        match self {
            Self::Value => click.value.map(Item::Number),
            Self::Visitor => click.visitor.as_deref().map(Item::borrowed),
            Self::Page => Some(Item::borrowed(&click.page)),
            Self::Referrer => click
                .referrer
                .as_deref()
                .map(|r| Item::Text(Cow::Owned(referrer_host(r)))),
            Self::Source => click.source.as_deref().map(Item::borrowed),
        }
    }
}

impl<'a> Item<'a> {
    fn borrowed(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
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
    /// Windows of one size that overlap: one begins every `slide_ms`, aligned to the epoch.
    Sliding {
        /// Milliseconds.
        #[schema(minimum = 1)]
        size_ms: i64,
        /// Milliseconds, at most the size.
        #[schema(minimum = 1)]
        slide_ms: i64,
    },
    /// A window for each run of clicks of a group that are less than `gap_ms` apart; it ends a gap
    /// after the last of them.
    Session {
        /// Milliseconds.
        #[schema(minimum = 1)]
        gap_ms: i64,
    },
}

impl WindowSpec {
    /// The longest that one click makes a window: its size, or the gap of a session.
    #[must_use]
    pub fn span_ms(self) -> i64 {
        match self {
            Self::Tumbling { size_ms } | Self::Sliding { size_ms, .. } => size_ms,
            Self::Session { gap_ms } => gap_ms,
        }
    }

    /// Most windows that one click falls into.
    #[must_use]
    pub fn windows_per_click(self) -> i64 {
        match self {
            Self::Sliding { size_ms, slide_ms } => {
                size_ms / slide_ms + i64::from(size_ms % slide_ms != 0)
            }
            Self::Tumbling { .. } | Self::Session { .. } => 1,
        }
    }
}

/// What is computed of the clicks of one window and group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AggregateKind {
    /// How many clicks.
    Count,
    /// The sum of their values.
    Sum,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The value of the earliest click.
    First,
    /// The value of the latest click.
    Last,
    /// How many different ones there are.
    Distinct,
    /// The most frequent ones.
    Top,
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
    /// What of a click is aggregated; `None`: the click itself.
    pub of: Option<Field>,
    /// How long after its end a window still takes clicks, in milliseconds, from 0.
    pub lateness_ms: i64,
}

impl Rollup {
    /// What of `click` this rollup aggregates; `None`: the click lacks it.
    #[must_use]
    pub fn item_of<'a>(&self, click: &'a Click) -> Option<Item<'a>> {
        self.of
            .map_or(Some(Item::Click), |field| field.item_of(click))
    }

    /// How long after its end a window is closed, in milliseconds. A session stays one gap longer
    /// than it takes clicks at its end: a click that is still taken could otherwise overlap one
    /// that is closed.
    #[must_use]
    pub fn closes_after_ms(&self) -> i64 {
        match self.window {
            WindowSpec::Session { gap_ms } => self.lateness_ms.saturating_add(gap_ms),
            WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } => self.lateness_ms,
        }
    }
}

/// What a book without rollups of its own is counted by.
#[must_use]
pub fn default_rollups() -> Vec<RollupSpec> {
    const MINUTE: i64 = 60_000;
    let quarter = WindowSpec::Tumbling {
        size_ms: 15 * MINUTE,
    };
    let spec = |name: &str, group_by, window, aggregate| RollupSpec {
        name: name.to_owned(),
        group_by,
        window,
        aggregate,
        of: None,
        lateness_ms: None,
    };
    let of_a_day = |spec| RollupSpec {
        lateness_ms: Some(24 * 60 * MINUTE),
        ..spec
    };
    let live = WindowSpec::Tumbling { size_ms: 10_000 };
    let readers = WindowSpec::Sliding {
        size_ms: 5 * MINUTE,
        slide_ms: MINUTE,
    };
    vec![
        spec("live", GroupBy::Page, live, AggregateKind::Count),
        of_a_day(spec("pages", GroupBy::Page, quarter, AggregateKind::Count)),
        of_a_day(spec(
            "referrers",
            GroupBy::Referrer,
            quarter,
            AggregateKind::Count,
        )),
        spec("readers", GroupBy::Book, readers, AggregateKind::Distinct),
        of_a_day(spec(
            "visitors",
            GroupBy::Book,
            quarter,
            AggregateKind::Distinct,
        )),
    ]
}
