//! Laws of the engine over random logs: 10,000 of them for each kind of window and law.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::testing::{TestBook, click, of, plan, rollup};
use super::*;
use crate::rollup::{AggregateKind, Field, GroupBy, WindowSpec};

fn tumbling() -> BoxedStrategy<WindowSpec> {
    (1..30_i64)
        .prop_map(|size_ms| WindowSpec::Tumbling { size_ms })
        .boxed()
}

fn sliding() -> BoxedStrategy<WindowSpec> {
    (1..30_i64)
        .prop_flat_map(|size_ms| (Just(size_ms), 1..=size_ms))
        .prop_map(|(size_ms, slide_ms)| WindowSpec::Sliding { size_ms, slide_ms })
        .boxed()
}

fn session() -> BoxedStrategy<WindowSpec> {
    (1..30_i64)
        .prop_map(|gap_ms| WindowSpec::Session { gap_ms })
        .boxed()
}

fn any_window() -> BoxedStrategy<WindowSpec> {
    prop_oneof![tumbling(), sliding(), session()].boxed()
}

fn group_by() -> impl Strategy<Value = GroupBy> {
    prop_oneof![
        Just(GroupBy::Page),
        Just(GroupBy::Book),
        Just(GroupBy::Visitor),
        Just(GroupBy::Source)
    ]
}

fn counted(window: BoxedStrategy<WindowSpec>) -> impl Strategy<Value = Rollup> {
    (window, group_by(), 0..40_i64, 0..6_u8).prop_map(|(window, group_by, lateness_ms, kind)| {
        let rollup = rollup(window, group_by, lateness_ms);
        match kind {
            0 => of(rollup, AggregateKind::Sum, Field::Value),
            1 => of(rollup, AggregateKind::Last, Field::Value),
            2 => of(rollup, AggregateKind::Distinct, Field::Visitor),
            _ => rollup,
        }
    })
}

fn any_plan(window: &BoxedStrategy<WindowSpec>) -> impl Strategy<Value = Plan> + use<> {
    let rollups = prop::collection::vec(counted(window.clone()), 1..4);
    (0..20_i64, rollups).prop_map(|(delay_ms, rollups)| plan(delay_ms, rollups))
}

/// Mostly going forward, with stragglers; before 1970 too.
fn log() -> impl Strategy<Value = Vec<Click>> {
    let step = prop_oneof![4 => -3..9_i64, 1 => -60..40_i64];
    prop::collection::vec((step, 0..3_u8), 0..40).prop_map(|steps| {
        let mut at_ms = -60;
        let clicks = steps.into_iter().map(|(step, page)| {
            at_ms += step;
            click(at_ms, &format!("/{page}"))
        });
        clicks.collect()
    })
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..40_usize, 0..8).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts
    })
}

/// Statuses, watermark, values and what has fired are the same as click by click.
fn same_however_cut(plan: &Plan, log: &[Click], cuts: &[usize]) {
    let one_by_one: Vec<usize> = (0..log.len()).collect();
    let (cut, whole) = (
        TestBook::counted(plan, log, cuts),
        TestBook::counted(plan, log, &one_by_one),
    );
    assert_eq!(cut.verdicts, whole.verdicts);
    assert_eq!(cut.progress, whole.progress);
    // Places in the log differ where batches do, so values are compared, not states.
    assert_eq!(shown(&cut), shown(&whole));
}

fn shown<'a>(book: &TestBook<'a>) -> Vec<(WindowKey<'a>, bool, aggregate::Value)> {
    let rows = book.table.iter();
    rows.map(|(key, row)| (key.clone(), row.fired, row.state.value()))
        .collect()
}

/// With the watermark before each click a batch needs no engine: a click counts in a window if and
/// only if `end + lateness > watermark before it`, and sessions are made of the kept clicks in
/// plain time order.
fn equals_a_plain_recomputation(rollup: &Rollup, delay_ms: i64, log: &[Click]) {
    let plan = plan(delay_ms, vec![rollup.clone()]);
    let book = TestBook::counted(&plan, log, &[log.len() / 2]);
    let mut kept: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for (click, verdict) in log.iter().zip(&book.verdicts) {
        let (at, before) = (click.at.millis(), verdict.watermark_before.stored());
        let own: Vec<(i64, i64)> = match rollup.window {
            WindowSpec::Tumbling { size_ms } => {
                let start = at - at.rem_euclid(size_ms);
                vec![(start, start + size_ms)]
            }
            WindowSpec::Sliding { size_ms, slide_ms } => (at - size_ms + 1..=at)
                .filter(|start| start.rem_euclid(slide_ms) == 0)
                .map(|start| (start, start + size_ms))
                .collect(),
            WindowSpec::Session { gap_ms } => vec![(at, at + gap_ms)],
        };
        let all = own.len();
        let in_time: Vec<_> = own
            .into_iter()
            .filter(|(_, end)| before.is_none_or(|before| end + rollup.lateness_ms > before))
            .collect();
        assert_eq!(
            verdict.status == Status::Dropped,
            in_time.is_empty(),
            "dropped if and only if counted nowhere"
        );
        if !in_time.is_empty() {
            assert_eq!(verdict.missed.len(), all - in_time.len());
        }
        kept.entry(&click.page).or_default().extend(in_time);
    }
    let mut expected: BTreeMap<(i64, i64, &str), i64> = BTreeMap::new();
    for (page, mut windows) in kept {
        windows.sort_unstable();
        if let WindowSpec::Session { .. } = rollup.window {
            let mut sessions: Vec<(i64, i64, i64)> = Vec::new();
            for (start, end) in windows {
                match sessions.last_mut() {
                    Some(last) if start < last.1 => *last = (last.0, end, last.2 + 1),
                    _ => sessions.push((start, end, 1)),
                }
            }
            expected.extend(sessions.into_iter().map(|(s, e, n)| ((s, e, page), n)));
        } else {
            for (start, end) in windows {
                *expected.entry((start, end, page)).or_default() += 1;
            }
        }
    }
    let found: BTreeMap<_, _> = book
        .table
        .iter()
        .map(|(key, row)| ((key.start_ms, key.end_ms, &*key.group), row.state.weight()))
        .collect();
    assert_eq!(found, expected);
    for (key, row) in &book.table {
        let ended = book.progress.watermark.ended(key.end_ms);
        assert!(row.fired || !ended, "what has ended has fired");
    }
}

/// Within the lateness, order of arrival does not matter for the values.
fn order_does_not_matter_in_time(plan: &Plan, log: &[Click], shuffled: &[Click]) {
    let values = |log| {
        let book = TestBook::counted(plan, log, &[]);
        let rows = book.table.into_iter();
        let rows = rows.map(|(key, row)| (key.bounds(), key.group.to_string(), row.state.value()));
        (book.progress, rows.collect::<Vec<_>>())
    };
    assert_eq!(values(log), values(shuffled));
}

/// Whoever follows the panes, and deletes what they replace, ends with the final values; and the
/// panes say truly what they are.
fn a_sink_ends_with_the_final_values(plan: &Plan, log: &[Click], cuts: &[usize]) {
    let mut book = TestBook::new(plan);
    let mut sink: BTreeMap<WindowKey<'_>, aggregate::Value> = BTreeMap::new();
    let mut fired: BTreeSet<WindowKey<'_>> = BTreeSet::new();
    let mut from = 0;
    let ends: Vec<Option<usize>> = cuts
        .iter()
        .copied()
        .map(Some)
        .chain([Some(40), None])
        .collect();
    for end in ends {
        let changed = match end {
            Some(end) => {
                let to = end.clamp(from, log.len());
                let changed = book.commit(&log[from..to]);
                from = to;
                changed
            }
            None => book.close(),
        };
        let order: Vec<_> = changed.iter().map(|c| (c.pane, c.key.clone())).collect();
        assert!(order.is_sorted(), "in the order of emission, each once");
        for changed in changed {
            let group = || changed.key.group.clone();
            let parts = changed.replaces.iter();
            let parts = parts.map(|part| WindowKey::new(changed.key.rollup, *part, group()));
            let mut had_fired = fired.remove(&changed.key);
            for part in parts {
                assert!(sink.remove(&part).is_some(), "{part:?} had been shown");
                had_fired |= fired.remove(&part);
            }
            assert_eq!(changed.pane == Pane::Late, had_fired, "{changed:?}");
            assert_eq!(changed.pane == Pane::Early, !changed.window.fired);
            if changed.window.fired {
                fired.insert(changed.key.clone());
            }
            sink.insert(changed.key, changed.window.state.value());
        }
    }
    let shown: BTreeMap<_, _> = book
        .table
        .iter()
        .map(|(key, row)| (key.clone(), row.state.value()))
        .collect();
    assert_eq!(sink, shown);
    assert!(book.table.values().all(|row| row.fired), "all is told");
}

macro_rules! for_each_kind {
    ($($kind:ident: $logs:literal),+) => {$(
        mod $kind {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases($logs))]

                #[test]
                fn any_cut_into_batches_gives_the_same(
                    plan in any_plan(&super::$kind()), log in log(), cuts in cuts(),
                ) {
                    same_however_cut(&plan, &log, &cuts);
                }

                #[test]
                fn a_sink_that_follows_ends_with_the_final_values(
                    plan in any_plan(&super::$kind()), log in log(), cuts in cuts(),
                ) {
                    super::a_sink_ends_with_the_final_values(&plan, &log, &cuts);
                }

                #[test]
                fn equals_a_plain_recomputation_from_the_log(
                    window in super::$kind(), lateness in 0..40_i64, delay in 0..20_i64, log in log(),
                ) {
                    let rollup = rollup(window, GroupBy::Page, lateness);
                    equals_a_plain_recomputation(&rollup, delay, &log);
                }

                #[test]
                fn in_time_shuffles_change_nothing(
                    mut rollup in counted(super::$kind()),
                    (log, shuffled) in log().prop_flat_map(|log| (Just(log.clone()), Just(log).prop_shuffle())),
                ) {
                    // Two clicks at one time differ in their place in the log, which a shuffle moves.
                    if rollup.aggregate == AggregateKind::Last {
                        rollup.aggregate = AggregateKind::Max;
                    }
                    rollup.lateness_ms = 10_000;
                    order_does_not_matter_in_time(&plan(0, vec![rollup]), &log, &shuffled);
                }
            }
        }
    )+};
}

for_each_kind!(tumbling: 10_000, sliding: 10_000, session: 10_000, any_window: 2_000);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn the_sum_over_sliding_windows_is_clicks_times_windows_each(
        slide_ms in 1..10_i64, times in 1..8_i64, log in log(),
    ) {
        let window = WindowSpec::Sliding { size_ms: slide_ms * times, slide_ms };
        let plan = plan(0, vec![rollup(window, GroupBy::Page, 10_000)]);
        let book = TestBook::counted(&plan, &log, &[]);
        let sum: i64 = book.table.values().map(|row| row.state.weight()).sum();
        prop_assert_eq!(sum, i64::try_from(log.len()).unwrap() * times);
    }
}
