//! Frames: the messages of a book's event stream, as they are minted and stored.
//!
//! A frame is written in the transaction that it tells of, and its bytes are sent as they are. In the
//! older half of a large buffer neighbours are merged later (`buffer`, by the rule of `merge`): the
//! bytes of a position then say more than they did, and other positions are gone. Nothing here knows
//! how a stream is served.

mod buffer;
mod merge;
mod progress;
mod store;

#[cfg(test)]
mod buffer_tests;
#[cfg(test)]
mod merge_laws;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod testing;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::book::Totals;
use crate::book::hot::LockedBook;
use crate::book::notes::Note;
use crate::engine::aggregate::Value;
use crate::engine::{Changed, Pane, Watermark};
use crate::rollup::Rollup;
use crate::structure::Chapter;
use crate::time::Timestamp;

pub use buffer::{Pruned, Pruning, is_due, prune};
pub use progress::{forget, mint_progress};
pub use store::{Columns, store};

/// Most bytes of a frame's data.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// Most groups of a pane that had to be cut.
const TRUNCATED_GROUPS: usize = 200;

/// A frame that a transaction mints.
#[derive(Clone, PartialEq, Debug)]
pub struct NewFrame {
    /// Which book.
    pub book: Uuid,
    /// Grows by one with each frame of the book.
    pub position: i64,
    /// Its name on the stream.
    pub event: &'static str,
    /// One line of JSON.
    pub data: String,
}

/// What a commit left of a book: enough to tell its readers without reading it again.
#[derive(Clone, PartialEq, Debug)]
pub struct News {
    /// Which book.
    pub book: Uuid,
    /// Its newest position before.
    pub before: i64,
    /// Its newest position now.
    pub position: i64,
    /// One more than the highest position that was pruned away.
    pub oldest: i64,
    /// Its revision.
    pub revision: i64,
    /// Version of its chapters.
    pub structure_version: i64,
    /// How far event time has come.
    pub watermark: Watermark,
    /// Whether its input has ended.
    pub closed: bool,
    /// All frames after `before`, in order.
    pub frames: Vec<NewFrame>,
}

impl News {
    /// What is told of `book`, as a commit leaves it that minted `frames`.
    #[must_use]
    pub fn of(book: &LockedBook, frames: Vec<NewFrame>) -> Self {
        Self {
            book: book.id,
            before: book.locked_at,
            position: book.position,
            oldest: book.oldest,
            revision: book.revision,
            structure_version: book.structure_version,
            watermark: book.progress.watermark,
            closed: book.closed,
            frames,
        }
    }
}

/// What every frame says about the moment at which it was minted.
#[derive(Clone, Copy, Serialize)]
struct Stamp {
    #[serde(rename = "type")]
    event: &'static str,
    book: Uuid,
    position: i64,
    at: Timestamp,
    revision: i64,
    structure_version: i64,
}

/// Mints a frame: gives it the book's next position and stamps it.
fn mint(
    book: &mut LockedBook,
    now: Timestamp,
    event: &'static str,
    data: impl FnOnce(Stamp) -> Result<String, serde_json::Error>,
) -> Result<NewFrame, serde_json::Error> {
    book.position += 1;
    let stamp = Stamp {
        event,
        book: book.id,
        position: book.position,
        at: now,
        revision: book.revision,
        structure_version: book.structure_version,
    };
    Ok(NewFrame {
        book: book.id,
        position: book.position,
        event,
        data: data(stamp)?,
    })
}

#[derive(Serialize)]
struct Counts<'a> {
    #[serde(flatten)]
    stamp: Stamp,
    watermark: Option<Timestamp>,
    totals: Totals,
    panes: &'a [Box<RawValue>],
}

#[derive(Serialize)]
struct PaneBody<'a> {
    rollup: &'a str,
    start: Timestamp,
    end: Timestamp,
    pane: Kind,
    values: BTreeMap<&'a str, Value>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    replaces: &'a [Replaced<'a>],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// Why a pane's values are told, as frames say it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Late,
    OnTime,
    Early,
}

impl From<Pane> for Kind {
    fn from(pane: Pane) -> Self {
        match pane {
            Pane::Late => Self::Late,
            Pane::OnTime => Self::OnTime,
            Pane::Early => Self::Early,
        }
    }
}

/// A session that went into another, under the bounds that readers were shown it by.
#[derive(Clone, Copy, Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Replaced<'a> {
    start: Timestamp,
    end: Timestamp,
    group: &'a str,
}

/// Mints the frames that tell of a commit's changes: one, or several where one would pass
/// [`MAX_FRAME_BYTES`]. `book` is as the commit leaves it, but for its position.
///
/// # Errors
/// The changes cannot be written as JSON.
pub fn mint_counts(
    book: &mut LockedBook,
    now: Timestamp,
    rollups: &[Rollup],
    changed: &[Changed<'_>],
) -> Result<Vec<NewFrame>, serde_json::Error> {
    // What a frame holds besides its panes is far below this.
    const ROOM: usize = MAX_FRAME_BYTES - 4096;
    let mut frames = Vec::new();
    let mut panes: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    for groups in changed.chunk_by(same_pane) {
        let pane = pane_within(groups, rollups, ROOM)?;
        if !panes.is_empty() && bytes + pane.get().len() > ROOM {
            frames.push(counts_frame(book, now, &panes)?);
            panes.clear();
            bytes = 0;
        }
        bytes += pane.get().len() + 1;
        panes.push(pane);
    }
    frames.push(counts_frame(book, now, &panes)?);
    Ok(frames)
}

fn counts_frame(
    book: &mut LockedBook,
    now: Timestamp,
    panes: &[Box<RawValue>],
) -> Result<NewFrame, serde_json::Error> {
    let watermark = book.progress.watermark.shown();
    let totals = book.totals;
    mint(book, now, "counts", |stamp| {
        serde_json::to_string(&Counts {
            stamp,
            watermark,
            totals,
            panes,
        })
    })
}

fn same_pane(a: &Changed<'_>, b: &Changed<'_>) -> bool {
    let bounds = |c: &Changed<'_>| (c.pane, c.key.start_ms, c.key.end_ms, c.key.rollup);
    bounds(a) == bounds(b)
}

/// The changed groups of one window as JSON; where they do not fit into `room` bytes, only the
/// greatest, and fewer of them until they do; and where one alone does not, for all that it
/// replaces, only some of that.
fn pane_within(
    groups: &[Changed<'_>],
    rollups: &[Rollup],
    room: usize,
) -> Result<Box<RawValue>, serde_json::Error> {
    let mut groups: Vec<&Changed<'_>> = groups.iter().collect();
    let mut replaces = replaced(&groups);
    let mut pane = pane_json(&groups, &replaces, rollups, false)?;
    let mut most = TRUNCATED_GROUPS;
    while pane.get().len() > room && groups.len() > 1 {
        groups.sort_by_cached_key(|c| std::cmp::Reverse(c.window.state.weight()));
        groups.truncate(most.min(groups.len() - 1));
        most = (most / 2).max(1);
        replaces = replaced(&groups);
        pane = pane_json(&groups, &replaces, rollups, true)?;
    }
    while pane.get().len() > room && !replaces.is_empty() {
        replaces.truncate(replaces.len() / 2);
        pane = pane_json(&groups, &replaces, rollups, true)?;
    }
    Ok(pane)
}

/// What the groups replace, in the order of a pane.
fn replaced<'a>(groups: &[&'a Changed<'_>]) -> Vec<Replaced<'a>> {
    let all = groups.iter();
    let mut replaced: Vec<Replaced<'a>> = all
        .flat_map(|changed| {
            let parts = changed.replaces.iter();
            parts.map(|bounds| Replaced {
                start: Timestamp::saturating_from_millis(bounds.start_ms),
                end: Timestamp::saturating_from_millis(bounds.end_ms),
                group: &changed.key.group,
            })
        })
        .collect();
    replaced.sort_unstable();
    replaced
}

/// `groups` are of one window and not empty.
fn pane_json(
    groups: &[&Changed<'_>],
    replaces: &[Replaced<'_>],
    rollups: &[Rollup],
    truncated: bool,
) -> Result<Box<RawValue>, serde_json::Error> {
    let Changed { pane, key, .. } = groups[0];
    serde_json::value::to_raw_value(&PaneBody {
        rollup: &rollups[usize::from(key.rollup)].name,
        start: Timestamp::saturating_from_millis(key.start_ms),
        end: Timestamp::saturating_from_millis(key.end_ms),
        pane: (*pane).into(),
        values: groups
            .iter()
            .map(|c| (&*c.key.group, c.window.state.value()))
            .collect(),
        replaces,
        truncated,
    })
}

/// Mints a `status` frame: the book was closed or reopened, or its settings were changed.
///
/// # Errors
/// It cannot be written as JSON.
pub fn mint_status(
    book: &mut LockedBook,
    now: Timestamp,
    reason: &'static str,
) -> Result<NewFrame, serde_json::Error> {
    #[derive(Serialize)]
    struct StatusBody {
        #[serde(flatten)]
        stamp: Stamp,
        status: &'static str,
        reason: &'static str,
    }
    let status = if book.closed { "closed" } else { "live" };
    mint(book, now, "status", |stamp| {
        serde_json::to_string(&StatusBody {
            stamp,
            status,
            reason,
        })
    })
}

/// Mints a `chapter` frame: the chapters were changed.
///
/// # Errors
/// It cannot be written as JSON.
pub fn mint_chapters(
    book: &mut LockedBook,
    now: Timestamp,
    chapters: &[Chapter],
) -> Result<NewFrame, serde_json::Error> {
    #[derive(Serialize)]
    struct ChaptersBody<'a> {
        #[serde(flatten)]
        stamp: Stamp,
        chapters: &'a [Chapter],
    }
    mint(book, now, "chapter", |stamp| {
        serde_json::to_string(&ChaptersBody { stamp, chapters })
    })
}

/// Mints a `note` frame: a note was added, changed or `removed`.
///
/// # Errors
/// It cannot be written as JSON.
pub fn mint_note(
    book: &mut LockedBook,
    now: Timestamp,
    note: &Note,
    removed: bool,
) -> Result<NewFrame, serde_json::Error> {
    #[derive(Serialize)]
    struct NoteBody<'a> {
        #[serde(flatten)]
        stamp: Stamp,
        note: &'a Note,
        removed: bool,
    }
    mint(book, now, "note", |stamp| {
        serde_json::to_string(&NoteBody {
            stamp,
            note,
            removed,
        })
    })
}
