//! The event-time engine as clients meet it: over HTTP, through restarts, idleness and the ends of
//! time.

mod cases;
mod extremes;
mod golden_http;
mod idleness;
mod idleness_apart;
mod live_settings;
mod numbers;
mod restart;
mod rollups;
mod touch;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::Api;
use crate::harness::sse::Event;

/// A moment as answers show it, in milliseconds since the epoch.
pub(crate) fn ms(time: &Value) -> i64 {
    let text = time.as_str().unwrap_or_else(|| panic!("no time: {time}"));
    let parsed = chrono::DateTime::parse_from_rfc3339(text).unwrap();
    parsed.timestamp_millis()
}

/// The time of day, in milliseconds since the epoch.
fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// First and last millisecond of the years 0001 to 9999.
const MIN: i64 = -62_135_596_800_000;
const MAX: i64 = 253_402_300_799_999;
/// The longest that anything may last.
const SPAN: i64 = MAX - MIN;
const DAY: i64 = 86_400_000;

/// The clicks of a page, without what comes between.
fn clicks(times: &[i64]) -> Value {
    let clicks = times.iter().map(|at| json!({"page": "/a", "at": at}));
    clicks.collect()
}

/// Numbers that look random and are the same in every run: `SplitMix64`.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number from 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % bound as u64).unwrap()
    }
}

/// Rollup, start, end, group.
pub(crate) type Key = (String, i64, i64, String);

/// A rollup of counts by page.
pub(crate) fn by_page(name: &str, window: Value) -> Value {
    json!({"name": name, "group_by": "page", "aggregate": "count", "window": window})
}

pub(crate) fn tumbling(size_ms: i64) -> Value {
    json!({"kind": "tumbling", "size_ms": size_ms})
}

pub(crate) fn sliding(size_ms: i64, slide_ms: i64) -> Value {
    json!({"kind": "sliding", "size_ms": size_ms, "slide_ms": slide_ms})
}

pub(crate) fn session(gap_ms: i64) -> Value {
    json!({"kind": "session", "gap_ms": gap_ms})
}

fn key(rollup: &str, window: &Value, group: &str) -> Key {
    let (start, end) = (ms(&window["start"]), ms(&window["end"]));
    (rollup.to_owned(), start, end, group.to_owned())
}

/// All windows of a rollup, with value and state, as `GET …/counts` shows them.
pub(crate) async fn counted(api: &Api, book: &str, rollup: &str) -> BTreeMap<Key, (Value, String)> {
    let items = api.counts(book, rollup).await;
    let counts = items.iter().map(|item| {
        let state = item["state"].as_str().unwrap().to_owned();
        let key = key(rollup, item, item["group"].as_str().unwrap());
        (key, (item["value"].clone(), state))
    });
    counts.collect()
}

/// All windows, with value and state, as a snapshot shows them.
pub(crate) async fn in_snapshot(api: &Api, book: &str) -> BTreeMap<Key, (Value, String)> {
    // With all that is closed.
    let path = format!("/v1/books/{book}/snapshot?since=-62135596800000");
    let snapshot = api.get(&path).await.expect(200);
    let mut found = BTreeMap::new();
    for window in snapshot["windows"].as_array().unwrap() {
        assert_eq!(window.get("truncated"), None);
        let rollup = window["rollup"].as_str().unwrap();
        let state = window["state"].as_str().unwrap();
        for (group, value) in window["values"].as_object().unwrap() {
            let told = (value.clone(), state.to_owned());
            assert_eq!(found.insert(key(rollup, window, group), told), None);
        }
    }
    found
}

/// A window that fired or was corrected.
struct Emission {
    key: Key,
    value: Value,
    pane: String,
    /// Bounds of what it replaces and had fired.
    replaces: Vec<(i64, i64)>,
}

/// What a reader of the stream has been shown, from the first frame on: all panes, `replaces`
/// deleted first.
#[derive(Default)]
struct Shown {
    values: BTreeMap<Key, Value>,
    fired: BTreeSet<Key>,
}

impl Shown {
    /// Takes frames in, and gives what fired or was corrected.
    fn learn_all(&mut self, events: &[Event]) -> Vec<Emission> {
        let frames = events.iter().filter(|event| event.name == "counts");
        frames.flat_map(|event| self.learn(&event.data)).collect()
    }

    /// Takes a `counts` frame in, whose panes must be what they say.
    fn learn(&mut self, data: &Value) -> Vec<Emission> {
        let mut emissions = Vec::new();
        let (mut places, mut seen) = (Vec::new(), BTreeSet::new());
        for pane in data["panes"].as_array().unwrap() {
            let name = pane["pane"].as_str().unwrap();
            let place = ["late", "on_time", "early"].iter().position(|p| *p == name);
            places.push((place.unwrap(), ms(&pane["start"]), ms(&pane["end"])));
            assert_eq!(pane.get("truncated"), None, "{pane}");
            let rollup = pane["rollup"].as_str().unwrap();
            let mut fired_parts: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
            for part in pane["replaces"].as_array().into_iter().flatten() {
                let group = part["group"].as_str().unwrap();
                assert!(pane["values"].get(group).is_some(), "{pane}");
                let part = key(rollup, part, group);
                assert!(self.values.remove(&part).is_some(), "not shown: {pane}");
                if self.fired.remove(&part) {
                    fired_parts.entry(group).or_default().push((part.1, part.2));
                }
            }
            for (group, value) in pane["values"].as_object().unwrap() {
                let key = key(rollup, pane, group);
                let replaces = fired_parts.remove(&**group).unwrap_or_default();
                let had_fired = self.fired.contains(&key) || !replaces.is_empty();
                assert_eq!(name == "late", had_fired, "{key:?} in {data}");
                assert!(seen.insert(key.clone()), "{key:?} twice in {data}");
                self.values.insert(key.clone(), value.clone());
                if name != "early" {
                    self.fired.insert(key.clone());
                    emissions.push(Emission {
                        key,
                        value: value.clone(),
                        pane: name.to_owned(),
                        replaces,
                    });
                }
            }
        }
        assert!(places.is_sorted(), "the order of panes in {data}");
        emissions
    }

    /// Whoever followed the stream knows exactly what counts and snapshot show.
    async fn equals_counts_and_snapshot(&self, api: &Api, book: &str, rollups: &[&str]) {
        let mut all = BTreeMap::new();
        for rollup in rollups {
            all.extend(counted(api, book, rollup).await);
        }
        self.equals(&all, &format!("counts of {book}"));
        assert_eq!(in_snapshot(api, book).await, all, "snapshot of {book}");
    }

    /// The same, of the snapshot alone.
    async fn equals_snapshot(&self, api: &Api, book: &str) {
        let windows = in_snapshot(api, book).await;
        self.equals(&windows, &format!("snapshot of {book}"));
    }

    fn equals(&self, windows: &BTreeMap<Key, (Value, String)>, what: &str) {
        let values = windows.iter().map(|(k, (value, _))| (k, value));
        assert!(
            values.clone().eq(&self.values),
            "{what}: {:?}, but shown was {:?}",
            values.collect::<Vec<_>>(),
            self.values
        );
        let fired = windows.iter().filter(|(_, (_, state))| state != "open");
        assert!(fired.map(|(key, _)| key).eq(&self.fired), "{what}: fired");
    }
}
