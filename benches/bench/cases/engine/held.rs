//! Windows held in memory, in place of a table.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use pagetide::engine::aggregate::Value;
use pagetide::engine::{Bounds, Changed, Reach, Window, WindowKey, Windows};
use pagetide::rollup::WindowSpec;

use super::Counts;
use crate::Error;

/// The windows at the same bounds, by group.
type Groups<'a> = HashMap<Cow<'a, str>, Window>;

/// By end, as they are due.
fn by_end(bounds: Bounds) -> (i64, i64) {
    (bounds.end_ms, bounds.start_ms)
}

fn key(place: (i64, i64), group: Cow<'_, str>) -> WindowKey<'_> {
    let bounds = Bounds {
        start_ms: place.1,
        end_ms: place.0,
    };
    WindowKey::new(0, bounds, group)
}

/// All windows of a book with one rollup.
pub(super) struct Held<'a> {
    of_sessions: bool,
    /// Tumbling and sliding windows that have not fired, by end and start.
    unfired: BTreeMap<(i64, i64), Groups<'a>>,
    fired: BTreeMap<(i64, i64), Groups<'a>>,
    /// Sessions, by group and start.
    sessions: HashMap<String, BTreeMap<i64, (WindowKey<'a>, Window)>>,
    /// The sessions that had not fired when they were put, by end. Since then they may have gone
    /// into others.
    to_fire: BTreeMap<i64, Vec<WindowKey<'a>>>,
}

impl<'a> Held<'a> {
    /// None, of this kind.
    pub(super) fn new(window: WindowSpec) -> Self {
        Self {
            of_sessions: matches!(window, WindowSpec::Session { .. }),
            unfired: BTreeMap::new(),
            fired: BTreeMap::new(),
            sessions: HashMap::new(),
            to_fire: BTreeMap::new(),
        }
    }

    /// What a batch needs, taken out: all of it changes, and is put back.
    pub(super) fn take(&mut self, reach: &Reach<'a>) -> Windows<'a> {
        let mut taken = Windows::new();
        for touched in reach.touched() {
            let place = by_end(touched.bounds);
            for windows in [&mut self.unfired, &mut self.fired] {
                let windows = windows.get_mut(&place);
                let window = windows.and_then(|groups| groups.remove_entry(touched.group));
                taken.extend(window.map(|(group, window)| (key(place, group), window)));
            }
        }
        while let Some(first) = self.unfired.first_entry()
            && reach.due.ended(first.key().0)
        {
            let (place, groups) = first.remove_entry();
            let groups = groups.into_iter();
            taken.extend(groups.map(|(group, window)| (key(place, group), window)));
        }
        for span in reach.spans() {
            let Some(sessions) = self.sessions.get_mut(span.group) else {
                continue;
            };
            // They do not overlap one another, so the later ones end later.
            while let Some(last) = sessions.range(..span.bounds.end_ms).next_back()
                && last.1.0.end_ms > span.bounds.start_ms
            {
                let start = *last.0;
                taken.extend(sessions.remove(&start));
            }
        }
        while let Some(first) = self.to_fire.first_entry()
            && reach.due.ended(*first.key())
        {
            for key in first.remove() {
                if let Some(sessions) = self.sessions.get_mut(&*key.group)
                    && sessions.get(&key.start_ms).is_some_and(|s| s.0 == key)
                {
                    taken.extend(sessions.remove(&key.start_ms));
                }
            }
        }
        taken
    }

    /// Puts what a batch has changed.
    pub(super) fn put(&mut self, changed: Vec<Changed<'a>>) {
        for Changed { key, window, .. } in changed {
            if self.of_sessions {
                if !window.fired {
                    let to_fire = self.to_fire.entry(key.end_ms).or_default();
                    to_fire.push(key.clone());
                }
                if !self.sessions.contains_key(&*key.group) {
                    let group = key.group.clone().into_owned();
                    self.sessions.insert(group, BTreeMap::new());
                }
                if let Some(sessions) = self.sessions.get_mut(&*key.group) {
                    sessions.insert(key.start_ms, (key, window));
                }
            } else {
                let windows = if window.fired {
                    &mut self.fired
                } else {
                    &mut self.unfired
                };
                let groups = windows.entry(by_end(key.bounds())).or_default();
                groups.insert(key.group, window);
            }
        }
    }

    /// What was counted.
    pub(super) fn counts(self) -> Result<Counts, Error> {
        let aligned = self.unfired.into_iter().chain(self.fired);
        let aligned = aligned.flat_map(|(place, groups)| {
            let groups = groups.into_iter();
            groups.map(move |(group, window)| (key(place, group), window))
        });
        let sessions = self.sessions.into_values().flat_map(BTreeMap::into_values);
        let all = aligned.chain(sessions);
        all.map(|(key, window)| match window.state.value() {
            Value::Integer(count) => {
                Ok(((key.start_ms, key.end_ms, key.group.into_owned()), count))
            }
            other => Err(format!("{other} is no count").into()),
        })
        .collect()
    }
}
