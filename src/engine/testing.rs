//! What the engine's tests share: a book whose windows lie in a map instead of a table, and logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::click::{ClickId, Micros};
use crate::rollup::{AggregateKind, Field, GroupBy, WindowSpec};
use crate::time::Timestamp;

/// A book that counts, commit by commit.
pub(crate) struct TestBook<'a> {
    plan: &'a Plan,
    next_seq: i64,
    pub(crate) progress: Progress,
    pub(crate) table: BTreeMap<WindowKey<'a>, Window>,
    pub(super) verdicts: Vec<Verdict>,
}

impl<'a> TestBook<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            next_seq: 1,
            progress: Progress::NONE,
            table: BTreeMap::new(),
            verdicts: Vec::new(),
        }
    }

    /// Counts all of `log`, a commit at each cut.
    pub(super) fn counted(plan: &'a Plan, log: &'a [Click], cuts: &[usize]) -> Self {
        let mut book = Self::new(plan);
        let mut from = 0;
        for cut in cuts.iter().chain([&log.len()]) {
            let to = (*cut).clamp(from, log.len());
            book.commit(&log[from..to]);
            from = to;
        }
        book
    }

    /// Counts a batch, with no other windows than those that the engine asks for.
    pub(crate) fn commit(&mut self, batch: &'a [Click]) -> Vec<Changed<'a>> {
        let logged: Vec<Logged<'a>> = (self.next_seq..)
            .zip(batch)
            .map(|(seq, click)| Logged { seq, click })
            .collect();
        // Gaps are allowed.
        self.next_seq += 2 * i64::try_from(batch.len()).unwrap();
        let reach = reach(self.plan, self.progress, &logged);
        let loaded = self.load(&reach);
        let due = reach.due;
        let outcome = apply(self.plan, self.progress, &logged, reach, loaded);
        assert_eq!(outcome.progress.watermark, due);
        self.settle(outcome)
    }

    pub(crate) fn close(&mut self) -> Vec<Changed<'a>> {
        let to = Watermark::END_OF_TIME;
        let loaded = self.load(&Reach::due(to));
        let outcome = advance(self.plan, self.progress, to, loaded);
        self.settle(outcome)
    }

    fn load(&self, reach: &Reach<'a>) -> Windows<'a> {
        let of_group = |span: &Span<'_>, key: &WindowKey<'a>| {
            span.rollup == key.rollup && span.group == key.group
        };
        let touched = |key: &WindowKey<'a>| {
            let mut touched = reach.touched();
            touched.any(|window| of_group(&window, key) && window.bounds == key.bounds())
        };
        let in_a_span = |key: &WindowKey<'a>| {
            let mut spans = reach.spans();
            spans.any(|span| of_group(&span, key) && span.bounds.overlaps(key.bounds()))
        };
        let due = |key: &WindowKey<'a>, row: &Window| !row.fired && reach.due.ended(key.end_ms);
        let rows = self.table.iter();
        let rows = rows.filter(|(key, row)| due(key, row) || touched(key) || in_a_span(key));
        rows.map(|(key, row)| (key.clone(), row.clone())).collect()
    }

    fn settle(&mut self, outcome: Outcome<'a>) -> Vec<Changed<'a>> {
        self.progress = outcome.progress;
        self.verdicts.extend(outcome.verdicts);
        for changed in &outcome.changed {
            for bounds in &changed.replaces {
                let group = changed.key.group.clone();
                let part = WindowKey::new(changed.key.rollup, *bounds, group);
                assert!(self.table.remove(&part).is_some(), "{part:?} was there");
            }
            self.table
                .insert(changed.key.clone(), changed.window.clone());
        }
        outcome.changed
    }
}

/// A click that happened at `at_ms` and has everything that can be counted.
pub(crate) fn click(at_ms: i64, page: &str) -> Click {
    let at = Timestamp::from_millis(at_ms).unwrap();
    Click {
        id: ClickId::chosen(Uuid::nil(), "x"),
        at,
        received_at: at,
        page: page.to_owned(),
        visitor: Some(format!("v{}", at_ms.rem_euclid(5))),
        referrer: None,
        source: (at_ms % 3 == 0).then(|| "feed".to_owned()),
        value: (at_ms % 4 != 0).then_some(Micros(at_ms * 100_000)),
    }
}

pub(crate) fn rollup(window: WindowSpec, group_by: GroupBy, lateness_ms: i64) -> Rollup {
    Rollup {
        name: "r".to_owned(),
        group_by,
        window,
        aggregate: AggregateKind::Count,
        of: None,
        lateness_ms,
    }
}

pub(super) fn of(rollup: Rollup, aggregate: AggregateKind, of: Field) -> Rollup {
    Rollup {
        aggregate,
        of: Some(of),
        ..rollup
    }
}

pub(crate) fn plan(delay_ms: i64, rollups: Vec<Rollup>) -> Plan {
    Plan {
        delay_ms,
        rollups,
        structure: Arc::default(),
    }
}
