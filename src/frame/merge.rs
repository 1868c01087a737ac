//! Merging: what neighbouring `counts` frames of one quarter of a second say, in one frame.
//!
//! **Promise.** Whoever applies the merged frame knows afterwards what applying the frames that went
//! into it one by one teaches, wherever between them he stood: a window that was told has its newest
//! value, a session that was replaced is named, and what was cut stays marked as cut. Only how often
//! a value changed within the quarter is lost, and the positions before the last.
//!
//! Pure: frames go in, in the form in which they are stored, and come out in it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::Kind;
use crate::time::Timestamp;

/// Frames of this stretch of time become one.
const STRETCH_MS: i64 = 250;

/// A stamp may be this many stretches before that of an earlier frame and count as no earlier:
/// positions are the order of commits, so the clock of the process that minted it is behind.
const CLOCKS_APART: i64 = 4;

/// A frame as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    pub(super) position: i64,
    pub(super) event: String,
    pub(super) data: String,
}

/// What became of a run of neighbours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Merged {
    /// The position of the first of them.
    pub(super) first: i64,
    /// That of the last, which the merged frame has; no other of them is left.
    pub(super) position: i64,
    pub(super) data: String,
}

/// Merges what can be merged of `frames`, neighbours in order of position; what is not in the answer
/// stays as it is. `rollups` are the names of the book's rollups in their order. A merged frame has
/// at most `most` bytes.
pub(super) fn merge(frames: &[Stored], rollups: &[&str], most: usize) -> Vec<Merged> {
    let mut merged = Vec::new();
    for run in runs(frames) {
        merge_run(run, rollups, most, &mut merged);
    }
    merged
}

/// The longest runs of neighbours that may be merged, without those of one frame.
fn runs(frames: &[Stored]) -> Vec<&[Stored]> {
    let mut runs = Vec::new();
    let mut first = 0;
    let mut stretch = None;
    for (place, frame) in frames.iter().enumerate() {
        let next = stretch_of(frame);
        if let (Some(of_run), Some(next)) = (stretch, next)
            && (of_run - CLOCKS_APART..=of_run).contains(&next)
        {
            continue;
        }
        runs.push(&frames[first..place]);
        (first, stretch) = (place, next);
    }
    runs.push(&frames[first..]);
    runs.retain(|run| run.len() > 1);
    runs
}

/// In which stretch of time a frame was minted, if it is one that can be merged.
fn stretch_of(frame: &Stored) -> Option<i64> {
    #[derive(Deserialize)]
    struct Minted<'a> {
        at: &'a str,
    }
    if frame.event != "counts" {
        return None;
    }
    let minted: Minted<'_> = serde_json::from_str(&frame.data).ok()?;
    let at = Timestamp::parse_rfc3339(minted.at).ok()?;
    Some(at.millis().div_euclid(STRETCH_MS))
}

/// Merges a run into one frame, or into several where one would be too large.
fn merge_run(run: &[Stored], rollups: &[&str], most: usize, merged: &mut Vec<Merged>) {
    let [first, .., last] = run else { return };
    // Nothing that this program minted is in another form; it stays if it is.
    let Some(data) = into_one(run, rollups) else {
        return;
    };
    if data.len() <= most {
        merged.push(Merged {
            first: first.position,
            position: last.position,
            data,
        });
        return;
    }
    let (older, newer) = run.split_at(run.len() / 2);
    merge_run(older, rollups, most, merged);
    merge_run(newer, rollups, most, merged);
}

fn into_one<'a>(run: &'a [Stored], rollups: &'a [&'a str]) -> Option<String> {
    let mut told = Told::new(rollups);
    let mut newest = None;
    for frame in run {
        let mut frame: Counts<'_> = serde_json::from_str(&frame.data).ok()?;
        told.take(std::mem::take(&mut frame.panes))?;
        newest = Some(frame);
    }
    let merged = Counts {
        panes: told.into_panes(),
        ..newest?
    };
    serde_json::to_string(&merged).ok()
}

/// The data of a `counts` frame; what need not be understood stays as it is written.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Counts<'a> {
    #[serde(rename = "type")]
    event: &'a str,
    #[serde(borrow)]
    book: &'a RawValue,
    #[serde(borrow)]
    position: &'a RawValue,
    at: &'a str,
    #[serde(borrow)]
    revision: &'a RawValue,
    #[serde(borrow)]
    structure_version: &'a RawValue,
    #[serde(borrow)]
    watermark: &'a RawValue,
    #[serde(borrow)]
    totals: &'a RawValue,
    #[serde(borrow)]
    panes: Vec<Pane<'a>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Pane<'a> {
    rollup: &'a str,
    start: &'a str,
    end: &'a str,
    #[serde(rename = "pane")]
    kind: Kind,
    #[serde(borrow)]
    values: Values<'a>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    replaces: Vec<Replaced<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// Values by group, in the order in which they stand.
struct Values<'a>(Vec<(Group<'a>, &'a RawValue)>);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(group, value)| (group, value)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Values<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Values<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("values by group")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Values<'de>, M::Error> {
                let mut values = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    values.push(entry);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[derive(Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(deny_unknown_fields)]
struct Replaced<'a> {
    start: &'a str,
    end: &'a str,
    #[serde(borrow)]
    group: Group<'a>,
}

/// Borrowed where its text has nothing escaped.
#[derive(Deserialize, Serialize, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Group<'a>(#[serde(borrow)] Cow<'a, str>);

/// Start and end; as text they are in the order of time.
type Bounds<'a> = (&'a str, &'a str);

/// A window: its bounds, and the place of its rollup.
type Window<'a> = (Bounds<'a>, usize);

/// What frames have told so far.
struct Told<'a> {
    rollups: &'a [&'a str],
    windows: HashMap<Window<'a>, Groups<'a>>,
}

#[derive(Default)]
struct Groups<'a> {
    values: HashMap<Group<'a>, Newest<'a>>,
    /// A pane of the window was cut; of which kind the last such pane was.
    cut: Option<Kind>,
}

/// What is known of one group of a window.
struct Newest<'a> {
    kind: Kind,
    value: &'a RawValue,
    /// The sessions that went into it, and those that had gone into them.
    replaces: BTreeSet<Bounds<'a>>,
}

impl<'a> Told<'a> {
    fn new(rollups: &'a [&'a str]) -> Self {
        Self {
            rollups,
            windows: HashMap::new(),
        }
    }

    /// Takes in the next frame as a reader does: first what is replaced goes, then values are set.
    /// `None` if it is not as frames are.
    fn take(&mut self, panes: Vec<Pane<'a>>) -> Option<()> {
        let mut heirs = Vec::new();
        for pane in &panes {
            let window = self.window(pane)?;
            for gone in &pane.replaces {
                let bounds = (gone.start, gone.end);
                let was = self.windows.get_mut(&(bounds, window.1));
                let was = was.and_then(|groups| groups.values.remove(&gone.group));
                let mut replaces = was.map(|was| was.replaces).unwrap_or_default();
                replaces.insert(bounds);
                heirs.push((window, gone.group.clone(), replaces));
            }
        }
        for pane in panes {
            let window = self.window(&pane)?;
            let groups = self.windows.entry(window).or_default();
            for (group, value) in pane.values.0 {
                groups.set(group, pane.kind, value);
            }
            if pane.truncated {
                groups.cut = Some(pane.kind);
            }
        }
        for (window, group, replaces) in heirs {
            // Whatever replaces a session is told by the same pane.
            let heir = self.windows.get_mut(&window)?.values.get_mut(&group)?;
            heir.replaces.extend(replaces);
        }
        Some(())
    }

    fn window(&self, pane: &Pane<'a>) -> Option<Window<'a>> {
        let place = self.rollups.iter().position(|name| *name == pane.rollup)?;
        Some(((pane.start, pane.end), place))
    }

    /// All of it, in the order of a frame's panes.
    fn into_panes(self) -> Vec<Pane<'a>> {
        let still_told = self.replaced_and_told();
        let mut windows: Vec<(Window<'a>, Groups<'a>)> = self.windows.into_iter().collect();
        windows.sort_unstable_by_key(|(window, _)| *window);
        let mut panes: Vec<Pane<'a>> = Vec::with_capacity(windows.len());
        for (((start, end), place), groups) in windows {
            let empty = |kind: Kind| Pane {
                rollup: self.rollups[place],
                start,
                end,
                kind,
                values: Values(Vec::new()),
                replaces: Vec::new(),
                truncated: groups.cut.is_some(),
            };
            let of_window = panes.len();
            if let (Some(kind), true) = (groups.cut, groups.values.is_empty()) {
                panes.push(empty(kind));
            }
            let mut values: Vec<(Group<'a>, Newest<'a>)> = groups.values.into_iter().collect();
            values.sort_unstable_by(|(a, newest_a), (b, newest_b)| {
                (newest_a.kind, a).cmp(&(newest_b.kind, b))
            });
            for (group, newest) in values {
                if panes[of_window..].last().map(|pane| pane.kind) != Some(newest.kind) {
                    panes.push(empty(newest.kind));
                }
                let Some(pane) = panes.last_mut() else { break };
                let gone = newest.replaces.into_iter();
                let gone = gone.filter(|bounds| {
                    still_told.is_empty()
                        || !still_told.contains(&((*bounds, place), group.clone()))
                });
                pane.replaces.extend(gone.map(|(start, end)| Replaced {
                    start,
                    end,
                    group: group.clone(),
                }));
                pane.values.0.push((group, newest.value));
            }
        }
        for pane in &mut panes {
            pane.replaces.sort_unstable();
        }
        // Windows stay in their order within each kind.
        panes.sort_by_key(|pane| pane.kind);
        panes
    }

    /// What was replaced and told again after that: a reader must not delete it.
    fn replaced_and_told(&self) -> HashSet<(Window<'a>, Group<'a>)> {
        let mut both = HashSet::new();
        for ((_, place), groups) in &self.windows {
            for (group, newest) in &groups.values {
                for bounds in &newest.replaces {
                    let window = (*bounds, *place);
                    let again = self.windows.get(&window);
                    if again.is_some_and(|groups| groups.values.contains_key(group)) {
                        both.insert((window, group.clone()));
                    }
                }
            }
        }
        both
    }
}

impl<'a> Groups<'a> {
    /// The newer value holds; what fired for the first time is told as that.
    fn set(&mut self, group: Group<'a>, kind: Kind, value: &'a RawValue) {
        let newest = self.values.entry(group).or_insert_with(|| Newest {
            kind,
            value,
            replaces: BTreeSet::new(),
        });
        newest.value = value;
        if newest.kind != Kind::OnTime {
            newest.kind = kind;
        }
    }
}
