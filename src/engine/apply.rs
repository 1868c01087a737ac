//! The fold: judges clicks, counts them, moves the watermark, fires windows.

use super::aggregate::Sample;
use super::window::assign;
use super::working::Working;
use super::{
    Counting, Logged, MissedWindow, Outcome, Plan, Progress, Status, Verdict, Watermark, Windows,
};

/// Counts `clicks`, in order, into `windows`, which holds what [`reach`](super::reach()) asked for.
#[must_use]
pub fn apply<'a>(
    plan: &Plan,
    progress: Progress,
    clicks: &[Logged<'a>],
    windows: Windows<'a>,
) -> Outcome<'a> {
    let mut working = Working::new(plan, windows);
    let mut progress = progress;
    let mut verdicts = Vec::with_capacity(clicks.len());
    for logged in clicks {
        verdicts.push(count(plan, progress.watermark, *logged, &mut working));
        progress = progress.after(logged.click.at.millis(), plan.delay_ms);
    }
    Outcome {
        verdicts,
        progress,
        changed: working.emit(progress.watermark),
    }
}

/// Moves the watermark without a click: everything in `windows`, which are all that have not fired
/// and end at or before `to`, fires. The end of input moves it to [`Watermark::END_OF_TIME`].
#[must_use]
pub fn advance<'a>(
    plan: &Plan,
    progress: Progress,
    to: Watermark,
    windows: Windows<'a>,
) -> Outcome<'a> {
    let watermark = progress.watermark.max(to);
    Outcome {
        verdicts: Vec::new(),
        progress: Progress {
            watermark,
            ..progress
        },
        changed: Working::new(plan, windows).emit(watermark),
    }
}

/// Judges one click against the watermark as it stood before it, and counts it wherever it is not
/// too late.
fn count<'a>(
    plan: &Plan,
    watermark_before: Watermark,
    Logged { seq, click }: Logged<'a>,
    working: &mut Working<'a>,
) -> Verdict {
    let at_ms = click.at.millis();
    let mut counted = false;
    let mut late = false;
    let mut missed = Vec::new();
    for counting in plan.counting(click) {
        let Counting {
            place,
            rollup,
            group,
            item,
        } = counting;
        let sample = Sample { at_ms, seq, item };
        for bounds in assign(rollup.window, at_ms) {
            if watermark_before.gone(bounds.end_ms, rollup.lateness_ms) {
                missed.push(MissedWindow {
                    rollup: place,
                    bounds,
                });
                continue;
            }
            counted = true;
            let group = group.clone();
            late |= working.count((place, rollup), group, bounds, &sample, watermark_before);
        }
    }
    let status = match (counted, late) {
        (false, _) if !missed.is_empty() => Status::Dropped,
        (_, true) => Status::Late,
        (_, false) => Status::OnTime,
    };
    if status == Status::Dropped {
        missed.clear();
    }
    Verdict {
        watermark_before,
        status,
        missed,
    }
}
