//! The event-time engine: how clicks become window values.
//!
//! **Promises.** The same clicks in the same order give the same statuses, values and watermark,
//! whichever way they are cut into batches; only emissions are condensed to one for each window
//! and group of a batch.
//!
//! **Never** reads a clock, a database or a socket, and spawns nothing: state and clicks go in,
//! an [`Outcome`] comes out. The same functions count the live stream, a replay and a batch.
//!
//! **Called by** `ingest::commit`, in two steps, since windows live in Postgres: [`reach`] says
//! which windows a batch needs, the caller loads them, [`apply()`] folds the clicks into them.
//!
//! Where a new kind of window goes: [`window`]. A new aggregate: a file beside
//! [`aggregate::count`] and a line in [`aggregate`].

pub mod aggregate;
mod apply;
mod watermark;
pub mod window;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod property_tests;

use std::borrow::Cow;
use std::collections::HashMap;

pub use apply::{apply, close, reach};
pub use watermark::Watermark;

use crate::engine::aggregate::State;
use crate::rollup::Rollup;

/// How a book counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How far the watermark stays behind the newest event time, in milliseconds.
    pub delay_ms: i64,
    /// In the order of the book's list; windows name them by place.
    pub rollups: Vec<Rollup>,
}

/// How far a book's event time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// One for the whole book, shared by all its groups and rollups.
    pub watermark: Watermark,
    /// Greatest event time seen, in milliseconds since the epoch.
    pub newest_event_ms: Option<i64>,
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

/// What is known of one window of one group.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    /// Whether its on-time value was emitted.
    pub fired: bool,
    /// The clicks so far, folded.
    pub state: State,
}

/// The windows that a batch works on.
pub type Windows<'a> = HashMap<WindowKey<'a>, Window>;

/// What a batch needs from the table of windows.
#[derive(Debug)]
pub struct Reach<'a> {
    /// The windows that its clicks fall into, each once.
    pub touched: Vec<WindowKey<'a>>,
    /// And every window not yet fired that ends at or before this.
    pub due: Watermark,
}

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
    /// First millisecond.
    pub start_ms: i64,
    /// First millisecond after it.
    pub end_ms: i64,
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
