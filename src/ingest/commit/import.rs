//! The transaction of an import: clicks of long ago, which are never too late and of which readers are
//! not told one by one.
//!
//! They are logged without a watermark before them, so that a recount takes them as they were taken
//! here. The watermark stands until the import ends ([`crate::ingest::runs`]), but a window that will
//! have ended by then fires at once and in silence: otherwise the first live click behind it would fire
//! all of them in one transaction.

use std::collections::HashSet;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::clicks::{self, LookFor};
use super::outcome::Tally;
use super::windows::{self, Changes};
use super::{CommitError, Committed, Refusal};
use crate::book::chapters::Structures;
use crate::book::hot::{self, LockedBook};
use crate::book::{self, Totals};
use crate::click::Click;
use crate::engine::{self, Logged, Plan, Progress, Watermark};
use crate::frame::{self, Pruning};
use crate::ingest::pulse::Pulse;
use crate::ingest::runs;
use crate::run::moving::{self, Step};
use crate::time::Timestamp;

/// Shortest time, in milliseconds, between two frames that tell how far a run is.
pub const TELL_EVERY_MS: i64 = 250;

/// Some lines of an import.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Part {
    /// Which run.
    pub run: Uuid,
    /// Of the process that holds it.
    pub epoch: i64,
    /// What the lines hold, in their order.
    pub clicks: Vec<Click>,
    /// The step that they are, all but how the clicks fare.
    pub step: Step,
}

/// Commits some lines of an import.
///
/// # Errors
/// Everything was rolled back; [`CommitError::LostLease`] if the run is not ours to write any more, or
/// these lines are committed.
pub async fn commit(
    conn: &mut PgConnection,
    now: Timestamp,
    (book, part): (Uuid, &Part),
    look_for: LookFor,
    structures: &Structures,
    pulse: &Pulse,
) -> Result<Committed, CommitError> {
    let mut tx = conn.begin().await?;
    let Some(mut book) = hot::lock(&mut tx, &[book]).await?.pop() else {
        tx.rollback().await?;
        return Ok(Committed::refused(Refusal::NoSuchBook));
    };
    let fresh = fresh(&mut tx, &mut book, &part.clicks, look_for).await?;
    pulse.beat();
    let newest_ms = fresh.iter().map(|logged| logged.click.at.millis()).max();
    let step = Step {
        counted: to_i64(fresh.len()),
        duplicates: to_i64(part.clicks.len() - fresh.len()),
        newest_ms,
        ..part.step.clone()
    };
    let moved = moving::step(&mut tx, book.id, (part.run, part.epoch), &step).await?;
    let moved = moved.ok_or(CommitError::LostLease)?;
    if !fresh.is_empty() {
        let plan = book::plan(&book.settings, &book.rollups)?;
        let delay_ms = plan.delay_ms;
        let mut structures = structures
            .of_locked(&mut tx, std::slice::from_ref(&book))
            .await?;
        let structure = structures.remove(&book.id).unwrap_or_default();
        let plan = Plan { structure, ..plan }.bounded();
        let seen = moved.newest_ms.or(newest_ms);
        let fires_to = seen.map_or(book.progress, |ms| book.progress.after(ms, delay_ms));
        count(
            &mut tx,
            &book,
            &plan,
            fires_to.watermark,
            &fresh,
            now,
            pulse,
        )
        .await?;
        pulse.beat();
    }
    let totals = Totals {
        received: to_i64(part.clicks.len()) + step.rejected,
        on_time: step.counted,
        duplicates: step.duplicates,
        rejected: step.rejected,
        ..Totals::default()
    };
    book.totals.add(&totals);
    book.revision += 1;
    let mut frames = Vec::new();
    if moved
        .frame_ms
        .is_none_or(|told| now.millis() - told >= TELL_EVERY_MS)
    {
        frames.push(runs::tell(&mut tx, &mut book, part.run, now).await?);
    }
    frame::store(&mut tx, &[&book], &frames).await?;
    let pruned = frame::prune(&mut tx, &mut [&mut book], Pruning::InTurn).await?;
    tx.commit().await?;
    let committed = Committed::moved(&book, frames.len(), pruned);
    Ok(Committed {
        tally: Tally {
            totals,
            ..committed.tally
        },
        ..committed
    })
}

/// The clicks that are not in the log, each once, with their places in it.
async fn fresh<'a>(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    clicks: &'a [Click],
    look_for: LookFor,
) -> Result<Vec<Logged<'a>>, sqlx::Error> {
    // Ids come from the lines, so whatever is looked for at all has been sent.
    let looked_for = match look_for {
        LookFor::Nothing => Vec::new(),
        LookFor::Sent | LookFor::All => clicks.iter().map(|c| (book.id, c.id.uuid)).collect(),
    };
    let known = clicks::known(conn, looked_for).await?;
    let known = known.get(&book.id);
    let mut seen = HashSet::with_capacity(clicks.len());
    let mut fresh = Vec::with_capacity(clicks.len());
    for click in clicks {
        let id = click.id.uuid;
        if known.is_some_and(|known| known.contains_key(&id)) || !seen.insert(id) {
            continue;
        }
        let seq = book.next_seq;
        book.next_seq += 1;
        fresh.push(Logged { seq, click });
    }
    Ok(fresh)
}

/// Logs clicks and counts them by a bounded plan; what has ended by `fires_to` fires.
async fn count(
    conn: &mut PgConnection,
    book: &LockedBook,
    plan: &Plan,
    fires_to: Watermark,
    fresh: &[Logged<'_>],
    now: Timestamp,
    pulse: &Pulse,
) -> Result<(), CommitError> {
    let set = book.windows();
    let mut reach = engine::reach(plan, Progress::NONE, fresh);
    reach.due = fires_to;
    let mut loaded = windows::load(conn, &[(set, plan, &reach)], pulse).await?;
    let loaded = loaded.remove(&book.id).unwrap_or_default();
    pulse.beat();
    let changed = engine::fold(plan, fresh, reach, loaded, fires_to);
    let rows: Vec<clicks::Row<'_>> = fresh
        .iter()
        .map(|logged| clicks::Row {
            book: book.id,
            logged: *logged,
            watermark_before: Watermark::MINUS_INFINITY,
        })
        .collect();
    let mut put = Changes::default();
    put.note(set, plan, changed);
    windows::write(conn, &rows, &put, now, pulse).await?;
    Ok(())
}

fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
