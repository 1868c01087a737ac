//! What a batch needs from the table of windows.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::window::assign;
use super::{Bounds, Counting, Logged, Plan, Progress, Watermark, WindowKey};
use crate::rollup::WindowSpec;

/// What a batch needs from the table of windows.
#[derive(Clone, PartialEq, Debug)]
pub struct Reach<'a> {
    /// The tumbling and sliding windows that its clicks fall into, each once.
    pub touched: Vec<WindowKey<'a>>,
    /// Of each group, the spans that its clicks cover, apart from one another: every session that
    /// overlaps one is needed.
    pub spans: Vec<Span<'a>>,
    /// And every window not yet fired that ends at or before this.
    pub due: Watermark,
}

impl Reach<'_> {
    /// What is due once the watermark has come to `to`, and nothing else.
    #[must_use]
    pub fn due(to: Watermark) -> Self {
        Self {
            touched: Vec::new(),
            spans: Vec::new(),
            due: to,
        }
    }
}

/// A stretch of time in which a group's sessions are needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span<'a> {
    /// Place of the rollup in [`Plan::rollups`].
    pub rollup: u16,
    /// The group within the rollup.
    pub group: Cow<'a, str>,
    /// From when to when.
    pub bounds: Bounds,
}

/// Which windows `clicks` need, in the state that the table has them in.
#[must_use]
pub fn reach<'a>(plan: &Plan, progress: Progress, clicks: &[Logged<'a>]) -> Reach<'a> {
    let mut touched = HashSet::new();
    let mut sessions: HashMap<(u16, Cow<'a, str>), Vec<Bounds>> = HashMap::new();
    let mut progress = progress;
    for Logged { click, .. } in clicks {
        for counting in plan.counting(click) {
            let Counting {
                place,
                rollup,
                group,
                ..
            } = counting;
            for bounds in assign(rollup.window, click.at.millis()) {
                if progress.watermark.gone(bounds.end_ms, rollup.lateness_ms) {
                    continue;
                }
                if let WindowSpec::Session { .. } = rollup.window {
                    let of_group = sessions.entry((place, group.clone())).or_default();
                    of_group.push(bounds);
                } else {
                    touched.insert(WindowKey::new(place, bounds, group.clone()));
                }
            }
        }
        progress = progress.after(click.at.millis(), plan.delay_ms);
    }
    let spans = sessions.into_iter().flat_map(|((rollup, group), bounds)| {
        united(bounds).into_iter().map(move |bounds| Span {
            rollup,
            group: group.clone(),
            bounds,
        })
    });
    Reach {
        spans: spans.collect(),
        touched: touched.into_iter().collect(),
        due: progress.watermark,
    }
}

/// The same stretches of time as few that lie apart, the earliest first.
fn united(mut all: Vec<Bounds>) -> Vec<Bounds> {
    all.sort_unstable();
    let mut united: Vec<Bounds> = Vec::new();
    for bounds in all {
        match united.last_mut() {
            Some(last) if bounds.start_ms <= last.end_ms => {
                last.end_ms = last.end_ms.max(bounds.end_ms);
            }
            _ => united.push(bounds),
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_meet_become_one() {
        let bounds = |(start_ms, end_ms)| Bounds { start_ms, end_ms };
        let unite = |all: &[(i64, i64)]| united(all.iter().copied().map(bounds).collect());
        assert_eq!(
            unite(&[(20, 30), (0, 10), (5, 15), (15, 18)]),
            [(0, 18), (20, 30)].map(bounds)
        );
        assert_eq!(unite(&[]), []);
    }
}
