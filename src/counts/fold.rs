//! Windows combined group by group, or all groups of them together.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::select::{self, Edge, Stored};
use super::{CountsError, Listed, Part, Place, Reading, Unanswerable};
use crate::engine::aggregate::State;
use crate::rollup::AggregateKind;
use crate::stream::state::WindowState;

/// Most groups that are combined.
pub(super) const MAX_GROUPS: usize = 200_000;

/// Most bytes that their names and states may have, as far as it is known from what is stored.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// How many rows are read at once.
pub(super) const ROWS: usize = 2000;

/// The windows that were combined.
pub(super) struct Fold {
    groups: HashMap<String, Group>,
    bytes: usize,
    hull: Option<Edge>,
    /// How far the window has come that has come least far.
    state: WindowState,
}

struct Group {
    state: State,
    bytes: usize,
}

impl Fold {
    pub(super) fn new() -> Self {
        Self {
            groups: HashMap::new(),
            bytes: 0,
            hull: None,
            state: WindowState::Closed,
        }
    }

    /// How far the least advanced of them has come.
    pub(super) fn state(&self) -> WindowState {
        self.state
    }

    /// Takes in one window of one group.
    pub(super) fn take(&mut self, row: Stored, reading: &Reading<'_>) -> Result<(), CountsError> {
        let kind = reading.rollup.aggregate;
        let (start_ms, end_ms) = self.hull.unwrap_or((row.start_ms, row.end_ms));
        self.hull = Some((start_ms.min(row.start_ms), end_ms.max(row.end_ms)));
        self.state = self.state.min(reading.state(row.fired, row.end_ms));
        let state = State::from_bytes(kind, &row.state)?;
        let bytes = row.state.len();
        match self.groups.entry(reading.groups.of(row.group_key)) {
            Entry::Vacant(entry) => {
                self.bytes += entry.key().len() + bytes;
                entry.insert(Group { state, bytes });
            }
            Entry::Occupied(mut entry) => {
                let group = entry.get_mut();
                group.state.combine(&state);
                let grown = (group.bytes + bytes).min(most_bytes(kind)).max(group.bytes);
                self.bytes += grown - group.bytes;
                group.bytes = grown;
            }
        }
        if self.groups.len() > MAX_GROUPS || self.bytes > MAX_BYTES {
            return Err(Unanswerable::TooMuch.into());
        }
        Ok(())
    }

    /// What they come to, shown as a window with these bounds and in this state: the groups that
    /// come after `after`, only the greatest if a query asks for them.
    pub(super) fn list(
        self,
        (edge, state): (Edge, WindowState),
        after: Option<&Place>,
        reading: &Reading<'_>,
    ) -> Vec<Listed> {
        let groups = self.groups.into_iter();
        let mut groups: Vec<(String, i64, State)> = groups
            .map(|(name, group)| (name, group.state.weight(), group.state))
            .collect();
        let by_weight = reading.top.is_some();
        if by_weight {
            groups.sort_unstable_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
        } else {
            groups.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        if let Some(top) = reading.top {
            groups.truncate(usize::try_from(top).unwrap_or(usize::MAX));
        }
        let left = groups.into_iter().filter(|(group, weight, _)| {
            after.is_none_or(|place| {
                if by_weight {
                    (Reverse(*weight), &**group) > (Reverse(place.weight), &*place.group)
                } else {
                    **group > *place.group
                }
            })
        });
        let listed = left.map(|(group, weight, folded)| {
            reading.listed(edge, (group, weight), folded.value(), state)
        });
        listed.collect()
    }
}

/// More than this no state of the aggregate grows to, however much is combined.
fn most_bytes(kind: AggregateKind) -> usize {
    match kind {
        AggregateKind::Distinct => 8 * 1024,
        AggregateKind::Top => 48 * 1024,
        AggregateKind::Count
        | AggregateKind::Sum
        | AggregateKind::Min
        | AggregateKind::Max
        | AggregateKind::First
        | AggregateKind::Last => 32,
    }
}

/// A part of the list of the groups of all windows together.
pub(super) async fn merged(reading: &mut Reading<'_>) -> Result<Part, CountsError> {
    let mut fold = Fold::new();
    let mut from = select::beginning((i64::MIN, i64::MIN));
    loop {
        let rows = select::rows(reading.conn, &reading.selection, &from, ROWS).await?;
        let last = rows.len() < ROWS;
        if let Some(row) = rows.last() {
            from = row.next();
        }
        for row in rows {
            fold.take(row, reading)?;
        }
        if last {
            break;
        }
    }
    let (Some(hull), state) = (fold.hull, fold.state) else {
        return Ok(Part::default());
    };
    let items = fold.list((hull, state), reading.after, reading);
    Ok(Part::of(items, false, reading.amount))
}
