//! Debounce: a reader who clicks a page again and again is counted once within a time that the book
//! sets.
//!
//! **Promises.** Judged in the order of the log, by event time, so any cut into transactions gives
//! the same; a click is remembered only once it is committed, so one that failed and is sent again
//! counts; a click that is in the log already is a duplicate, never filtered. Best effort beyond
//! one process: another one, or the next, does not know what this one remembers.
//!
//! **Called by** `commit::ledger`, within a transaction.

use std::collections::HashMap;
use std::sync::Arc;

use quick_cache::sync::Cache;
use uuid::Uuid;

use crate::book::Settings;
use crate::click::Click;

/// Most readers' pages that are remembered.
const CAPACITY: usize = 100_000;

/// What this process remembers: of each reader and page (and value) the newest event time counted.
///
/// Keys are hashes, so that long pages and names do not make it large.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Cache<Uuid, i64>>);

impl Memory {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Cache::new(CAPACITY)))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// Judges the clicks of one book in one transaction.
#[derive(Debug)]
pub struct Judge<'a> {
    memory: &'a Memory,
    book: Uuid,
    page_ms: i64,
    value_ms: i64,
    /// What is to be remembered if the transaction is committed.
    counted: HashMap<Uuid, i64>,
}

impl<'a> Judge<'a> {
    /// A judge for `book`.
    #[must_use]
    pub fn new(memory: &'a Memory, book: Uuid, settings: &Settings) -> Self {
        Self {
            memory,
            book,
            page_ms: settings.debounce_ms,
            value_ms: settings.value_debounce_ms,
            counted: HashMap::new(),
        }
    }

    /// Whether there is a rule at all.
    #[must_use]
    pub fn may_filter(&self) -> bool {
        self.page_ms > 0 || self.value_ms > 0
    }

    /// Whether `click` is to be left out. One that is not is counted from here on.
    pub fn filters(&mut self, click: &Click) -> bool {
        let keys = self.keys(click);
        let mut keys = keys.iter().flatten();
        let filtered = keys.any(|(key, within_ms)| {
            let last = self.counted.get(key).copied();
            let last = last.or_else(|| self.memory.0.get(key));
            last.is_some_and(|last| click.at.millis().saturating_sub(last).abs() < *within_ms)
        });
        if !filtered {
            self.note(click);
        }
        filtered
    }

    /// Notes a click that counts, or has been counted.
    pub fn note(&mut self, click: &Click) {
        let at = click.at.millis();
        for (key, _) in self.keys(click).into_iter().flatten() {
            let last = self.counted.get(&key).copied();
            let last = last.or_else(|| self.memory.0.get(&key));
            self.counted.insert(key, last.map_or(at, |l| l.max(at)));
        }
    }

    /// Remembers what was counted, because it has been committed.
    pub fn remember(self) {
        for (key, at) in self.counted {
            self.memory.0.insert(key, at);
        }
    }

    /// What the click is known by for each of the two rules, and the time within which it is.
    fn keys(&self, click: &Click) -> [Option<(Uuid, i64)>; 2] {
        let Some(visitor) = &click.visitor else {
            return [None, None];
        };
        // No name or page holds a control character.
        let key = |what: String| Uuid::new_v5(&self.book, what.as_bytes());
        let page = || key(format!("{visitor}\0{}", click.page));
        let with_value = |value: i64| key(format!("{visitor}\0{}\0{value}", click.page));
        let by_page = (self.page_ms > 0).then(|| (page(), self.page_ms));
        let value = click.value.filter(|_| self.value_ms > 0);
        [
            by_page,
            value.map(|value| (with_value(value.0), self.value_ms)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::SettingsPatch;
    use crate::click::{ClickId, Micros};
    use crate::time::Timestamp;

    fn settings(debounce_ms: i64, value_debounce_ms: i64) -> Settings {
        let patch = SettingsPatch {
            debounce_ms: Some(debounce_ms),
            value_debounce_ms: Some(value_debounce_ms),
            ..SettingsPatch::default()
        };
        Settings::new(patch, &[])
    }

    fn click(visitor: &str, at: i64, value: Option<i64>) -> Click {
        let at = Timestamp::from_millis(at).unwrap();
        Click {
            id: ClickId::made(),
            at,
            received_at: at,
            page: "/a".to_owned(),
            visitor: (!visitor.is_empty()).then(|| visitor.to_owned()),
            referrer: None,
            source: None,
            value: value.map(Micros),
        }
    }

    #[test]
    fn six_within_the_time_give_one() {
        let (memory, settings) = (Memory::new(), settings(100, 0));
        let mut judge = Judge::new(&memory, Uuid::nil(), &settings);
        let filtered = |judge: &mut Judge<'_>, at| judge.filters(&click("v", at, None));
        let first: Vec<bool> = [1000, 1050, 1099, 901, 1000, 1001]
            .map(|at| filtered(&mut judge, at))
            .to_vec();
        assert_eq!(first, [false, true, true, true, true, true]);
        assert!(!judge.filters(&click("w", 1000, None)), "another reader");
        assert!(!judge.filters(&click("", 1000, None)) && !judge.filters(&click("", 1000, None)));
        assert!(!filtered(&mut judge, 1100) && filtered(&mut judge, 1001));
    }

    #[test]
    fn values_that_repeat_are_left_out() {
        let (memory, settings) = (Memory::new(), settings(0, 100));
        let mut judge = Judge::new(&memory, Uuid::nil(), &settings);
        let sum: i64 = [7, 7, 8, 8, 8]
            .into_iter()
            .filter(|value| !judge.filters(&click("v", 1000, Some(*value))))
            .sum();
        assert_eq!(sum, 15);
    }

    #[test]
    fn only_what_was_committed_is_remembered() {
        let (memory, settings) = (Memory::new(), settings(100, 0));
        let again = click("v", 1000, None);
        let mut failed = Judge::new(&memory, Uuid::nil(), &settings);
        assert!(!failed.filters(&again));
        drop(failed);
        let mut committed = Judge::new(&memory, Uuid::nil(), &settings);
        assert!(!committed.filters(&again));
        committed.remember();
        let mut next = Judge::new(&memory, Uuid::nil(), &settings);
        assert!(next.filters(&again));
        let mut other_book = Judge::new(&memory, Uuid::max(), &settings);
        assert!(!other_book.filters(&again));
    }

    #[test]
    fn the_memory_is_bounded() {
        let (memory, settings) = (Memory::new(), settings(100, 0));
        for reader in 0..CAPACITY + 1000 {
            let mut judge = Judge::new(&memory, Uuid::nil(), &settings);
            judge.filters(&click(&reader.to_string(), 1000, None));
            judge.remember();
        }
        assert!(memory.0.len() <= CAPACITY);
    }
}
