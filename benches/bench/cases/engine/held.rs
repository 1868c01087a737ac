//! Windows held in memory, in place of a table.

use std::collections::{BTreeMap, HashMap};

use pagetide::engine::aggregate::Value;
use pagetide::engine::{Changed, Reach, Window, WindowKey, Windows};
use pagetide::rollup::WindowSpec;

use super::Counts;
use crate::Error;

/// All windows of a book with one rollup.
pub(super) struct Held<'a> {
    of_sessions: bool,
    /// Tumbling and sliding windows that have not fired, by end.
    unfired: BTreeMap<i64, Windows<'a>>,
    fired: Windows<'a>,
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
            fired: HashMap::new(),
            sessions: HashMap::new(),
            to_fire: BTreeMap::new(),
        }
    }

    /// What a batch needs, taken out: all of it changes, and is put back.
    pub(super) fn take(&mut self, reach: &Reach<'a>) -> Windows<'a> {
        let mut taken = Windows::with_capacity(reach.touched.len());
        for key in &reach.touched {
            let unfired = self.unfired.get_mut(&key.end_ms);
            let window = match unfired {
                Some(windows) => windows.remove_entry(key),
                None => self.fired.remove_entry(key),
            };
            taken.extend(window);
        }
        while let Some(first) = self.unfired.first_entry()
            && reach.due.ended(*first.key())
        {
            taken.extend(first.remove());
        }
        for span in &reach.spans {
            let Some(sessions) = self.sessions.get_mut(&*span.group) else {
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
            } else if window.fired {
                self.fired.insert(key, window);
            } else {
                let unfired = self.unfired.entry(key.end_ms).or_default();
                unfired.insert(key, window);
            }
        }
    }

    /// What was counted.
    pub(super) fn counts(self) -> Result<Counts, Error> {
        let unfired = self.unfired.into_values().flatten();
        let sessions = self.sessions.into_values().flat_map(BTreeMap::into_values);
        let all = unfired.chain(self.fired).chain(sessions);
        all.map(|(key, window)| match window.state.value() {
            Value::Integer(count) => {
                Ok(((key.start_ms, key.end_ms, key.group.into_owned()), count))
            }
            other => Err(format!("{other} is no count").into()),
        })
        .collect()
    }
}
