//! The fold and nothing else: no watermark, no batches, nothing told; what one would write to count
//! a file once.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use pagetide::click::Click;
use pagetide::rollup::WindowSpec;

use super::Counts;

/// What is counted, and how long that took.
pub(super) fn counted(log: &[Click], window: WindowSpec) -> (Counts, Duration) {
    match window {
        WindowSpec::Tumbling { size_ms } => aligned(log, size_ms, size_ms),
        WindowSpec::Sliding { size_ms, slide_ms } => aligned(log, size_ms, slide_ms),
        WindowSpec::Session { gap_ms } => sessions(log, gap_ms),
    }
}

fn aligned(log: &[Click], size_ms: i64, slide_ms: i64) -> (Counts, Duration) {
    let begin = Instant::now();
    let mut counts: HashMap<(i64, &str), i64> = HashMap::new();
    for click in log {
        let at_ms = click.at.millis();
        let mut start_ms = at_ms - at_ms.rem_euclid(slide_ms);
        while start_ms + size_ms > at_ms {
            *counts.entry((start_ms, &click.page)).or_default() += 1;
            start_ms -= slide_ms;
        }
    }
    let took = begin.elapsed();
    let counts = counts
        .into_iter()
        .map(|((start_ms, page), count)| ((start_ms, start_ms + size_ms, page.to_owned()), count));
    (counts.collect(), took)
}

fn sessions(log: &[Click], gap_ms: i64) -> (Counts, Duration) {
    let begin = Instant::now();
    // Of each page, by start: end and clicks.
    let mut pages: HashMap<&str, BTreeMap<i64, (i64, i64)>> = HashMap::new();
    for click in log {
        let of_page = pages.entry(&click.page).or_default();
        let at_ms = click.at.millis();
        let (mut start_ms, mut end_ms, mut clicks) = (at_ms, at_ms + gap_ms, 1);
        while let Some((&other, &(other_end, more))) = of_page.range(..end_ms).next_back()
            && other_end > start_ms
        {
            of_page.remove(&other);
            start_ms = start_ms.min(other);
            end_ms = end_ms.max(other_end);
            clicks += more;
        }
        of_page.insert(start_ms, (end_ms, clicks));
    }
    let took = begin.elapsed();
    let counts = pages.into_iter().flat_map(|(page, sessions)| {
        sessions
            .into_iter()
            .map(move |(start_ms, (end_ms, clicks))| ((start_ms, end_ms, page.to_owned()), clicks))
    });
    (counts.collect(), took)
}
