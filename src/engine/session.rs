//! Sessions: windows whose bounds hang on one another's clicks.
//!
//! The sessions of a group never overlap. A click that is still taken cannot overlap a closed one,
//! for a session is closed only a gap after a click at its end could come; so whatever overlaps is
//! merged, and no label has to be looked at.

use std::collections::BTreeMap;

use super::aggregate::{Sample, State};
use super::{Bounds, Watermark, Window};

/// The sessions of one group.
#[derive(Default, Debug)]
pub(super) struct Sessions {
    by_start: BTreeMap<i64, Session>,
}

/// One session, as far as the batch has come.
#[derive(Debug)]
pub(super) struct Session {
    end_ms: i64,
    /// As of when it was last touched; [`Session::has_fired`] knows it as of now.
    fired: bool,
    pub(super) state: State,
    pub(super) touched: bool,
    /// The sessions of the table that went into it.
    pub(super) parts: Vec<Bounds>,
    /// Whether any of these had fired.
    pub(super) a_part_had_fired: bool,
}

impl Session {
    /// Whether it has fired by the time that the watermark is here. Nothing else happened to it
    /// since it was last touched, so this is all that is to be known.
    pub(super) fn has_fired(&self, watermark: Watermark) -> bool {
        self.fired || watermark.ended(self.end_ms)
    }

    fn take_in(&mut self, other: Self, watermark: Watermark) {
        self.fired = self.fired || other.has_fired(watermark);
        self.end_ms = self.end_ms.max(other.end_ms);
        self.state.combine(&other.state);
        self.parts.extend(other.parts);
        self.a_part_had_fired |= other.a_part_had_fired;
    }
}

impl Sessions {
    /// Adds a session of the table.
    pub(super) fn insert(&mut self, bounds: Bounds, window: Window) {
        let session = Session {
            end_ms: bounds.end_ms,
            fired: window.fired,
            state: window.state,
            touched: false,
            parts: vec![bounds],
            a_part_had_fired: window.fired,
        };
        self.by_start.insert(bounds.start_ms, session);
    }

    /// Takes in a click whose own window is `own`: it and every session that it overlaps become
    /// one. Says whether one of these had fired.
    pub(super) fn take(
        &mut self,
        own: Bounds,
        identity: State,
        sample: &Sample<'_>,
        watermark: Watermark,
    ) -> bool {
        let mut start_ms = own.start_ms;
        let mut merged = Session {
            end_ms: own.end_ms,
            fired: false,
            state: identity,
            touched: true,
            parts: Vec::new(),
            a_part_had_fired: false,
        };
        while let Some((&start, _)) = self
            .by_start
            .range(..own.end_ms)
            .next_back()
            .filter(|(_, session)| session.end_ms > own.start_ms)
        {
            let Some(session) = self.by_start.remove(&start) else {
                break;
            };
            start_ms = start_ms.min(start);
            merged.take_in(session, watermark);
        }
        merged.state.add(sample);
        let had_fired = merged.fired;
        self.by_start.insert(start_ms, merged);
        had_fired
    }

    /// All of them, by start.
    pub(super) fn into_all(self) -> impl Iterator<Item = (Bounds, Session)> {
        self.by_start.into_iter().map(|(start_ms, session)| {
            let end_ms = session.end_ms;
            (Bounds { start_ms, end_ms }, session)
        })
    }
}
