//! Windows as they are.

use std::cmp::Reverse;

use super::fold::{Fold, ROWS};
use super::select::{self, Edge, Key};
use super::{CountsError, Groups, Listed, Part, Place, Reading, steps};

/// Most windows whose greatest groups one statement finds.
const MOST_AT_ONCE: usize = 512;

/// A part of the list of the windows.
pub(super) async fn list(reading: &mut Reading<'_>) -> Result<Part, CountsError> {
    let enough = reading.amount.counts().saturating_add(1);
    let items = match (reading.groups, reading.top) {
        (Groups::Total, _) => totals(reading, enough).await?,
        (Groups::All, None) => all_groups(reading, enough).await?,
        (Groups::All, Some(top)) => greatest_groups(reading, top, enough).await?,
    };
    let more = items.len() >= enough;
    Ok(Part::of(items, more, reading.amount))
}

async fn all_groups(reading: &mut Reading<'_>, enough: usize) -> Result<Vec<Listed>, CountsError> {
    let from = reading.after.map_or_else(first, |place| {
        select::after((place.start_ms, place.end_ms), &place.group)
    });
    let rows = select::rows(reading.conn, &reading.selection, &from, enough).await?;
    let items = rows.into_iter().map(|row| reading.stored(row));
    Ok(items.collect::<Result<_, _>>()?)
}

/// All groups of each window together: its rows stand side by side, so no more than one window is held.
async fn totals(reading: &mut Reading<'_>, enough: usize) -> Result<Vec<Listed>, CountsError> {
    let mut items: Vec<Listed> = Vec::new();
    let mut filling: Option<(Edge, Fold)> = None;
    let mut from = reading.after.map_or_else(first, |place| {
        select::beginning((place.start_ms, place.end_ms.saturating_add(1)))
    });
    while items.len() < enough {
        let rows = select::rows(reading.conn, &reading.selection, &from, ROWS).await?;
        let last = rows.len() < ROWS;
        if let Some(row) = rows.last() {
            from = row.next();
        }
        for row in rows {
            let edge = (row.start_ms, row.end_ms);
            let mut fold = match filling.take() {
                Some((of, fold)) if of == edge => fold,
                full => {
                    items.extend(total(full, reading));
                    Fold::new()
                }
            };
            fold.take(row, reading)?;
            filling = Some((edge, fold));
        }
        if last {
            items.extend(total(filling, reading));
            break;
        }
    }
    items.truncate(enough);
    Ok(items)
}

fn total(full: Option<(Edge, Fold)>, reading: &Reading<'_>) -> Vec<Listed> {
    full.map_or_else(Vec::new, |(edge, fold)| {
        let state = fold.state();
        fold.list((edge, state), None, reading)
    })
}

async fn greatest_groups(
    reading: &mut Reading<'_>,
    top: i64,
    enough: usize,
) -> Result<Vec<Listed>, CountsError> {
    let mut items: Vec<Listed> = Vec::new();
    let mut from: Edge = reading
        .after
        .map_or((i64::MIN, i64::MIN), |place| (place.start_ms, place.end_ms));
    // As few windows as can be enough; more, if they turn out to have few groups.
    let mut at_once = enough.div_ceil(usize::try_from(top).unwrap_or(1).max(1));
    while items.len() < enough {
        at_once = at_once.clamp(1, MOST_AT_ONCE);
        let windows = steps::windows(reading.conn, &reading.selection, from, at_once).await?;
        let Some(last) = windows.last() else { break };
        from = (last.0, last.1.saturating_add(1));
        let rows = steps::greatest(reading.conn, &reading.selection, &windows, top).await?;
        for row in rows {
            let edge = (row.start_ms, row.end_ms);
            if reading
                .after
                .is_none_or(|place| follows(edge, (row.weight, &row.group_key), place))
            {
                items.push(reading.stored(row)?);
            }
        }
        if windows.len() < at_once {
            break;
        }
        at_once = at_once.saturating_mul(2);
    }
    Ok(items)
}

/// Whether a group of a window comes after a place in the list of the greatest.
fn follows(edge: Edge, (weight, group): (i64, &str), place: &Place) -> bool {
    (edge, Reverse(weight), group)
        > (
            (place.start_ms, place.end_ms),
            Reverse(place.weight),
            &*place.group,
        )
}

fn first() -> Key {
    select::beginning((i64::MIN, i64::MIN))
}
