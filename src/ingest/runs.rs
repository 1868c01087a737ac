//! Runs as their book's lane sees them: they begin, tell readers how far they are, and end, each in a
//! transaction that holds the book's row. What an import commits in between is
//! [`super::commit::import`], what a recount does, [`super::recount`].

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::command::Done;
use super::commit::windows::{self, Changes};
use super::commit::{CommitError, Committed, Refusal};
use super::pulse::Pulse;
use super::recount;
use crate::book;
use crate::book::hot::LockedBook;
use crate::engine::{self, Reach};
use crate::frame::{self, NewFrame};
use crate::run::moving::{self, Ending, Moved};
use crate::run::recount::Beginning;
use crate::run::{Kind, NewRun, table};
use crate::time::Timestamp;

/// What is to be done to a run.
#[derive(Clone, PartialEq, Debug)]
pub enum RunCommand {
    /// Begin it.
    Begin(NewRun),
    /// Tell readers how far it is.
    Tell {
        /// Which one.
        run: Uuid,
    },
    /// End an import, or a recount that has failed.
    End {
        /// Which one.
        run: Uuid,
        /// By the process that holds it under this epoch; `None`: by somebody who wants it to end.
        epoch: Option<i64>,
        /// How.
        ending: Ending,
    },
    /// Put what a recount has counted in the place of what the book has.
    Swap {
        /// Which one.
        run: Uuid,
        /// Of the process that holds it.
        epoch: i64,
    },
}

/// Carries out a command; `Err` holds the answer where nothing is to be done.
pub(super) async fn carry_out(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    command: &RunCommand,
    now: Timestamp,
    pulse: &Pulse,
) -> Result<Result<Done, Committed>, CommitError> {
    match command {
        RunCommand::Begin(run) => {
            if book.live_run == Some(run.id) {
                // An earlier try was committed.
                return Ok(Err(Committed::unchanged(book)));
            }
            let refusal = match run.spec.kind() {
                Kind::Import if book.closed => Some(Refusal::Closed),
                _ if book.live_run.is_some() => Some(Refusal::RunLive),
                _ => None,
            };
            if let Some(refusal) = refusal {
                return Ok(Err(Committed::refused(refusal)));
            }
            book.revision += 1;
            Ok(Ok(told(vec![begin(conn, book, run, now).await?])))
        }
        RunCommand::Tell { run } if book.live_run == Some(*run) => {
            book.revision += 1;
            Ok(Ok(told(vec![tell(conn, book, *run, now).await?])))
        }
        RunCommand::Tell { .. } => Ok(Err(Committed::unchanged(book))),
        RunCommand::End { run, epoch, ending } => {
            let ended = moving::end(conn, book.id, (*run, *epoch), ending, now).await?;
            match ended {
                Some(moved) => end(conn, book, *run, moved, now, pulse).await.map(Ok),
                None if table::find(conn, book.id, *run).await?.is_none() => {
                    Ok(Err(Committed::refused(Refusal::NoSuchRun)))
                }
                None => Ok(Err(Committed::unchanged(book))),
            }
        }
        RunCommand::Swap { run, epoch } => {
            recount::swap(conn, book, (*run, *epoch), now, pulse).await
        }
    }
}

fn told(frames: Vec<NewFrame>) -> Done {
    Done {
        entry: None,
        frames,
        chapters: None,
        note: None,
    }
}

/// Begins a run of a book that has none, and tells readers.
pub(super) async fn begin(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    run: &NewRun,
    now: Timestamp,
) -> Result<NewFrame, CommitError> {
    let recounts = run.spec.kind() == Kind::Recount;
    let recount = recounts.then(|| Beginning::of(book));
    table::insert(conn, book.id, run, recount, now).await?;
    book.live_run = Some(run.id);
    book.recounting = recounts;
    tell(conn, book, run.id, now).await
}

/// Tells readers how far a run is. What they were told before goes from the buffer.
pub(super) async fn tell(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    run: Uuid,
    now: Timestamp,
) -> Result<NewFrame, CommitError> {
    let found = table::find(&mut *conn, book.id, run).await?;
    let mut found = found.ok_or(CommitError::LostLease)?;
    found.rejections = None;
    let frame = frame::mint_progress(book, now, &found)?;
    let before = moving::tell(conn, book.id, run, frame.position, now).await?;
    if let Some(before) = before {
        frame::forget(conn, book.id, before).await?;
    }
    Ok(frame)
}

/// Ends a run whose row says so already. An import that brought anything in moves the watermark as if
/// its newest click had just arrived, and what fires by that is not told one by one: readers begin
/// anew.
async fn end(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    run: Uuid,
    moved: Moved,
    now: Timestamp,
    pulse: &Pulse,
) -> Result<Done, CommitError> {
    book.live_run = None;
    book.recounting = false;
    book.revision += 1;
    let mut entry = None;
    if let Some(newest_ms) = moved.newest_ms {
        let plan = book::plan(&book.settings, &book.rollups)?;
        let progress = book.progress.after(newest_ms, plan.delay_ms);
        let due = Reach::due(progress.watermark);
        let mut loaded = windows::load(conn, &[(book.windows(), &plan, &due)], pulse).await?;
        let unfired = loaded.remove(&book.id).unwrap_or_default();
        let outcome = engine::advance(&plan, progress, progress.watermark, unfired);
        let mut changes = Changes::default();
        changes.note(book.windows(), &plan, outcome.changed);
        windows::write(conn, &[], &changes, now, pulse).await?;
        book.progress = progress;
        // Otherwise an idle step would move it on at once.
        book.last_received_ms = book.last_received_ms.max(Some(now.millis()));
        entry = Some((
            "imported",
            json!({ "run": run, "newest_event_ms": newest_ms }),
        ));
    }
    let mut frames = vec![tell(conn, book, run, now).await?];
    if entry.is_some() {
        frames.push(frame::mint_status(book, now, "imported")?);
        book.barrier = book.position;
    }
    Ok(Done {
        entry,
        frames,
        chapters: None,
        note: None,
    })
}
