//! The golden cases with tumbling windows, click by click through the pure engine.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use uuid::Uuid;

use super::*;
use crate::click::{Click, ClickId};
use crate::rollup::{AggregateKind, GroupBy, WindowSpec};
use crate::time::Timestamp;

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Config,
    clicks: Vec<CaseClick>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Config {
    kind: String,
    size_ms: i64,
    delay_ms: i64,
    lateness_ms: i64,
}

#[derive(Deserialize)]
struct CaseClick {
    id: String,
    at_ms: i64,
    page: String,
}

#[derive(Deserialize)]
struct Expect {
    status: HashMap<String, String>,
    emissions: Vec<Emission>,
    final_counts: Vec<Emission>,
    watermark_after: Vec<i64>,
}

#[derive(Deserialize, PartialEq, Debug)]
struct Emission {
    start_ms: i64,
    end_ms: i64,
    page: String,
    count: i64,
    #[serde(default)]
    cause: String,
    #[serde(default)]
    after_click: i64,
}

fn emissions(changed: &[Changed<'_>], after_click: i64) -> Vec<Emission> {
    let told = changed.iter().filter(|c| c.pane != Pane::Early);
    told.map(|c| Emission {
        start_ms: c.key.start_ms,
        end_ms: c.key.end_ms,
        page: c.key.group.to_string(),
        count: c.window.state.weight(),
        cause: if c.pane == Pane::Late {
            "late"
        } else {
            "on_time"
        }
        .to_owned(),
        after_click,
    })
    .collect()
}

fn run(case: &Case) {
    let plan = Plan {
        delay_ms: case.config.delay_ms,
        rollups: vec![Rollup {
            name: "pages".to_owned(),
            group_by: GroupBy::Page,
            window: WindowSpec::Tumbling {
                size_ms: case.config.size_ms,
            },
            aggregate: AggregateKind::Count,
            lateness_ms: case.config.lateness_ms,
        }],
    };
    let mut progress = Progress {
        watermark: Watermark::MINUS_INFINITY,
        newest_event_ms: None,
    };
    let clicks: Vec<Click> = case.clicks.iter().map(click).collect();
    let mut table: BTreeMap<WindowKey<'_>, Window> = BTreeMap::new();
    let mut seen = Vec::new();
    for (index, (click, sent)) in clicks.iter().zip(&case.clicks).enumerate() {
        let batch = [click];
        let reach = reach(&plan, progress, &batch);
        let loaded = table.iter().filter(|(key, window)| {
            reach.touched.contains(key) || (!window.fired && reach.due.ended(key.end_ms))
        });
        let loaded: Windows<'_> = loaded.map(|(k, w)| (k.clone(), w.clone())).collect();
        let outcome = apply(&plan, progress, &batch, loaded);
        progress = outcome.progress;
        let status = match outcome.verdicts[0].status {
            Status::OnTime => "on_time",
            Status::Late => "late",
            Status::Dropped => "dropped",
        };
        assert_eq!(
            status, case.expect.status[&sent.id],
            "{}: {}",
            case.name, sent.id
        );
        assert_eq!(
            progress.watermark.stored(),
            Some(case.expect.watermark_after[index]),
            "{}: watermark after {}",
            case.name,
            sent.id
        );
        seen.extend(emissions(&outcome.changed, i64::try_from(index).unwrap()));
        table.extend(outcome.changed.into_iter().map(|c| (c.key, c.window)));
    }
    let unfired = table.iter().filter(|(_, window)| !window.fired);
    let outcome = close(
        progress,
        unfired.map(|(k, w)| (k.clone(), w.clone())).collect(),
    );
    seen.extend(emissions(&outcome.changed, -1));
    assert_eq!(seen, case.expect.emissions, "{}: emissions", case.name);
    let finals: Vec<_> = table
        .iter()
        .map(|(k, w)| (k.start_ms, k.end_ms, k.group.to_string(), w.state.weight()))
        .collect();
    let expected: Vec<_> = case
        .expect
        .final_counts
        .iter()
        .map(|e| (e.start_ms, e.end_ms, e.page.clone(), e.count))
        .collect();
    assert_eq!(finals, expected, "{}: final counts", case.name);
}

fn click(sent: &CaseClick) -> Click {
    let at = Timestamp::from_millis(sent.at_ms).unwrap();
    Click {
        id: ClickId::chosen(Uuid::nil(), &sent.id),
        at,
        received_at: at,
        page: sent.page.clone(),
        visitor: None,
        referrer: None,
        source: None,
        value: None,
    }
}

#[test]
fn golden_cases_with_tumbling_windows() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/windows");
    let mut ran = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let case: Case = serde_json::from_str(&text).unwrap();
        if case.config.kind == "tumbling" {
            run(&case);
            ran += 1;
        }
    }
    assert_eq!(ran, 23, "cases with tumbling windows");
}

/// The example worked by hand in the description of the engine: tumbling 10, delay 2, lateness 10.
#[test]
fn the_case_worked_by_hand() {
    let times = [1, 9, 12, 8, 23, 7, 31, 3];
    let statuses = [
        "on_time", "on_time", "on_time", "late", "on_time", "dropped", "on_time", "dropped",
    ];
    let emission = |start_ms, count, cause: &str, after_click| Emission {
        start_ms,
        end_ms: start_ms + 10,
        page: "p".to_owned(),
        count,
        cause: cause.to_owned(),
        after_click,
    };
    let id = |i: usize| format!("c{i}");
    run(&Case {
        name: "by hand".to_owned(),
        config: Config {
            kind: "tumbling".to_owned(),
            size_ms: 10,
            delay_ms: 2,
            lateness_ms: 10,
        },
        clicks: times
            .iter()
            .enumerate()
            .map(|(i, at_ms)| CaseClick {
                id: id(i),
                at_ms: *at_ms,
                page: "p".to_owned(),
            })
            .collect(),
        expect: Expect {
            status: (0..8).map(|i| (id(i), statuses[i].to_owned())).collect(),
            emissions: vec![
                emission(0, 2, "on_time", 2),
                emission(0, 3, "late", 3),
                emission(10, 1, "on_time", 4),
                emission(20, 1, "on_time", -1),
                emission(30, 1, "on_time", -1),
            ],
            final_counts: [(0, 3), (10, 1), (20, 1), (30, 1)]
                .map(|(start, count)| emission(start, count, "", 0))
                .into(),
            watermark_after: vec![-1, 7, 10, 10, 21, 21, 29, 29],
        },
    });
}
