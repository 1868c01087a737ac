//! The chapters of a book as they are stored, and as the write path looks pages up in them.
//!
//! They change under the book's row alone, together with its `structure_version`: whoever holds the
//! row knows by that number whether what it remembers of them is current.

use std::collections::HashMap;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use super::hot::LockedBook;
use super::{FieldError, Settings};
use crate::rollup::GroupBy;
use crate::structure::{self, Chapter, ChapterError, Naming, Structure};

/// Most bytes of structures that a process remembers.
const CAPACITY_BYTES: u64 = 64 * 1024 * 1024;

/// How many structures that will be, more or less.
const USUAL_STRUCTURES: usize = 1000;

/// The chapters of a book at one moment.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Chapters {
    /// Grows by one with each change; 0 before the first.
    pub version: i64,
    /// In order.
    pub list: Vec<Chapter>,
}

/// What a request says about the version that it is meant for.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Precondition {
    /// It is one of these.
    pub one_of: Option<Versions>,
    /// It is none of these.
    pub none_of: Option<Versions>,
}

/// Some versions of a book's chapters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Versions {
    /// Whichever there is.
    Any,
    /// These.
    Of(Vec<i64>),
}

impl Versions {
    /// Whether `version` is one of them.
    #[must_use]
    pub fn hold(&self, version: i64) -> bool {
        match self {
            Self::Any => true,
            Self::Of(versions) => versions.contains(&version),
        }
    }
}

impl Precondition {
    /// Whether it holds where the chapters have this version.
    #[must_use]
    pub fn holds(&self, version: i64) -> bool {
        self.one_of.as_ref().is_none_or(|v| v.hold(version))
            && self.none_of.as_ref().is_none_or(|v| !v.hold(version))
    }
}

/// Chapters with the names that pages have in a book with these settings.
///
/// # Errors
/// Everything that is wrong with them.
pub fn check(sent: &[Chapter], settings: &Settings) -> Result<Vec<Chapter>, Vec<FieldError>> {
    let naming = Naming {
        canonical: settings.canonical_pages,
        base_path: &settings.base_path,
    };
    structure::check(sent, naming).map_err(|e| e.into_iter().map(FieldError::from).collect())
}

impl From<ChapterError> for FieldError {
    fn from(error: ChapterError) -> Self {
        Self {
            index: error.index,
            field: error.field.map(str::to_owned),
            code: error.code.to_owned(),
            detail: error.detail,
        }
    }
}

/// The chapters of the book `id`, unless it was deleted.
///
/// # Errors
/// What the database says.
pub async fn of_book(db: impl PgExecutor<'_>, id: Uuid) -> Result<Option<Chapters>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT b.structure_version, c.body AS "body?: Json<Vec<Chapter>>"
           FROM books b LEFT JOIN chapters c ON c.book_id = b.id
           WHERE b.id = $1 AND NOT b.deleted"#,
        id
    );
    let row = row.fetch_optional(db).await?;
    Ok(row.map(|row| Chapters {
        version: row.structure_version,
        list: row.body.map(|body| body.0).unwrap_or_default(),
    }))
}

/// Stores the chapters of a locked book.
///
/// # Errors
/// What the database says.
pub async fn store(
    conn: &mut PgConnection,
    book: Uuid,
    chapters: &Chapters,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO chapters (book_id, version, body) VALUES ($1, $2, $3)
         ON CONFLICT (book_id) DO UPDATE SET version = excluded.version, body = excluded.body",
        book,
        chapters.version,
        Json(&chapters.list) as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What is remembered of a book's chapters.
#[derive(Clone, Debug)]
struct Remembered {
    version: i64,
    /// Whether pages were canonical, which changes what a folder takes.
    canonical: bool,
    structure: Arc<Structure>,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Uuid, Remembered> for ByBytes {
    fn weight(&self, _: &Uuid, remembered: &Remembered) -> u64 {
        remembered.structure.weight() as u64
    }
}

/// The structures of the books that are counted by chapter, remembered for their next commits.
#[derive(Debug)]
pub struct Structures {
    remembered: Cache<Uuid, Remembered, ByBytes>,
}

impl Structures {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            remembered: Cache::with_weighter(USUAL_STRUCTURES, CAPACITY_BYTES, ByBytes),
        }
    }

    /// The structure of `book`, if what is remembered of it is current; an empty one, if its rollups
    /// do not ask for chapters.
    #[must_use]
    pub fn at_hand(&self, book: &LockedBook) -> Option<Arc<Structure>> {
        if !asks_for_chapters(book) {
            return Some(Arc::default());
        }
        let remembered = self.remembered.get(&book.id);
        remembered
            .filter(|r| r.is_current(book))
            .map(|r| r.structure)
    }

    /// The structures of those locked books that have chapters and a rollup that asks for them, by
    /// book. What is not remembered as it stands is read, in one statement for all of them.
    ///
    /// # Errors
    /// What the database says.
    pub async fn of_locked(
        &self,
        conn: &mut PgConnection,
        books: &[LockedBook],
    ) -> Result<HashMap<Uuid, Arc<Structure>>, sqlx::Error> {
        let mut found = HashMap::new();
        let mut stale: HashMap<Uuid, &LockedBook> = HashMap::new();
        for book in books.iter().filter(|book| asks_for_chapters(book)) {
            match self.remembered.get(&book.id) {
                Some(r) if r.is_current(book) => drop(found.insert(book.id, r.structure)),
                _ => drop(stale.insert(book.id, book)),
            }
        }
        if stale.is_empty() {
            return Ok(found);
        }
        let ids: Vec<Uuid> = stale.keys().copied().collect();
        let rows = sqlx::query!(
            r#"SELECT book_id, version, body AS "body: Json<Vec<Chapter>>"
               FROM chapters WHERE book_id = ANY($1)"#,
            &ids
        );
        for row in rows.fetch_all(conn).await? {
            let Some(book) = stale.get(&row.book_id) else {
                continue;
            };
            let canonical = book.settings.canonical_pages;
            let structure = Arc::new(Structure::new(&row.body.0, canonical));
            let remembered = Remembered {
                version: row.version,
                canonical,
                structure: Arc::clone(&structure),
            };
            self.remembered.insert(row.book_id, remembered);
            found.insert(row.book_id, structure);
        }
        Ok(found)
    }
}

impl Default for Structures {
    fn default() -> Self {
        Self::new()
    }
}

impl Remembered {
    fn is_current(&self, book: &LockedBook) -> bool {
        (self.version, self.canonical) == (book.structure_version, book.settings.canonical_pages)
    }
}

fn asks_for_chapters(book: &LockedBook) -> bool {
    let by_chapter = |rollup: &crate::rollup::RollupSpec| rollup.group_by == GroupBy::Chapter;
    book.structure_version > 0 && book.rollups.iter().any(by_chapter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preconditions() {
        let of = |one_of, none_of| Precondition { one_of, none_of };
        let two = || Some(Versions::Of(vec![2, 4]));
        assert!(Precondition::default().holds(0));
        assert!(of(Some(Versions::Any), None).holds(0));
        assert!(of(two(), None).holds(2));
        assert!(!of(two(), None).holds(3));
        assert!(!of(None, two()).holds(4));
        assert!(of(None, two()).holds(3));
        assert!(!of(two(), two()).holds(2));
        assert!(!of(None, Some(Versions::Any)).holds(1));
        assert!(!of(Some(Versions::Of(Vec::new())), None).holds(0));
    }
}
