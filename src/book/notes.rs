//! The notes of a book: what people write beside its counts, such as that a chapter was published.
//! Owns the table `notes`, whose rows change under the book's row alone.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::{PgConnection, PgExecutor};
use utoipa::ToSchema;
use uuid::Uuid;

use super::settings::present;
use super::{FieldError, Settings};
use crate::page::{self, PageError};
use crate::time::Timestamp;

/// Most notes of a book: a snapshot shows them all.
pub const MAX_NOTES: i64 = 1000;

/// Most characters of a note's text.
const MAX_TEXT_CHARS: usize = 2000;

/// A note.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Note {
    /// Version 7.
    pub id: Uuid,
    /// What it says; it may have several lines.
    pub text: String,
    /// The moment that it is about.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The page that it is about, if it is about one, as clicks name pages.
    pub page: Option<String>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was changed last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// A new note, as it is sent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoteCreate {
    /// What it says: 1 to 2000 characters, of which none is a control character but line feeds.
    #[schema(min_length = 1, max_length = 2000)]
    text: String,
    /// The moment that it is about: RFC 3339, or milliseconds since the epoch. Now if absent.
    #[schema(required = false, value_type = Option<String>)]
    at: Option<Box<RawValue>>,
    /// The page that it is about, 1 to 2048 bytes; named as clicks' pages are.
    #[schema(required = false)]
    page: Option<String>,
}

/// Changes to a note, as they are sent; what is absent stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotePatch {
    /// What it says: 1 to 2000 characters, of which none is a control character but line feeds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 2000)]
    pub text: Option<String>,
    /// The moment that it is about: RFC 3339, or milliseconds since the epoch.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub at: Option<Box<RawValue>>,
    /// The page that it is about, 1 to 2048 bytes; named as clicks' pages are. Null: none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub page: Option<Option<String>>,
}

/// Changes to a note, checked.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct NoteChanges {
    /// What it says.
    pub text: Option<String>,
    /// The moment that it is about.
    pub at: Option<Timestamp>,
    /// The page that it is about, if it is to be about one.
    pub page: Option<Option<String>>,
}

impl NoteCreate {
    /// The note, made at `now`, in a book with these settings.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn checked(self, settings: &Settings, now: Timestamp) -> Result<Note, Vec<FieldError>> {
        let sent = NotePatch {
            text: Some(self.text),
            at: self.at,
            page: Some(self.page),
        };
        let blank = Note {
            id: Uuid::now_v7(),
            text: String::new(),
            at: now,
            page: None,
            created_at: now,
            updated_at: now,
        };
        Ok(blank.changed(sent.checked(settings)?))
    }
}

impl NotePatch {
    /// The changes, in a book with these settings.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn checked(self, settings: &Settings) -> Result<NoteChanges, Vec<FieldError>> {
        let mut errors = Vec::new();
        errors.extend(self.text.as_deref().and_then(check_text));
        let at = self.at.map(|at| Timestamp::parse_json(&at)).transpose();
        let at = at.unwrap_or_else(|error| {
            errors.push(FieldError::new("at", error.code(), error.to_string()));
            None
        });
        let page = self.page.map(|page| {
            let named = page.map(|page| named(&page, settings)).transpose();
            named.unwrap_or_else(|error| {
                errors.push(FieldError::new("page", "bad_page", error.to_string()));
                None
            })
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let text = self.text;
        Ok(NoteChanges { text, at, page })
    }
}

fn named(page: &str, settings: &Settings) -> Result<String, PageError> {
    page::named(page, settings.canonical_pages, &settings.base_path)
}

fn check_text(text: &str) -> Option<FieldError> {
    let fits = (1..=MAX_TEXT_CHARS).contains(&text.chars().count());
    if fits && text.chars().all(|c| c == '\n' || !c.is_control()) {
        return None;
    }
    let detail = "1 to 2000 characters, none of them a control character but line feeds";
    Some(FieldError::new("text", "bad_text", detail))
}

impl Note {
    /// The note with these changes; when that was is the caller's to say.
    #[must_use]
    pub fn changed(self, changes: NoteChanges) -> Self {
        Self {
            text: changes.text.unwrap_or(self.text),
            at: changes.at.unwrap_or(self.at),
            page: changes.page.unwrap_or(self.page),
            ..self
        }
    }
}

/// A row of `notes`, before its columns become types.
struct Row {
    id: Uuid,
    at_ms: i64,
    created_ms: i64,
    updated_ms: i64,
    text: String,
    page: Option<String>,
}

impl From<Row> for Note {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            text: row.text,
            at: Timestamp::saturating_from_millis(row.at_ms),
            page: row.page,
            created_at: Timestamp::saturating_from_millis(row.created_ms),
            updated_at: Timestamp::saturating_from_millis(row.updated_ms),
        }
    }
}

/// Up to `limit` notes of a book after `after`, in the order in which they were made.
///
/// # Errors
/// What the database says.
pub async fn list(
    db: impl PgExecutor<'_>,
    book: Uuid,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Note>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, at_ms, created_ms, updated_ms, text, page FROM notes
         WHERE book_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        book,
        after,
        limit,
    );
    let rows = rows.fetch_all(db).await?;
    Ok(rows.into_iter().map(Note::from).collect())
}

/// All notes of a book, in the order of the moments that they are about.
///
/// # Errors
/// What the database says.
pub async fn all(db: impl PgExecutor<'_>, book: Uuid) -> Result<Vec<Note>, sqlx::Error> {
    let mut notes = list(db, book, Uuid::nil(), MAX_NOTES).await?;
    notes.sort_by_key(|note| (note.at, note.id));
    Ok(notes)
}

/// The note `id` of a book.
///
/// # Errors
/// What the database says.
pub async fn find(
    db: impl PgExecutor<'_>,
    book: Uuid,
    id: Uuid,
) -> Result<Option<Note>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, at_ms, created_ms, updated_ms, text, page FROM notes
         WHERE book_id = $1 AND id = $2",
        book,
        id,
    );
    Ok(row.fetch_optional(db).await?.map(Note::from))
}

/// Whether a locked book has as many notes as it may.
///
/// # Errors
/// What the database says.
pub async fn are_full(conn: &mut PgConnection, book: Uuid) -> Result<bool, sqlx::Error> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM notes WHERE book_id = $1"#,
        book
    );
    Ok(count.fetch_one(conn).await? >= MAX_NOTES)
}

/// Stores a note of a locked book; one with this id is replaced.
///
/// # Errors
/// What the database says.
pub async fn store(conn: &mut PgConnection, book: Uuid, note: &Note) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO notes (book_id, id, at_ms, created_ms, updated_ms, text, page)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (book_id, id) DO UPDATE
         SET at_ms = excluded.at_ms, updated_ms = excluded.updated_ms, text = excluded.text,
             page = excluded.page",
        book,
        note.id,
        note.at.millis(),
        note.created_at.millis(),
        note.updated_at.millis(),
        note.text,
        note.page,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes a note of a locked book.
///
/// # Errors
/// What the database says.
pub async fn remove(conn: &mut PgConnection, book: Uuid, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!("DELETE FROM notes WHERE book_id = $1 AND id = $2", book, id)
        .execute(conn)
        .await?;
    Ok(())
}
