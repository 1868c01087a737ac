//! Idleness: when nothing is received, a book's event time goes on with the clock, so that the last
//! windows of a quiet book fire and close by themselves.
//!
//! **Promises.** A step is taken under the row's lock, against the stored time of last receipt, so
//! neither a restart nor another book's clicks move a watermark; not while this process has clicks
//! of the book in hand; and only where it fires or closes a window. It is written to the book's log,
//! so that a replay reads it instead of a clock.
//!
//! **Called by** `committer`, which takes the steps in the books' lanes; [`run`] looks for the books.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::commit::windows::{self, Changes};
use super::commit::{CommitError, Committed, Refusal};
use super::lane::{Lanes, Work};
use super::pulse::Pulse;
use crate::book::hot::{self, LockedBook};
use crate::book::{self, table};
use crate::engine::{self, Idleness, Outcome, Plan, Reach, Watermark};
use crate::frame::{self, NewFrame, Pruning};
use crate::telemetry;
use crate::time::Timestamp;

/// How often idle books are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many steps wait in lanes at a time.
const STEPS_AT_ONCE: usize = 32;

/// Looks for idle books that have something due, and has their lanes take the steps, a few at a
/// time, so that after a silence of all books clicks still find room.
pub async fn run(pool: PgPool, lanes: Arc<Lanes>, stop: CancellationToken) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = look(&pool, &lanes) => {}
        }
    }
}

async fn look(pool: &PgPool, lanes: &Lanes) {
    let due = match table::idle_and_due(pool, Timestamp::now()).await {
        Ok(due) => due,
        Err(error) => {
            tracing::debug!(error = %telemetry::chain(&error), "idle books were not looked for");
            return;
        }
    };
    let steps = stream::iter(due).for_each_concurrent(STEPS_AT_ONCE, |(id, slug)| async move {
        // What went wrong is logged where it did; the next look finds the book again.
        let _ = lanes.submit(id, Work::Idle { slug }).await;
    });
    steps.await;
}

/// Takes a book's step, if there is one to take: not while clicks of it are `in_hand`.
///
/// # Errors
/// Everything was rolled back.
pub async fn step(
    conn: &mut PgConnection,
    now: Timestamp,
    id: Uuid,
    in_hand: impl Fn() -> bool,
    pulse: &Pulse,
) -> Result<Committed, CommitError> {
    let mut tx = conn.begin().await?;
    let mut locked = None;
    // Whoever holds the row is at work on the book; the next look finds it again.
    if hot::take_if_free(&mut tx, id).await? {
        locked = hot::lock(&mut tx, &[id]).await?.pop();
    }
    // Nobody waits for the answer.
    let Some(mut book) = locked else {
        tx.rollback().await?;
        return Ok(Committed::refused(Refusal::NoSuchBook));
    };
    // After the lock and after `now` was taken: what was received before it and is not in hand any
    // more was committed before the lock.
    let to = idle_watermark(&book, now).filter(|_| !in_hand());
    let Some(to) = to else {
        tx.rollback().await?;
        return Ok(Committed::unchanged(&book));
    };
    let plan = book::plan(&book.settings, &book.rollups)?;
    let watermark = book.progress.watermark;
    book.due = windows::next_due(&mut tx, &book, &plan, watermark).await?;
    if !book.due.by(to) {
        // Nothing to fire or close: only when there will be is written down.
        frame::store(&mut tx, &[&book], &[]).await?;
        tx.commit().await?;
        return Ok(Committed::unchanged(&book));
    }
    pulse.beat();
    let frames = advance(&mut tx, &mut book, &plan, to, now, pulse).await?;
    frame::store(&mut tx, &[&book], &frames).await?;
    let pruned = frame::prune(&mut tx, &mut [&mut book], Pruning::InTurn).await?;
    tx.commit().await?;
    Ok(Committed::moved(&book, frames.len(), pruned))
}

fn idle_watermark(book: &LockedBook, now: Timestamp) -> Option<Watermark> {
    let idleness = Idleness {
        timeout_ms: book.settings.idle_timeout_ms?,
        delay_ms: book.settings.delay_ms,
        last_received_ms: book.last_received_ms?,
        now_ms: now.millis(),
    };
    idleness.watermark(book.progress).filter(|_| !book.closed)
}

/// Moves the watermark, fires what has ended, and logs the step. Gives the frames that tell of it.
async fn advance(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    plan: &Plan,
    to: Watermark,
    now: Timestamp,
    pulse: &Pulse,
) -> Result<Vec<NewFrame>, CommitError> {
    let mut loaded = windows::load(conn, &[(book.windows(), plan, &Reach::due(to))], pulse).await?;
    let unfired = loaded.remove(&book.id).unwrap_or_default();
    let Outcome {
        progress, changed, ..
    } = engine::advance(plan, book.progress, to, unfired);
    book.progress = progress;
    book.revision += 1;
    let mut frames = Vec::new();
    if !changed.is_empty() {
        frames = frame::mint_counts(book, now, &plan.rollups, &changed)?;
    }
    let mut changes = Changes::default();
    changes.note(book.windows(), plan, changed);
    windows::write(conn, &[], &changes, now, pulse).await?;
    book.due = windows::next_due(conn, book, plan, to).await?;
    let body = json!({ "watermark_ms": to.stored() });
    hot::log(conn, book, "idle", now.millis(), &body).await?;
    Ok(frames)
}
