//! What a batch needs from the table of windows.

use super::groups::Groups;
use super::window::assign;
use super::{Bounds, Logged, Plan, Progress, Watermark};
use crate::rollup::WindowSpec;

/// What a batch needs from the table of windows, and which groups its clicks count in.
#[derive(Debug)]
pub struct Reach<'a> {
    pub(super) groups: Groups<'a, Reached>,
    /// Click by click, for each rollup in turn, the place of its group in `groups`; `None`: it does
    /// not count the click.
    pub(super) placed: Vec<Option<usize>>,
    /// Every window not yet fired that ends at or before this is needed too.
    pub due: Watermark,
}

/// Where the clicks of one group fall.
#[derive(Debug)]
pub(super) struct Reached {
    of_sessions: bool,
    /// Windows, each once and by start; of sessions, the stretches of time that the clicks cover,
    /// apart from one another.
    pub(super) bounds: Vec<Bounds>,
}

/// A window of a group, or a stretch of time in which its sessions are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span<'r> {
    /// Place of the rollup in [`Plan::rollups`].
    pub rollup: u16,
    /// The group within the rollup.
    pub group: &'r str,
    /// From when to when.
    pub bounds: Bounds,
}

impl<'a> Reach<'a> {
    /// What is due once the watermark has come to `to`, and nothing else.
    #[must_use]
    pub fn due(to: Watermark) -> Self {
        Self {
            groups: Groups::new(),
            placed: Vec::new(),
            due: to,
        }
    }

    /// The tumbling and sliding windows that its clicks fall into, each once.
    pub fn touched(&self) -> impl Iterator<Item = Span<'_>> {
        self.all(false)
    }

    /// Of each group, the spans that its clicks cover, apart from one another: every session that
    /// overlaps one is needed.
    pub fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        self.all(true)
    }

    /// Leaves clicks out of rollups: each, by its time, in the group of a rollup in which `out` says so.
    /// `clicks` are those that it was made of.
    pub fn leave_out(&mut self, clicks: &[Logged<'_>], out: impl Fn(u16, &str, i64) -> bool) {
        let rollups = self.placed.len() / clicks.len().max(1);
        for (placed, Logged { click, .. }) in self.placed.chunks_mut(rollups.max(1)).zip(clicks) {
            for place in placed {
                let group = place.map(|place| self.groups.group(place));
                if group.is_some_and(|g| out(g.rollup, &g.name, click.at.millis())) {
                    *place = None;
                }
            }
        }
    }

    fn all(&self, of_sessions: bool) -> impl Iterator<Item = Span<'_>> + use<'a, '_> {
        let groups = self.groups.iter();
        let groups = groups.filter(move |group| group.held.of_sessions == of_sessions);
        groups.flat_map(|group| {
            group.held.bounds.iter().map(|bounds| Span {
                rollup: group.rollup,
                group: &group.name,
                bounds: *bounds,
            })
        })
    }
}

/// For how many groups there is room at once; few batches have more.
const USUAL_GROUPS: usize = 1024;

/// Which windows `clicks` need, in the state that the table has them in.
#[must_use]
pub fn reach<'a>(plan: &Plan, progress: Progress, clicks: &[Logged<'a>]) -> Reach<'a> {
    let mut groups = Groups::with_capacity(clicks.len().min(USUAL_GROUPS));
    let mut placed = Vec::with_capacity(clicks.len() * plan.rollups.len());
    let mut progress = progress;
    for Logged { click, .. } in clicks {
        for (rollup_place, rollup) in (0..).zip(&plan.rollups) {
            let group = plan.group_of(rollup, click);
            let Some(group) = group.filter(|_| rollup.item_of(click).is_some()) else {
                placed.push(None);
                continue;
            };
            let place = groups.place_of(rollup_place, group, || Reached {
                of_sessions: matches!(rollup.window, WindowSpec::Session { .. }),
                bounds: Vec::new(),
            });
            placed.push(Some(place));
            let Reached { bounds, .. } = groups.held(place);
            let taken = assign(rollup.window, click.at.millis())
                .filter(|b| !progress.watermark.gone(b.end_ms, rollup.lateness_ms));
            for window in taken {
                // Of tumbling windows, most clicks fall where the one before them fell.
                if bounds.last() != Some(&window) {
                    bounds.push(window);
                }
            }
        }
        progress = progress.after(click.at.millis(), plan.delay_ms);
    }
    for group in groups.iter_mut() {
        let Reached {
            of_sessions,
            bounds,
        } = &mut group.held;
        bounds.sort_unstable();
        if *of_sessions {
            unite(bounds);
        } else {
            bounds.dedup();
        }
    }
    Reach {
        groups,
        placed,
        due: progress.watermark,
    }
}

/// Makes sorted stretches of time as few that lie apart and cover the same.
fn unite(sorted: &mut Vec<Bounds>) {
    sorted.dedup_by(|next, last| {
        let meet = next.start_ms <= last.end_ms;
        if meet {
            last.end_ms = last.end_ms.max(next.end_ms);
        }
        meet
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_meet_become_one() {
        let bounds = |(start_ms, end_ms)| Bounds { start_ms, end_ms };
        let united = |all: &[(i64, i64)]| {
            let mut all: Vec<Bounds> = all.iter().copied().map(bounds).collect();
            unite(&mut all);
            all
        };
        assert_eq!(
            united(&[(0, 10), (5, 15), (15, 18), (20, 30)]),
            [(0, 18), (20, 30)].map(bounds)
        );
        assert_eq!(united(&[]), []);
    }
}
