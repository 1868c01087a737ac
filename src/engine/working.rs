//! The windows that a batch works on, from when they are loaded until they are told.

use std::borrow::Cow;
use std::collections::HashMap;

use super::aggregate::{Sample, State};
use super::session::Sessions;
use super::{Bounds, Changed, Pane, Plan, Watermark, Window, WindowKey, Windows};
use crate::rollup::{Rollup, WindowSpec};

/// The windows that a batch works on.
pub(super) struct Working<'a> {
    /// Tumbling and sliding ones.
    aligned: HashMap<WindowKey<'a>, Held>,
    /// By rollup and group.
    sessions: HashMap<(u16, Cow<'a, str>), Sessions>,
}

struct Held {
    window: Window,
    touched: bool,
}

impl<'a> Working<'a> {
    pub(super) fn new(plan: &Plan, loaded: Windows<'a>) -> Self {
        let mut working = Self {
            aligned: HashMap::with_capacity(loaded.len()),
            sessions: HashMap::new(),
        };
        for (key, window) in loaded {
            match plan.rollups[usize::from(key.rollup)].window {
                WindowSpec::Session { .. } => {
                    let bounds = key.bounds();
                    let of_group = working.sessions.entry((key.rollup, key.group));
                    of_group.or_default().insert(bounds, window);
                }
                WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } => {
                    let touched = false;
                    working.aligned.insert(key, Held { window, touched });
                }
            }
        }
        working
    }

    /// Counts a click in the window of `group` at `bounds`; says whether that window had fired or
    /// ended by the time that the watermark was here.
    pub(super) fn count(
        &mut self,
        (place, rollup): (u16, &Rollup),
        group: Cow<'a, str>,
        bounds: Bounds,
        sample: &Sample<'_>,
        watermark: Watermark,
    ) -> bool {
        let ended = watermark.ended(bounds.end_ms);
        let identity = || State::identity(rollup.aggregate);
        if let WindowSpec::Session { .. } = rollup.window {
            let sessions = self.sessions.entry((place, group)).or_default();
            let had_fired = sessions.take(bounds, identity(), sample, watermark);
            return ended || had_fired;
        }
        let key = WindowKey::new(place, bounds, group);
        let held = self.aligned.entry(key).or_insert_with(|| Held {
            window: Window {
                fired: false,
                state: identity(),
            },
            touched: false,
        });
        held.touched = true;
        held.window.state.add(sample);
        ended
    }

    /// Fires what has ended, and gives what is different now, in the order of emission.
    pub(super) fn emit(self, watermark: Watermark) -> Vec<Changed<'a>> {
        let aligned = self.aligned.into_iter().filter_map(|(key, held)| {
            let Held { window, touched } = held;
            let fires = window.fired || watermark.ended(key.end_ms);
            let pane = pane(window.fired, fires, touched)?;
            let state = window.state;
            Some(Changed {
                pane,
                key,
                window: Window {
                    fired: fires,
                    state,
                },
                replaces: Vec::new(),
            })
        });
        let sessions = self
            .sessions
            .into_iter()
            .flat_map(|((rollup, group), all)| {
                all.into_all().filter_map(move |(bounds, session)| {
                    let fired = session.has_fired(watermark);
                    let pane = pane(session.a_part_had_fired, fired, session.touched)?;
                    let mut replaces = session.parts;
                    replaces.retain(|part| *part != bounds);
                    replaces.sort_unstable();
                    let state = session.state;
                    Some(Changed {
                        pane,
                        key: WindowKey::new(rollup, bounds, group.clone()),
                        window: Window { fired, state },
                        replaces,
                    })
                })
            });
        let mut changed: Vec<Changed<'a>> = aligned.chain(sessions).collect();
        changed.sort_unstable_by(|a, b| (a.pane, &a.key).cmp(&(b.pane, &b.key)));
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
