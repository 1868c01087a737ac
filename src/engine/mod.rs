//! The event-time engine: how clicks become window values.
//!
//! **Promises.** The same clicks in the same order give the same statuses, values and watermark,
//! whichever way they are cut into batches; only emissions are condensed to one for each window
//! and group of a batch.
//!
//! **Never** reads a clock, a database or a socket, and spawns nothing: state and clicks go in,
//! an [`Outcome`] comes out. The same functions count the live stream, a replay and a batch.
//!
//! **Called by** `ingest::commit`, in two steps, since windows live in Postgres: [`reach()`] says
//! which windows a batch needs, the caller loads them, [`apply()`] folds the clicks into them; a
//! group is looked up by its name in the first, once for each click, and nowhere after that. What
//! moves the watermark without a click, an end of input or idleness, goes through [`advance`].
//!
//! Where a new kind of window goes: [`window`], if its bounds hang on the click's time alone; beside
//! [`session`] if they hang on other clicks. A new aggregate: a file beside [`aggregate::count`] and
//! a line in [`aggregate`].

pub mod aggregate;
mod apply;
mod groups;
mod reach;
mod session;
mod watermark;
pub mod window;
mod working;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
pub(crate) mod testing;

use std::borrow::Cow;
use std::sync::Arc;

pub use apply::{advance, apply, fold};
pub use reach::{Reach, Span, reach};
pub use watermark::{Idleness, Watermark};
pub use window::Bounds;

use crate::click::Click;
use crate::engine::aggregate::State;
use crate::rollup::Rollup;
use crate::structure::Structure;

/// How a book counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How far the watermark stays behind the newest event time, in milliseconds.
    pub delay_ms: i64,
    /// In the order of the book's list; windows name them by place.
    pub rollups: Vec<Rollup>,
    /// The chapters, for rollups by chapter.
    pub structure: Arc<Structure>,
}

impl Plan {
    /// The plan of a bounded input, whose clicks are all there: none is too late, and none moves the
    /// watermark.
    #[must_use]
    pub fn bounded(self) -> Self {
        let rollups = self.rollups.into_iter().map(|rollup| Rollup {
            lateness_ms: i64::MAX,
            ..rollup
        });
        Self {
            delay_ms: i64::MAX,
            rollups: rollups.collect(),
            structure: self.structure,
        }
    }

    /// Into how many windows one click may fall.
    #[must_use]
    pub fn windows_per_click(&self) -> usize {
        let windows = self.rollups.iter().map(|r| r.window.windows_per_click());
        usize::try_from(windows.sum::<i64>()).unwrap_or(1).max(1)
    }

    /// The group that `rollup` counts `click` in, if it has one.
    fn group_of<'a>(&self, rollup: &Rollup, click: &'a Click) -> Option<Cow<'a, str>> {
        rollup.group_by.group_of(click, &self.structure)
    }
}

/// A click and its place in the book's log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Logged<'a> {
    /// Grows from click to click; gaps are allowed.
    pub seq: i64,
    /// What happened.
    pub click: &'a Click,
}

/// How far a book's event time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// One for the whole book, shared by all its groups and rollups.
    pub watermark: Watermark,
    /// Greatest event time seen, in milliseconds since the epoch.
    pub newest_event_ms: Option<i64>,
}

impl Progress {
    /// Where a book without clicks stands.
    pub const NONE: Self = Self {
        watermark: Watermark::MINUS_INFINITY,
        newest_event_ms: None,
    };

    /// Where it stands after a click at `event_ms`, dropped or not, has been seen. The watermark
    /// goes by the newest of all: the delay may have become less since that came.
    pub(crate) fn after(self, event_ms: i64, delay_ms: i64) -> Self {
        let newest_ms = self.newest_event_ms.map_or(event_ms, |n| n.max(event_ms));
        Self {
            watermark: self.watermark.after(newest_ms, delay_ms),
            newest_event_ms: Some(newest_ms),
        }
    }
}

/// Names one window of one group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WindowKey<'a> {
    /// First millisecond.
    pub start_ms: i64,
    /// First millisecond after it.
    pub end_ms: i64,
    /// Place of the rollup in [`Plan::rollups`].
    pub rollup: u16,
    /// The group within the rollup.
    pub group: Cow<'a, str>,
}

impl<'a> WindowKey<'a> {
    /// The window of `group` at `bounds`.
    #[must_use]
    pub fn new(rollup: u16, bounds: Bounds, group: Cow<'a, str>) -> Self {
        Self {
            start_ms: bounds.start_ms,
            end_ms: bounds.end_ms,
            rollup,
            group,
        }
    }

    /// When it is.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds {
            start_ms: self.start_ms,
            end_ms: self.end_ms,
        }
    }
}

/// What is known of one window of one group.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    /// Whether its on-time value was emitted.
    pub fired: bool,
    /// The clicks so far, folded.
    pub state: State,
}

/// The windows that a batch works on, in no order; one may be there twice.
pub type Windows<'a> = Vec<(WindowKey<'a>, Window)>;

/// How one click was judged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The watermark that it was judged against.
    pub watermark_before: Watermark,
    /// Over all rollups.
    pub status: Status,
    /// The windows that it came too late for, when it was counted in others.
    pub missed: Vec<MissedWindow>,
}

/// How a click fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// No window that it was counted in had ended.
    OnTime,
    /// Counted, in a window that had ended.
    Late,
    /// Counted nowhere, for being too late everywhere.
    Dropped,
}

/// A window that a click came too late for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissedWindow {
    /// Place of the rollup in [`Plan::rollups`].
    pub rollup: u16,
    /// When it is.
    pub bounds: Bounds,
}

/// Why a window's value is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pane {
    /// A window that had fired was counted again.
    Late,
    /// It fired.
    OnTime,
    /// It changed and has not fired.
    Early,
}

/// One window that a batch changed, as it is now.
#[derive(Clone, PartialEq, Debug)]
pub struct Changed<'a> {
    /// Why its value is told.
    pub pane: Pane,
    /// Which one.
    pub key: WindowKey<'a>,
    /// What it is now.
    pub window: Window,
    /// The sessions of the table that it was merged from, by start: their rows go, and readers who
    /// were shown them delete them.
    pub replaces: Vec<Bounds>,
}

/// What a batch did.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome<'a> {
    /// One for each click, in order.
    pub verdicts: Vec<Verdict>,
    /// Where event time stands now.
    pub progress: Progress,
    /// Every window that is different now, by pane, start, end, rollup, group: the order of
    /// emission.
    pub changed: Vec<Changed<'a>>,
}
