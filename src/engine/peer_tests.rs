//! The engine against Apache Flink's answers to random logs: `tests/peers`.

use std::collections::HashMap;

use serde::Deserialize;

use super::testing::{TestBook, click, plan, rollup};
use super::*;
use crate::rollup::{GroupBy, WindowSpec};

/// Start, end, page, count.
type Told = (i64, i64, String, i64);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    kind: String,
    size_ms: i64,
    slide_ms: i64,
    gap_ms: i64,
    /// The gap that Flink was given: it merges sessions that touch.
    #[serde(rename = "peer_gap_ms")]
    _peer_gap_ms: Option<i64>,
    delay_ms: i64,
    lateness_ms: i64,
    /// Time and page, in order of arrival.
    clicks: Vec<(i64, String)>,
    #[serde(rename = "final")]
    finals: Vec<Told>,
    dropped: Vec<usize>,
    /// Click, start, end.
    partly_too_late: Option<Vec<(usize, i64, i64)>>,
    emissions: Option<Vec<Told>>,
    /// For each, the click that caused it; -1 is the end of input.
    emitted_after: Option<Vec<i64>>,
}

impl Answer {
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

/// How much was compared.
#[derive(Default, PartialEq, Debug)]
struct Compared {
    logs: usize,
    windows: usize,
    dropped: usize,
    partly_too_late: usize,
    logs_with_emissions: usize,
    emissions: usize,
}

fn told(changed: &[Changed<'_>]) -> impl Iterator<Item = Told> {
    let told = changed.iter().filter(|c| c.pane != Pane::Early);
    told.map(|c| of_window(&c.key, &c.window))
}

fn of_window(key: &WindowKey<'_>, window: &Window) -> Told {
    let (start, end) = (key.start_ms, key.end_ms);
    (start, end, key.group.to_string(), window.state.weight())
}

/// Puts the log of `answer` to the engine, click by click.
fn compare(answer: Answer, place: usize, compared: &mut Compared) {
    let rollup = rollup(answer.window(), GroupBy::Page, answer.lateness_ms);
    let plan = plan(answer.delay_ms, vec![rollup]);
    let clicks: Vec<Click> = answer
        .clicks
        .iter()
        .map(|(at_ms, page)| click(*at_ms, page))
        .collect();
    let mut book = TestBook::new(&plan);
    // The end of input comes last.
    let mut emitted: Vec<(i64, Told)> = Vec::new();
    for (after, click) in (0..).zip(&clicks) {
        let changed = book.commit(std::slice::from_ref(click));
        emitted.extend(told(&changed).map(|told| (after, told)));
    }
    emitted.extend(told(&book.close()).map(|told| (i64::MAX, told)));
    emitted.sort();

    let which = format!("answer {place}, {}", answer.kind);
    let mut finals: Vec<Told> = book.table.iter().map(|(k, w)| of_window(k, w)).collect();
    finals.sort();
    assert_eq!(finals, answer.finals, "{which}: final counts");
    let verdicts = book.verdicts.iter().enumerate();
    let dropped = verdicts
        .clone()
        .filter(|(_, v)| v.status == Status::Dropped);
    let dropped: Vec<usize> = dropped.map(|(index, _)| index).collect();
    assert_eq!(dropped, answer.dropped, "{which}: dropped clicks");
    compared.logs += 1;
    compared.windows += finals.len();
    compared.dropped += dropped.len();
    if let Some(partly) = answer.partly_too_late {
        let missed = verdicts.flat_map(|(index, verdict)| {
            let missed = verdict.missed.iter();
            missed.map(move |m| (index, m.bounds.start_ms, m.bounds.end_ms))
        });
        let missed: Vec<_> = missed.collect();
        assert_eq!(missed, partly, "{which}: windows missed");
        compared.partly_too_late += missed.len();
    }
    if let (Some(emissions), Some(after)) = (answer.emissions, answer.emitted_after) {
        assert_eq!(emissions.len(), after.len());
        let after = after.into_iter().map(|a| if a < 0 { i64::MAX } else { a });
        let expected: Vec<(i64, Told)> = after.zip(emissions).collect();
        assert_eq!(emitted, expected, "{which}: emissions");
        compared.logs_with_emissions += 1;
        compared.emissions += expected.len();
    }
}

#[test]
fn counts_as_apache_flink_counts() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/answers.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let mut compared: HashMap<String, Compared> = HashMap::new();
    // What made them comes first.
    for (place, line) in text.lines().enumerate().skip(1) {
        let answer: Answer = serde_json::from_str(line).unwrap();
        let of_kind = compared.entry(answer.kind.clone()).or_default();
        compare(answer, place, of_kind);
    }
    let whole =
        |logs, windows, dropped, partly_too_late, logs_with_emissions, emissions| Compared {
            logs,
            windows,
            dropped,
            partly_too_late,
            logs_with_emissions,
            emissions,
        };
    let expected = [
        ("session", whole(60, 271, 24, 0, 36, 138)),
        ("sliding", whole(90, 617, 64, 29, 90, 648)),
        ("tumbling", whole(90, 462, 65, 0, 90, 495)),
    ];
    let expected = expected.map(|(kind, compared)| (kind.to_owned(), compared));
    assert_eq!(compared, HashMap::from(expected));
}
