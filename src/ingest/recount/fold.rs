//! The fold: clicks into the windows that a recount makes.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::tail::Kept;
use crate::book::hot::WindowSet;
use crate::engine::{self, Bounds, Logged, Plan, Progress, Watermark, Windows};
use crate::ingest::commit::CommitError;
use crate::ingest::commit::windows::{self, Changes};
use crate::ingest::pulse::Pulse;
use crate::rollup::WindowSpec;
use crate::time::Timestamp;

/// How a recount counts.
#[derive(Clone, Debug)]
pub struct Counting {
    /// Into which windows.
    pub windows: WindowSet,
    /// By a bounded plan: nothing is too late.
    pub plan: Plan,
    /// What has ended by this has fired.
    pub watermark: Watermark,
    /// Windows that begin at or before this are left alone, for not all of their clicks are kept.
    pub left_alone_to_ms: Option<i64>,
}

/// Most clicks that are taken in while the book's row is held, and most windows that they may touch.
const LITTLE: (usize, usize) = (2000, 20_000);

/// Most clicks that one transaction takes, and most windows that they may touch.
const PAGE: (usize, usize) = (10_000, 100_000);

impl Counting {
    /// Most clicks that are taken in while the book's row is held.
    #[must_use]
    pub fn little(&self) -> usize {
        self.bounded(LITTLE)
    }

    /// Most clicks that one transaction takes.
    #[must_use]
    pub fn page(&self) -> usize {
        self.bounded(PAGE)
    }

    fn bounded(&self, (clicks, windows): (usize, usize)) -> usize {
        (windows / self.plan.windows_per_click()).clamp(1, clicks)
    }
}

/// Counts clicks.
///
/// # Errors
/// What the database says, or a stored window cannot be read.
pub async fn fold(
    conn: &mut PgConnection,
    counting: &Counting,
    clicks: &[Kept],
    now: Timestamp,
    pulse: &Pulse,
) -> Result<(), CommitError> {
    let Counting {
        windows: set,
        plan,
        watermark,
        left_alone_to_ms,
    } = counting;
    let logged: Vec<Logged<'_>> = clicks
        .iter()
        .map(|kept| Logged {
            seq: kept.seq,
            click: &kept.click,
        })
        .collect();
    // Twenty thousand clicks take longer than others should wait for the thread.
    let mut reach = tokio::task::block_in_place(|| engine::reach(plan, Progress::NONE, &logged));
    let mut loaded = windows::load(conn, &[(*set, plan, &reach)], pulse).await?;
    let mut loaded = loaded.remove(&set.book).unwrap_or_default();
    pulse.beat();
    for (key, window) in &mut loaded {
        // Part of a session had ended; whether all of it has, its end says.
        let rollup = &plan.rollups[usize::from(key.rollup)];
        window.fired &= !matches!(rollup.window, WindowSpec::Session { .. });
    }
    if let Some(to_ms) = *left_alone_to_ms {
        let left_alone = LeftAlone::of(&loaded, plan, to_ms);
        reach.leave_out(&logged, |rollup, group, at_ms| {
            left_alone.holds(rollup, group, at_ms)
        });
    }
    let mut changed =
        tokio::task::block_in_place(|| engine::fold(plan, &logged, reach, loaded, *watermark));
    if let Some(to_ms) = left_alone_to_ms {
        changed.retain(|window| window.key.start_ms > *to_ms);
    }
    let mut put = Changes::default();
    put.note(*set, plan, changed);
    windows::write(conn, &[], &put, now, pulse).await?;
    Ok(())
}

/// The sessions that are left alone, which no click may change. What a window that begins later loses
/// by that is nothing: whatever overlapped one of these went into it when it came.
struct LeftAlone<'l> {
    /// By rollup and group, with the gap of the rollup.
    sessions: HashMap<(u16, &'l str), Vec<(Bounds, i64)>>,
}

impl<'l> LeftAlone<'l> {
    fn of(loaded: &'l Windows<'_>, plan: &Plan, to_ms: i64) -> Self {
        let mut sessions: HashMap<(u16, &str), Vec<(Bounds, i64)>> = HashMap::new();
        for (key, _) in loaded.iter().filter(|(key, _)| key.start_ms <= to_ms) {
            let rollup = &plan.rollups[usize::from(key.rollup)];
            if let WindowSpec::Session { gap_ms } = rollup.window {
                let of_group = sessions.entry((key.rollup, &*key.group)).or_default();
                of_group.push((key.bounds(), gap_ms));
            }
        }
        Self { sessions }
    }

    fn holds(&self, rollup: u16, group: &str, at_ms: i64) -> bool {
        let of_group = self.sessions.get(&(rollup, group));
        of_group.is_some_and(|sessions| {
            sessions.iter().any(|(bounds, gap_ms)| {
                bounds.overlaps(Bounds {
                    start_ms: at_ms,
                    end_ms: at_ms.saturating_add(*gap_ms),
                })
            })
        })
    }
}
