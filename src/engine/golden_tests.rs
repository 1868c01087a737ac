//! The golden cases, click by click through the pure engine.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::testing::{TestBook, click, plan, rollup};
use super::*;
use crate::rollup::{GroupBy, WindowSpec};

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
    slide_ms: i64,
    gap_ms: i64,
    delay_ms: i64,
    lateness_ms: i64,
}

impl Config {
    fn window(&self) -> WindowSpec {
        let size_ms = self.size_ms;
        match self.kind.as_str() {
            "tumbling" => WindowSpec::Tumbling { size_ms },
            "sliding" => WindowSpec::Sliding {
                size_ms,
                slide_ms: self.slide_ms,
            },
            "session" => WindowSpec::Session {
                gap_ms: self.gap_ms,
            },
            other => panic!("a kind of window that nobody knows: {other}"),
        }
    }
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
    #[serde(default)]
    partially_dropped: BTreeMap<String, Vec<CaseBounds>>,
}

#[derive(Deserialize, PartialEq, Debug)]
struct CaseBounds {
    start_ms: i64,
    end_ms: i64,
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
    /// Those that had fired.
    #[serde(default)]
    replaces: Vec<CaseBounds>,
}

impl From<Bounds> for CaseBounds {
    fn from(Bounds { start_ms, end_ms }: Bounds) -> Self {
        Self { start_ms, end_ms }
    }
}

/// What fired or was corrected; `fired` are the windows that had fired before.
fn emissions(
    changed: &[Changed<'_>],
    fired: &HashSet<WindowKey<'_>>,
    after_click: i64,
) -> Vec<Emission> {
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
        replaces: c
            .replaces
            .iter()
            .filter(|part| fired.contains(&WindowKey::new(0, **part, c.key.group.clone())))
            .map(|part| CaseBounds::from(*part))
            .collect(),
    })
    .collect()
}

fn run(case: &Case) {
    let config = &case.config;
    let rollup = rollup(config.window(), GroupBy::Page, config.lateness_ms);
    let plan = plan(config.delay_ms, vec![rollup]);
    let clicks: Vec<Click> = case
        .clicks
        .iter()
        .map(|c| click(c.at_ms, &c.page))
        .collect();
    let mut book = TestBook::new(&plan);
    let mut seen = Vec::new();
    for (index, (click, sent)) in clicks.iter().zip(&case.clicks).enumerate() {
        let which = format!("{}: {}", case.name, sent.id);
        let fired = fired(&book);
        let changed = book.commit(std::slice::from_ref(click));
        let verdict = &book.verdicts[index];
        let status = match verdict.status {
            Status::OnTime => "on_time",
            Status::Late => "late",
            Status::Dropped => "dropped",
        };
        assert_eq!(status, case.expect.status[&sent.id], "{which}");
        let missed: Vec<CaseBounds> = verdict.missed.iter().map(|m| m.bounds.into()).collect();
        let expected = case.expect.partially_dropped.get(&sent.id);
        assert_eq!(missed, *expected.unwrap_or(&Vec::new()), "{which}");
        assert_eq!(
            book.progress.watermark.stored(),
            Some(case.expect.watermark_after[index]),
            "watermark after {which}",
        );
        seen.extend(emissions(&changed, &fired, i64::try_from(index).unwrap()));
    }
    let fired = fired(&book);
    seen.extend(emissions(&book.close(), &fired, -1));
    assert_eq!(seen, case.expect.emissions, "{}: emissions", case.name);
    let rows = book.table.iter();
    let finals: Vec<_> = rows
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

fn fired<'a>(book: &TestBook<'a>) -> HashSet<WindowKey<'a>> {
    let fired = book.table.iter().filter(|(_, row)| row.fired);
    fired.map(|(key, _)| key.clone()).collect()
}

#[test]
fn golden_cases() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/windows");
    let mut ran = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        run(&serde_json::from_str(&text).unwrap());
        ran += 1;
    }
    assert_eq!(ran, 50, "cases");
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
        replaces: Vec::new(),
    };
    let id = |i: usize| format!("c{i}");
    run(&Case {
        name: "by hand".to_owned(),
        config: Config {
            kind: "tumbling".to_owned(),
            size_ms: 10,
            slide_ms: 0,
            gap_ms: 0,
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
            partially_dropped: BTreeMap::new(),
        },
    });
}
