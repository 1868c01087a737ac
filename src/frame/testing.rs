//! What the tests of frames share: a reader, a book's row, and a buffer that is no table.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use uuid::Uuid;

use super::NewFrame;
use super::merge::{Merged, Stored, merge};
use crate::book::hot::{Due, LockedBook, Version};
use crate::book::{Settings, SettingsPatch, Totals};
use crate::engine::testing::rollup;
use crate::engine::{Progress, Watermark};
use crate::rollup::{GroupBy, Rollup, WindowSpec};
use crate::time::Timestamp;

/// The names of a book's rollups, in their order.
pub(super) const ROLLUPS: [&str; 3] = ["z", "a", "s"];

/// A tumbling rollup and one of sessions, by page.
pub(super) fn two_rollups() -> Vec<Rollup> {
    let windows = [
        WindowSpec::Tumbling { size_ms: 10 },
        WindowSpec::Session { gap_ms: 7 },
    ];
    let rollups = windows.into_iter().zip(["z", "a"]);
    rollups
        .map(|(window, name)| Rollup {
            name: name.to_owned(),
            ..rollup(window, GroupBy::Page, 1000)
        })
        .collect()
}

/// A moment of the day on which the tests happen.
pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_772_366_400_000 + ms).unwrap()
}

pub(super) fn pane(rollup: &str, (start, end): (i64, i64), kind: &str, values: &Value) -> Value {
    json!({"rollup": rollup, "start": at(start), "end": at(end), "pane": kind, "values": values})
}

/// A frame that was minted then.
pub(super) fn frame(position: i64, ms: i64, panes: &Value) -> Stored {
    let data = json!({
        "type": "counts", "book": "b", "position": position, "at": at(ms), "revision": 10 + position,
        "structure_version": 0, "watermark": at(ms - 2000), "totals": {"received": position},
        "panes": panes,
    });
    Stored {
        position,
        event: "counts".to_owned(),
        data: data.to_string(),
    }
}

/// A frame as a reader gets it, its panes apart.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Read {
    pub(super) position: i64,
    event: String,
    data: Value,
    panes: Vec<Value>,
}

impl Read {
    pub(super) fn all(frames: &[Stored]) -> Vec<Self> {
        frames.iter().map(Self::new).collect()
    }

    fn new(frame: &Stored) -> Self {
        let mut data: Value = serde_json::from_str(&frame.data).unwrap();
        assert_eq!(data["position"], frame.position);
        let panes = data.as_object_mut().unwrap().remove("panes").unwrap();
        Self {
            position: frame.position,
            event: frame.event.clone(),
            data,
            panes: panes.as_array().unwrap().clone(),
        }
    }
}

/// What a reader knows after some frames.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Reader<'a> {
    /// By rollup, start, end and group.
    pub(super) values: BTreeMap<[&'a str; 4], &'a Value>,
    /// The windows of which it was told that a pane was cut: rollup, start, end.
    pub(super) cut: BTreeSet<[&'a str; 3]>,
    /// The newest frame, without its panes.
    newest: Option<&'a Value>,
    /// Frames of other kinds.
    others: Vec<i64>,
}

impl<'a> Reader<'a> {
    /// Takes a frame in: what it replaces goes first, of the whole frame or of each pane.
    pub(super) fn learn(&mut self, frame: &'a Read, by_pane: bool) {
        if frame.event != "counts" {
            self.others.push(frame.position);
            return;
        }
        let at_once = if by_pane { 1 } else { frame.panes.len().max(1) };
        for panes in frame.panes.chunks(at_once) {
            for pane in panes {
                self.forget(pane);
            }
            for pane in panes {
                self.set(pane);
            }
        }
        self.newest = Some(&frame.data);
    }

    fn forget(&mut self, pane: &'a Value) {
        for gone in pane["replaces"].as_array().into_iter().flatten() {
            let [start, end, group] = ["start", "end", "group"].map(|name| text(gone, name));
            self.values
                .remove(&[text(pane, "rollup"), start, end, group]);
        }
    }

    fn set(&mut self, pane: &'a Value) {
        let window = ["rollup", "start", "end"].map(|name| text(pane, name));
        for (group, value) in pane["values"].as_object().unwrap() {
            let [rollup, start, end] = window;
            self.values.insert([rollup, start, end, group], value);
        }
        if pane["truncated"] == true {
            self.cut.insert(window);
        }
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

/// The row of a new book whose buffer holds so many frames.
pub(super) fn book(buffer_frames: i64) -> LockedBook {
    let patch = SettingsPatch {
        buffer_frames: Some(buffer_frames),
        ..SettingsPatch::default()
    };
    LockedBook {
        id: Uuid::from_u128(77),
        version: Version(1),
        closed: false,
        next_seq: 1,
        position: 0,
        locked_at: 0,
        oldest: 1,
        merged: 0,
        revision: 0,
        structure_version: 0,
        generation: 0,
        last_generation: 0,
        barrier: 0,
        live_run: None,
        recounting: false,
        clicks_removed_to_ms: None,
        progress: Progress::NONE,
        before_close: Watermark::MINUS_INFINITY,
        last_received_ms: None,
        due: Due::Unknown,
        totals: Totals::default(),
        title: String::new(),
        settings: Settings::new(patch, &[]),
        rollups: Vec::new(),
        origins: Vec::new(),
    }
}

/// A frame as it lies in the table.
pub(super) fn stored(frame: NewFrame) -> Stored {
    Stored {
        position: frame.position,
        event: frame.event.to_owned(),
        data: frame.data,
    }
}

/// Merges the frames from place `from` on, and does to the buffer what is done to the table.
pub(super) fn merge_in(
    buffer: &mut Vec<Stored>,
    places: std::ops::Range<usize>,
    rollups: &[&str],
    most: usize,
) -> usize {
    let before = buffer.len();
    for Merged {
        first,
        position,
        data,
    } in merge(&buffer[places], rollups, most)
    {
        buffer.retain(|frame| frame.position < first || frame.position >= position);
        let last = buffer.iter_mut().find(|frame| frame.position == position);
        last.unwrap().data = data;
    }
    before - buffer.len()
}
