//! The fold: judges clicks, counts them, moves the watermark, fires windows.

use std::collections::HashSet;

use super::aggregate::State;
use super::window::{Bounds, assign};
use super::{
    Changed, MissedWindow, Outcome, Pane, Plan, Progress, Reach, Status, Verdict, Watermark,
    Window, WindowKey, Windows,
};
use crate::click::Click;

/// Which windows `clicks` need, in the state that the table has them in.
#[must_use]
pub fn reach<'a>(plan: &Plan, progress: Progress, clicks: &[&'a Click]) -> Reach<'a> {
    let mut touched = HashSet::new();
    let mut progress = progress;
    for click in clicks {
        for (key, lateness_ms) in windows_of(plan, click) {
            if !progress.watermark.gone(key.end_ms, lateness_ms) {
                touched.insert(key);
            }
        }
        progress = progress.after(click.at.millis(), plan.delay_ms);
    }
    Reach {
        touched: touched.into_iter().collect(),
        due: progress.watermark,
    }
}

/// Counts `clicks`, in order, into `windows`, which holds what [`reach`] asked for.
#[must_use]
pub fn apply<'a>(
    plan: &Plan,
    progress: Progress,
    clicks: &[&'a Click],
    mut windows: Windows<'a>,
) -> Outcome<'a> {
    let mut touched = HashSet::new();
    let mut progress = progress;
    let mut verdicts = Vec::with_capacity(clicks.len());
    for click in clicks {
        let before = progress.watermark;
        let mut counted = 0_usize;
        let mut late = false;
        let mut missed = Vec::new();
        for (key, lateness_ms) in windows_of(plan, click) {
            if before.gone(key.end_ms, lateness_ms) {
                missed.push(MissedWindow {
                    rollup: key.rollup,
                    start_ms: key.start_ms,
                    end_ms: key.end_ms,
                });
                continue;
            }
            counted += 1;
            late |= before.ended(key.end_ms);
            if !touched.contains(&key) {
                touched.insert(key.clone());
            }
            let kind = plan.rollups[usize::from(key.rollup)].aggregate;
            let window = windows.entry(key).or_insert_with(|| Window {
                fired: false,
                state: State::identity(kind),
            });
            window.state.add(click);
        }
        let status = match (counted, late) {
            (0, _) if !missed.is_empty() => Status::Dropped,
            (_, true) => Status::Late,
            (_, false) => Status::OnTime,
        };
        if status == Status::Dropped {
            missed.clear();
        }
        verdicts.push(Verdict {
            watermark_before: before,
            status,
            missed,
        });
        progress = progress.after(click.at.millis(), plan.delay_ms);
    }
    Outcome {
        verdicts,
        progress,
        changed: emit(windows, progress.watermark, |key| touched.contains(key)),
    }
}

/// Ends the input: the watermark moves to the end of time, and everything in `windows` that has
/// not fired fires.
#[must_use]
pub fn close(progress: Progress, windows: Windows<'_>) -> Outcome<'_> {
    let progress = Progress {
        watermark: Watermark::END_OF_TIME,
        ..progress
    };
    Outcome {
        verdicts: Vec::new(),
        progress,
        changed: emit(windows, progress.watermark, |_| false),
    }
}

impl Progress {
    fn after(self, event_ms: i64, delay_ms: i64) -> Self {
        Self {
            watermark: self.watermark.after(event_ms, delay_ms),
            newest_event_ms: Some(self.newest_event_ms.map_or(event_ms, |n| n.max(event_ms))),
        }
    }
}

/// The windows of every rollup that hold `click`, and how late each still takes it.
fn windows_of<'a>(plan: &Plan, click: &'a Click) -> impl Iterator<Item = (WindowKey<'a>, i64)> {
    (0_u16..)
        .zip(&plan.rollups)
        .flat_map(move |(place, rollup)| {
            let group = rollup.group_by.group_of(click);
            group.into_iter().flat_map(move |group| {
                assign(rollup.window, click.at.millis()).map(move |Bounds { start_ms, end_ms }| {
                    let key = WindowKey {
                        start_ms,
                        end_ms,
                        rollup: place,
                        group: group.clone(),
                    };
                    (key, rollup.lateness_ms)
                })
            })
        })
}

/// Fires what has ended, and keeps what is different now, in the order of emission.
fn emit<'a>(
    windows: Windows<'a>,
    watermark: Watermark,
    touched: impl Fn(&WindowKey<'a>) -> bool,
) -> Vec<Changed<'a>> {
    let mut changed: Vec<Changed<'a>> = windows
        .into_iter()
        .filter_map(|(key, mut window)| {
            let fires = !window.fired && watermark.ended(key.end_ms);
            let pane = match (fires, window.fired) {
                (true, _) => Pane::OnTime,
                (false, true) if touched(&key) => Pane::Late,
                (false, false) if touched(&key) => Pane::Early,
                (false, _) => return None,
            };
            window.fired |= fires;
            Some(Changed { pane, key, window })
        })
        .collect();
    changed.sort_unstable_by(|a, b| (a.pane, &a.key).cmp(&(b.pane, &b.key)));
    changed
}
