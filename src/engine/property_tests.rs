//! Laws of the engine over random logs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::click::{Click, ClickId};
use crate::rollup::{AggregateKind, GroupBy, WindowSpec};
use crate::time::Timestamp;

type Table<'a> = BTreeMap<WindowKey<'a>, Window>;

fn plan(delay_ms: i64, rollups: &[(i64, i64, GroupBy)]) -> Plan {
    Plan {
        delay_ms,
        rollups: rollups
            .iter()
            .map(|&(size_ms, lateness_ms, group_by)| Rollup {
                name: String::new(),
                group_by,
                window: WindowSpec::Tumbling { size_ms },
                aggregate: AggregateKind::Count,
                lateness_ms,
            })
            .collect(),
    }
}

fn clicks(log: &[(i64, u8)]) -> Vec<Click> {
    log.iter()
        .map(|&(at_ms, page)| {
            let at = Timestamp::from_millis(at_ms).unwrap();
            Click {
                id: ClickId::chosen(Uuid::nil(), "x"),
                at,
                received_at: at,
                page: format!("/{page}"),
                visitor: None,
                referrer: None,
                source: None,
                value: None,
            }
        })
        .collect()
}

/// Counts `log` batch by batch, as a commit does, against a table of windows.
fn count<'a>(plan: &Plan, log: &'a [Click], cuts: &[usize]) -> (Vec<Verdict>, Progress, Table<'a>) {
    let mut progress = Progress {
        watermark: Watermark::MINUS_INFINITY,
        newest_event_ms: None,
    };
    let mut table = Table::new();
    let mut verdicts = Vec::new();
    let mut from = 0;
    for cut in cuts.iter().chain([&log.len()]) {
        let to = (*cut).clamp(from, log.len());
        let batch: Vec<&Click> = log[from..to].iter().collect();
        from = to;
        let reach = reach(plan, progress, &batch);
        let loaded = table.iter().filter(|(key, window)| {
            reach.touched.contains(key) || (!window.fired && reach.due.ended(key.end_ms))
        });
        let loaded = loaded.map(|(k, w)| (k.clone(), w.clone())).collect();
        let outcome = apply(plan, progress, &batch, loaded);
        progress = outcome.progress;
        verdicts.extend(outcome.verdicts);
        table.extend(outcome.changed.into_iter().map(|c| (c.key, c.window)));
    }
    (verdicts, progress, table)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_cut_into_batches_gives_the_same(
        log in prop::collection::vec((-60..120_i64, 0..3_u8), 0..40),
        mut cuts in prop::collection::vec(0..40_usize, 0..8),
        delay in 0..20_i64,
        sizes in prop::collection::vec((1..30_i64, 0..40_i64, prop_oneof![Just(GroupBy::Page), Just(GroupBy::Book)]), 1..4),
    ) {
        cuts.sort_unstable();
        let plan = plan(delay, &sizes);
        let log = clicks(&log);
        let one_by_one: Vec<usize> = (0..log.len()).collect();
        prop_assert_eq!(count(&plan, &log, &cuts), count(&plan, &log, &one_by_one));
    }

    /// With the watermark before each click, a batch needs no engine: a click counts in a window
    /// if and only if `end + lateness > watermark before it`.
    #[test]
    fn equals_a_plain_recomputation_from_the_log(
        log in prop::collection::vec((-60..120_i64, 0..3_u8), 0..40),
        delay in 0..20_i64,
        size in 1..30_i64,
        lateness in 0..40_i64,
    ) {
        let plan = plan(delay, &[(size, lateness, GroupBy::Page)]);
        let log = clicks(&log);
        let (verdicts, progress, table) = count(&plan, &log, &[]);
        let mut expected: BTreeMap<(i64, String), i64> = BTreeMap::new();
        for (click, verdict) in log.iter().zip(&verdicts) {
            let start = click.at.millis().div_euclid(size) * size;
            let before = verdict.watermark_before.stored().unwrap_or(i64::MIN);
            if start + size + lateness > before {
                *expected.entry((start, click.page.clone())).or_default() += 1;
            } else {
                prop_assert_eq!(verdict.status, Status::Dropped);
            }
        }
        let found: BTreeMap<_, _> = table
            .iter()
            .map(|(key, window)| ((key.start_ms, key.group.to_string()), window.state.weight()))
            .collect();
        prop_assert_eq!(found, expected);
        for (key, window) in &table {
            prop_assert_eq!(window.fired, progress.watermark.ended(key.end_ms));
        }
    }

    /// Within the lateness, order of arrival does not matter for the values.
    #[test]
    fn in_time_shuffles_change_nothing(
        (log, shuffled) in prop::collection::vec((0..100_i64, 0..3_u8), 0..30)
            .prop_flat_map(|log| (Just(log.clone()), Just(log).prop_shuffle())),
        size in 1..30_i64,
    ) {
        let plan = plan(0, &[(size, 200, GroupBy::Page)]);
        let (log, shuffled) = (clicks(&log), clicks(&shuffled));
        let values = |(_, progress, table): (Vec<Verdict>, Progress, Table<'_>)| {
            let values: Vec<_> = table
                .into_iter()
                .map(|(key, window)| (key.start_ms, key.group.to_string(), window))
                .collect();
            (progress, values)
        };
        prop_assert_eq!(values(count(&plan, &log, &[])), values(count(&plan, &shuffled, &[])));
    }
}
