//! Notes are added, changed and removed in the queue of the book's clicks, so that the frame that
//! tells of one has its place among theirs.

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::Done;
use crate::book::FieldError;
use crate::book::hot::LockedBook;
use crate::book::notes::{self, MAX_NOTES, Note, NoteChanges};
use crate::frame;
use crate::ingest::commit::{CommitError, Committed, Refusal};
use crate::time::Timestamp;

/// What is to be done with a book's notes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoteCommand {
    /// Add this one. Its id was made before, so that a second try finds what the first one did.
    Add(Note),
    /// Change the note with this id.
    Change(Uuid, NoteChanges),
    /// Remove the note with this id.
    Remove(Uuid),
}

/// Does to the notes of a locked book what the command says; `Err` holds the answer where nothing is
/// to be done. `again`: an earlier try may have been committed without our knowing it.
pub(super) async fn apply(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    command: &NoteCommand,
    now: Timestamp,
    again: bool,
) -> Result<Result<Done, Committed>, CommitError> {
    match command {
        NoteCommand::Add(note) => add(conn, book, note, now, again).await,
        NoteCommand::Change(id, changes) => change(conn, book, *id, changes, now).await,
        NoteCommand::Remove(id) => remove(conn, book, *id, now, again).await,
    }
}

async fn add(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    note: &Note,
    now: Timestamp,
    again: bool,
) -> Result<Result<Done, Committed>, CommitError> {
    if again && let Some(note) = notes::find(&mut *conn, book.id, note.id).await? {
        return Ok(Err(Committed::unchanged(book).telling_note(Some(note))));
    }
    if notes::are_full(conn, book.id).await? {
        let error = FieldError {
            index: None,
            field: None,
            code: "too_many_notes".to_owned(),
            detail: format!("a book has at most {MAX_NOTES} notes"),
        };
        let refusal = Refusal::Invalid(vec![error]);
        return Ok(Err(Committed::refused(refusal)));
    }
    notes::store(conn, book.id, note).await?;
    told(book, note.clone(), false, now).map(Ok)
}

async fn change(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    id: Uuid,
    changes: &NoteChanges,
    now: Timestamp,
) -> Result<Result<Done, Committed>, CommitError> {
    let Some(before) = notes::find(&mut *conn, book.id, id).await? else {
        return Ok(Err(Committed::refused(Refusal::NoSuchNote)));
    };
    let note = before.clone().changed(changes.clone());
    if note == before {
        return Ok(Err(Committed::unchanged(book).telling_note(Some(note))));
    }
    let note = Note {
        updated_at: now,
        ..note
    };
    notes::store(conn, book.id, &note).await?;
    told(book, note, false, now).map(Ok)
}

async fn remove(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    id: Uuid,
    now: Timestamp,
    again: bool,
) -> Result<Result<Done, Committed>, CommitError> {
    let Some(note) = notes::find(&mut *conn, book.id, id).await? else {
        // As far as anybody can tell, an earlier try of this removed it.
        let nothing = if again {
            Committed::unchanged(book)
        } else {
            Committed::refused(Refusal::NoSuchNote)
        };
        return Ok(Err(nothing));
    };
    notes::remove(conn, book.id, id).await?;
    told(book, note, true, now).map(Ok)
}

/// What readers, the log and whoever sent the command are told of a note.
fn told(
    book: &mut LockedBook,
    note: Note,
    removed: bool,
    now: Timestamp,
) -> Result<Done, CommitError> {
    book.revision += 1;
    let body = json!({ "note": note, "removed": removed });
    Ok(Done {
        entry: Some(("note", body)),
        frames: vec![frame::mint_note(book, now, &note, removed)?],
        chapters: None,
        note: Some(note),
    })
}
