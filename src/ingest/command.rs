//! Commands: what changes a book besides clicks, committed in the same queue as its clicks, so
//! that a command comes after the clicks that were sent before it.

mod notes;

pub use notes::NoteCommand;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::commit::windows;
use super::commit::{CommitError, Committed, Refusal};
use super::pulse::Pulse;
use super::runs::{self, RunCommand};
use crate::book::chapters::{self, Chapters, Precondition};
use crate::book::hot::{self, LockedBook};
use crate::book::notes::Note;
use crate::book::{self, BookPatch, FieldError};
use crate::engine::{self, Outcome, Progress, Reach, Watermark};
use crate::frame::{self, NewFrame, Pruning};
use crate::run::{self, NewRun, Spec};
use crate::structure::Chapter;
use crate::time::Timestamp;

/// What is to be done to a book.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// End its input: every window fires.
    Close,
    /// Take clicks again; what has fired stays fired.
    Reopen,
    /// Set what the patch holds.
    Update(Box<BookPatch>),
    /// Replace its chapters.
    Chapters {
        /// All of them, in order, as they were sent.
        list: Vec<Chapter>,
        /// Which version they are to replace.
        precondition: Precondition,
    },
    /// Begin, tell or end a run.
    Run(RunCommand),
    /// Add, change or remove a note.
    Note(NoteCommand),
}

/// What a command did to a locked book.
pub(super) struct Done {
    /// What of it goes into the book's log.
    pub(super) entry: Option<(&'static str, serde_json::Value)>,
    pub(super) frames: Vec<NewFrame>,
    /// For the answer.
    pub(super) chapters: Option<Chapters>,
    /// For the answer.
    pub(super) note: Option<Note>,
}

/// Carries out one command in a transaction of its own. A book that is already as the command
/// wants it stays as it is. `again`: an earlier try may have been committed without our knowing it.
///
/// # Errors
/// Everything was rolled back.
pub async fn carry_out(
    conn: &mut PgConnection,
    now: Timestamp,
    id: Uuid,
    command: &Command,
    again: bool,
    pulse: &Pulse,
) -> Result<Committed, CommitError> {
    let mut tx = conn.begin().await?;
    let locked = hot::lock(&mut tx, &[id]).await?.pop();
    let done = match locked {
        None => Err(Committed::refused(Refusal::NoSuchBook)),
        Some(book) => apply(&mut tx, book, command, now, again, pulse).await?,
    };
    let (mut book, done) = match done {
        Ok(done) => done,
        Err(nothing) => {
            // At once: dropping it would keep the row until the connection is used again.
            tx.rollback().await?;
            return Ok(nothing);
        }
    };
    if let Some((kind, body)) = &done.entry {
        hot::log(&mut tx, &mut book, kind, now.millis(), body).await?;
    }
    hot::reconfigure(&mut tx, &book).await?;
    frame::store(&mut tx, &[&book], &done.frames).await?;
    let pruned = frame::prune(&mut tx, &mut [&mut book], Pruning::Now).await?;
    tx.commit().await?;
    let moved = Committed::moved(&book, done.frames.len(), pruned);
    Ok(moved.telling(done.chapters).telling_note(done.note))
}

/// Does to the book what the command says; `Err` holds the answer where nothing is to be done.
async fn apply(
    conn: &mut PgConnection,
    mut book: LockedBook,
    command: &Command,
    now: Timestamp,
    again: bool,
    pulse: &Pulse,
) -> Result<Result<(LockedBook, Done), Committed>, CommitError> {
    let done = match command {
        Command::Close if !book.closed => close(conn, &mut book, now, pulse).await?,
        Command::Reopen if book.closed => reopen(&mut book, now)?,
        Command::Close | Command::Reopen => return Ok(Err(Committed::unchanged(&book))),
        Command::Update(patch) => match update(conn, &mut book, patch, now).await? {
            Ok(done) => done,
            Err(nothing) => return Ok(Err(nothing)),
        },
        Command::Run(command) => {
            match runs::carry_out(conn, &mut book, command, now, pulse).await? {
                Ok(done) => done,
                Err(nothing) => return Ok(Err(nothing)),
            }
        }
        Command::Chapters { list, precondition } => {
            let precondition = (precondition, again);
            match restructure(conn, &mut book, list, precondition, now).await? {
                Ok(done) => done,
                Err(nothing) => return Ok(Err(nothing)),
            }
        }
        Command::Note(command) => match notes::apply(conn, &mut book, command, now, again).await? {
            Ok(done) => done,
            Err(nothing) => return Ok(Err(nothing)),
        },
    };
    Ok(Ok((book, done)))
}

async fn close(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    now: Timestamp,
    pulse: &Pulse,
) -> Result<Done, CommitError> {
    let plan = book::plan(&book.settings, &book.rollups)?;
    let mut loaded = windows::load(
        conn,
        &[(book.windows(), &plan, &Reach::due(Watermark::END_OF_TIME))],
        pulse,
    )
    .await?;
    let unfired = loaded.remove(&book.id).unwrap_or_default();
    book.before_close = book.progress.watermark;
    book.closed = true;
    book.revision += 1;
    let Outcome {
        progress, changed, ..
    } = engine::advance(&plan, book.progress, Watermark::END_OF_TIME, unfired);
    book.progress = progress;
    let mut frames = Vec::new();
    if !changed.is_empty() {
        frames = frame::mint_counts(book, now, &plan.rollups, &changed)?;
    }
    frames.push(frame::mint_status(book, now, "closed")?);
    let mut changes = windows::Changes::default();
    changes.note(book.windows(), &plan, changed);
    windows::write(conn, &[], &changes, now, pulse).await?;
    Ok(Done {
        entry: Some(("closed", json!({}))),
        frames,
        chapters: None,
        note: None,
    })
}

fn reopen(book: &mut LockedBook, now: Timestamp) -> Result<Done, CommitError> {
    book.progress = Progress {
        watermark: book.before_close,
        ..book.progress
    };
    book.before_close = Watermark::MINUS_INFINITY;
    // Otherwise the next idle step would take the watermark away at once.
    book.last_received_ms = book.last_received_ms.max(Some(now.millis()));
    book.closed = false;
    book.revision += 1;
    Ok(Done {
        entry: Some(("reopened", json!({}))),
        frames: vec![frame::mint_status(book, now, "reopened")?],
        chapters: None,
        note: None,
    })
}

async fn update(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    patch: &BookPatch,
    now: Timestamp,
) -> Result<Result<Done, Committed>, CommitError> {
    let settings = book.settings.clone().patched(patch.settings.clone());
    let rollups = patch.rollups.as_ref().unwrap_or(&book.rollups).clone();
    let mut errors: Vec<FieldError> = Vec::new();
    if let Some(title) = &patch.title {
        errors.extend(book::check_title(title));
    }
    if let Some(origins) = &patch.origins {
        errors.extend(book::check_origins(origins));
    }
    errors.extend(book::check_counting(&settings, &rollups));
    let mut will_be = None;
    if let Some(run) = book.live_run {
        will_be = run::table::recounts_by(&mut *conn, book.id, run).await?;
    }
    if let Some(will_be) = &will_be {
        errors.extend(book::check_counting(&settings, will_be));
    }
    if !errors.is_empty() {
        return Ok(Err(Committed::refused(Refusal::Invalid(errors))));
    }
    // Asked for already, perhaps by an earlier try of this very request.
    let begun = will_be.as_ref() == Some(&rollups);
    let others = rollups != book.rollups && !begun;
    // While an import goes on, the row does not tell of its clicks.
    let has_clicks = book.progress.newest_event_ms.is_some() || book.live_run.is_some();
    let recounts = others && has_clicks;
    if recounts && book.live_run.is_some() {
        return Ok(Err(Committed::refused(Refusal::RunLive)));
    }
    let title_stays = patch
        .title
        .as_ref()
        .is_none_or(|title| *title == book.title);
    let origins_stay = patch.origins.as_ref().is_none_or(|o| *o == book.origins);
    if title_stays && origins_stay && settings == book.settings && !others {
        return Ok(Err(Committed::unchanged(book)));
    }
    book.settings = settings;
    // Those of a book with clicks change once these are counted by the new ones.
    let begins = recounts.then(|| rollups.clone());
    if !recounts && !begun {
        book.rollups = rollups;
    }
    if let Some(title) = &patch.title {
        book.title.clone_from(title);
    }
    if let Some(origins) = &patch.origins {
        book.origins.clone_from(origins);
    }
    book.revision += 1;
    let mut frames = vec![frame::mint_status(book, now, "settings")?];
    if begins.is_some() {
        let run = NewRun::new(Spec::Recount { rollups: begins });
        frames.push(runs::begin(conn, book, &run, now).await?);
    }
    let body = json!({ "settings": book.settings, "rollups": book.rollups });
    Ok(Ok(Done {
        entry: Some(("settings", body)),
        frames,
        chapters: None,
        note: None,
    }))
}

/// Replaces the chapters. What makes no sense is refused before the precondition is looked at, and
/// one that an earlier try of the same request has made untrue is none (RFC 9110, sections 13.2.1
/// and 13.1.1).
async fn restructure(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    sent: &[Chapter],
    (precondition, again): (&Precondition, bool),
    now: Timestamp,
) -> Result<Result<Done, Committed>, CommitError> {
    let list = match chapters::check(sent, &book.settings) {
        Ok(list) => list,
        Err(errors) => return Ok(Err(Committed::refused(Refusal::Invalid(errors)))),
    };
    let before = chapters::of_book(&mut *conn, book.id).await?;
    let before = before.unwrap_or_default();
    let same = before.list == list;
    let made_by_us = same && again;
    if !made_by_us && !precondition.holds(before.version) {
        let refusal = Refusal::OtherVersion(before.version);
        return Ok(Err(Committed::refused(refusal)));
    }
    if same {
        return Ok(Err(Committed::unchanged(book).telling(Some(before))));
    }
    book.structure_version += 1;
    book.revision += 1;
    let chapters = Chapters {
        version: book.structure_version,
        list,
    };
    chapters::store(conn, book.id, &chapters).await?;
    let body = json!({ "version": chapters.version, "chapters": chapters.list });
    Ok(Ok(Done {
        entry: Some(("chapters", body)),
        frames: vec![frame::mint_chapters(book, now, &chapters.list)?],
        chapters: Some(chapters),
        note: None,
    }))
}
