//! The windows that a batch works on, from when they are loaded until they are told.

use super::aggregate::{Sample, State};
use super::groups::{Group, Groups};
use super::reach::Reached;
use super::session::Sessions;
use super::{Bounds, Changed, Pane, Plan, Watermark, Window, WindowKey, Windows};
use crate::rollup::{Rollup, WindowSpec};

/// The windows that a batch works on.
pub(super) struct Working<'a>(Groups<'a, Kept>);

/// The windows of one group.
enum Kept {
    /// Tumbling and sliding ones, by start.
    Aligned(Vec<Held>),
    Sessions(Sessions),
}

struct Held {
    bounds: Bounds,
    window: Window,
    touched: bool,
}

impl Held {
    fn empty(bounds: Bounds, rollup: &Rollup) -> Self {
        Self {
            bounds,
            window: Window {
                fired: false,
                state: State::identity(rollup.aggregate),
            },
            touched: false,
        }
    }
}

impl Kept {
    /// Room for what clicks of `rollup` reach.
    fn new(rollup: &Rollup, reached: &[Bounds]) -> Self {
        match rollup.window {
            WindowSpec::Session { .. } => Self::Sessions(Sessions::default()),
            WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } => {
                let windows = reached.iter().map(|bounds| Held::empty(*bounds, rollup));
                Self::Aligned(windows.collect())
            }
        }
    }

    fn insert(&mut self, rollup: &Rollup, bounds: Bounds, window: Window) {
        match self {
            Self::Sessions(sessions) => sessions.insert(bounds, window),
            Self::Aligned(windows) => at(windows, bounds, rollup).window = window,
        }
    }

    /// Adds to `all` what is different once the watermark is here.
    fn emit<'a>(
        self,
        key: impl Fn(Bounds) -> WindowKey<'a>,
        watermark: Watermark,
        all: &mut Vec<Changed<'a>>,
    ) {
        match self {
            Self::Aligned(windows) => all.extend(windows.into_iter().filter_map(|held| {
                let Window { fired, state } = held.window;
                let fires = fired || watermark.ended(held.bounds.end_ms);
                Some(Changed {
                    pane: pane(fired, fires, held.touched)?,
                    key: key(held.bounds),
                    window: Window {
                        fired: fires,
                        state,
                    },
                    replaces: Vec::new(),
                })
            })),
            Self::Sessions(sessions) => {
                all.extend(sessions.into_all().filter_map(|(bounds, session)| {
                    let fired = session.has_fired(watermark);
                    let pane = pane(session.a_part_had_fired, fired, session.touched)?;
                    let mut replaces = session.parts;
                    replaces.retain(|part| *part != bounds);
                    replaces.sort_unstable();
                    let state = session.state;
                    Some(Changed {
                        pane,
                        key: key(bounds),
                        window: Window { fired, state },
                        replaces,
                    })
                }));
            }
        }
    }
}

/// The window at `bounds`, made if it is not there. Most clicks fall into the newest.
fn at<'h>(windows: &'h mut Vec<Held>, bounds: Bounds, rollup: &Rollup) -> &'h mut Held {
    let newest = windows.len().saturating_sub(1);
    let place = match windows.last() {
        Some(last) if last.bounds == bounds => newest,
        _ => windows
            .binary_search_by_key(&bounds, |held| held.bounds)
            .unwrap_or_else(|place| {
                windows.insert(place, Held::empty(bounds, rollup));
                place
            }),
    };
    &mut windows[place]
}

impl<'a> Working<'a> {
    /// The windows that clicks reach and those that were loaded.
    pub(super) fn new(plan: &Plan, reached: Groups<'a, Reached>, loaded: Windows<'a>) -> Self {
        let rollup = |place: u16| &plan.rollups[usize::from(place)];
        let mut groups = reached.map(|place, reached| Kept::new(rollup(place), &reached.bounds));
        for (key, window) in loaded {
            let bounds = key.bounds();
            let of = rollup(key.rollup);
            // One that is due may be of a group that no click reaches.
            let group = groups.place_of(key.rollup, key.group, || Kept::new(of, &[]));
            groups.held(group).insert(of, bounds, window);
        }
        Self(groups)
    }

    /// Counts a click in the window of the group at place `group` at `bounds`; says whether that
    /// window had fired or ended by the time that the watermark was here.
    pub(super) fn count(
        &mut self,
        group: usize,
        rollup: &Rollup,
        bounds: Bounds,
        sample: &Sample<'_>,
        watermark: Watermark,
    ) -> bool {
        let ended = watermark.ended(bounds.end_ms);
        match self.0.held(group) {
            Kept::Sessions(sessions) => {
                let alone = State::identity(rollup.aggregate);
                ended | sessions.take(bounds, alone, sample, watermark)
            }
            Kept::Aligned(windows) => {
                let held = at(windows, bounds, rollup);
                held.touched = true;
                held.window.state.add(sample);
                ended
            }
        }
    }

    /// Fires what has ended, and gives what is different now, in the order of emission.
    pub(super) fn emit(self, watermark: Watermark) -> Vec<Changed<'a>> {
        let mut changed = Vec::new();
        for Group { rollup, name, held } in self.0.into_sorted() {
            let key = |bounds| WindowKey::new(rollup, bounds, name.clone());
            held.emit(key, watermark, &mut changed);
        }
        // Stable, so that groups stay by name: mostly they are in order already.
        changed.sort_by_key(|changed: &Changed<'_>| {
            let key = &changed.key;
            (changed.pane, key.start_ms, key.end_ms, key.rollup)
        });
        changed
    }
}

/// Why a window is told, if it is.
fn pane(had_fired: bool, fired: bool, touched: bool) -> Option<Pane> {
    match (had_fired, fired) {
        (true, _) => touched.then_some(Pane::Late),
        (false, true) => Some(Pane::OnTime),
        (false, false) => touched.then_some(Pane::Early),
    }
}
