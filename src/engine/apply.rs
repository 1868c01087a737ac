//! The fold: judges clicks, counts them, moves the watermark, fires windows.

use super::aggregate::Sample;
use super::groups::Groups;
use super::window::assign;
use super::working::Working;
use super::{
    Changed, Logged, MissedWindow, Outcome, Plan, Progress, Reach, Status, Verdict, Watermark,
    Windows,
};

/// Counts `clicks`, in order, into `windows`, which holds what `reach` asked for: the
/// [`reach`](super::reach()) of the same plan, progress and clicks.
#[must_use]
pub fn apply<'a>(
    plan: &Plan,
    progress: Progress,
    clicks: &[Logged<'a>],
    reach: Reach<'a>,
    windows: Windows<'a>,
) -> Outcome<'a> {
    let mut placed = reach.placed.into_iter();
    let mut working = Working::new(plan, reach.groups, windows);
    let mut progress = progress;
    let mut verdicts = Vec::with_capacity(clicks.len());
    for logged in clicks {
        verdicts.push(count(
            plan,
            progress.watermark,
            *logged,
            &mut placed,
            &mut working,
        ));
        progress = progress.after(logged.click.at.millis(), plan.delay_ms);
    }
    Outcome {
        verdicts,
        progress,
        changed: working.emit(progress.watermark),
    }
}

/// Counts clicks of a bounded input, none of which is too late, by a [bounded](Plan::bounded) plan; gives
/// every window that is different then, fired if it has ended by `fires_to`.
#[must_use]
pub fn fold<'a>(
    plan: &Plan,
    clicks: &[Logged<'a>],
    reach: Reach<'a>,
    windows: Windows<'a>,
    fires_to: Watermark,
) -> Vec<Changed<'a>> {
    let mut placed = reach.placed.into_iter();
    let mut working = Working::new(plan, reach.groups, windows);
    for logged in clicks {
        // Whether a window has fired, its final bounds say.
        let before = Watermark::MINUS_INFINITY;
        count(plan, before, *logged, &mut placed, &mut working);
    }
    working.emit(fires_to)
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
        changed: Working::new(plan, Groups::new(), windows).emit(watermark),
    }
}

/// Judges one click against the watermark as it stood before it, and counts it wherever it is not
/// too late. Takes its groups, one for each rollup, from the front of `placed`.
fn count(
    plan: &Plan,
    watermark_before: Watermark,
    Logged { seq, click }: Logged<'_>,
    placed: &mut impl Iterator<Item = Option<usize>>,
    working: &mut Working<'_>,
) -> Verdict {
    let at_ms = click.at.millis();
    let mut counted = false;
    let mut late = false;
    let mut missed = Vec::new();
    for ((place, rollup), group) in (0..).zip(&plan.rollups).zip(placed) {
        let (Some(group), Some(item)) = (group, rollup.item_of(click)) else {
            continue;
        };
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
            late |= working.count(group, rollup, bounds, &sample, watermark_before);
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
