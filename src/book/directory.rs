//! What admission and access must know of a book, without asking the database about every click.
//!
//! It is current to a second; whatever must hold at the moment of the commit (closed, deleted, the
//! settings that count) is checked again under the row's lock.

use std::sync::Arc;

use sqlx::PgPool;
use uuid::Uuid;

use super::{Book, PlanError, check_slug, table};
use crate::engine::Plan;
use crate::memo::{Memo, ReadError};

/// What is remembered of a book.
#[derive(Debug)]
pub struct Known {
    /// The book as it was read: its settings are current to a second, its counts are not.
    pub book: Book,
    /// How its clicks are counted.
    pub plan: Plan,
}

impl Known {
    fn of(book: Book) -> Result<Arc<Self>, LookupError> {
        let plan = book.plan()?;
        Ok(Arc::new(Self { book, plan }))
    }
}

/// Reads books, and remembers them for a moment.
#[derive(Debug)]
pub struct Directory {
    pool: PgPool,
    books: Memo<Uuid, Arc<Known>>,
    ids: Memo<String, Uuid>,
    origins: Memo<String, bool>,
}

/// Why a book could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// What the database says.
    #[error("the book could not be read")]
    Database(#[from] sqlx::Error),
    /// It was written by a newer version.
    #[error("the book cannot be used")]
    Plan(#[from] PlanError),
}

impl ReadError for LookupError {
    fn is_outage(&self) -> bool {
        matches!(self, Self::Database(error) if error.is_outage())
    }
}

impl Directory {
    /// An empty directory over `pool`.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            books: Memo::new(),
            ids: Memo::new(),
            origins: Memo::new(),
        }
    }

    /// The book that `name`, an id or a slug, stands for.
    ///
    /// # Errors
    /// The database is out of reach, or the book cannot be used.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Known>>, LookupError> {
        let id = match Uuid::try_parse(name) {
            Ok(id) => Some(id),
            Err(_) if check_slug(name).is_some() => None,
            Err(_) => {
                let read = self.read_named(name);
                self.ids.get(&name.to_owned(), read).await?
            }
        };
        match id {
            Some(id) => self.of_id(id, name).await,
            None => Ok(None),
        }
    }

    /// The book `name`, if it is one of `mine`. What of other books is there and what is not cannot
    /// be told apart by how long this takes: either is looked up in the same way, whatever is
    /// remembered of it.
    ///
    /// # Errors
    /// As [`Directory::find`].
    pub async fn find_among(
        &self,
        name: &str,
        mine: &[Uuid],
    ) -> Result<Option<Arc<Known>>, LookupError> {
        let is_mine = |id: &Uuid| mine.contains(id);
        let id = match Uuid::try_parse(name) {
            Ok(id) => Some(id),
            Err(_) if check_slug(name).is_some() => None,
            Err(_) => {
                let name = name.to_owned();
                // What is remembered of one of `mine` may be used, and no other.
                if self.ids.peek(&name).as_ref().is_some_and(is_mine) {
                    let read = table::id_of_slug(&self.pool, &name);
                    self.ids.get(&name, read).await?
                } else {
                    let id = table::id_of_slug(&self.pool, &name).await?;
                    if let Some(id) = id.filter(is_mine) {
                        self.ids
                            .get(&name, async { Ok::<_, sqlx::Error>(Some(id)) })
                            .await?;
                    }
                    id
                }
            }
        };
        match id.filter(is_mine) {
            Some(id) => self.of_id(id, name).await,
            None => Ok(None),
        }
    }

    async fn of_id(&self, id: Uuid, name: &str) -> Result<Option<Arc<Known>>, LookupError> {
        let found = self.books.get(&id, self.read(id)).await?;
        if found.is_none() {
            // Deleted by another process; its slug may name another book by now.
            self.ids.forget(&name.to_owned());
        }
        Ok(found)
    }

    async fn read(&self, id: Uuid) -> Result<Option<Arc<Known>>, LookupError> {
        let book = table::find(&self.pool, id).await?;
        book.map(Known::of).transpose()
    }

    /// The id of the book with `slug`; the book itself, read with it, is remembered too.
    async fn read_named(&self, slug: &str) -> Result<Option<Uuid>, LookupError> {
        let book = table::find_by_slug(&self.pool, slug).await?;
        let Some(known) = book.map(Known::of).transpose()? else {
            return Ok(None);
        };
        let id = known.book.id;
        let read = async { Ok::<_, LookupError>(Some(known)) };
        self.books.get(&id, read).await?;
        Ok(Some(id))
    }

    /// Whether any book lists `origin`. It does not say which, so it may be told to whoever asks.
    ///
    /// # Errors
    /// The database is out of reach.
    pub async fn lists_origin(&self, origin: &str) -> Result<bool, sqlx::Error> {
        let read = async { table::lists_origin(&self.pool, origin).await.map(Some) };
        let found = self.origins.get(&origin.to_owned(), read).await?;
        Ok(found.unwrap_or_default())
    }

    /// Forgets `book`, because this process has just changed it.
    pub fn forget(&self, book: &Book) {
        self.books.forget(&book.id);
        self.ids.forget(&book.slug);
        self.origins.forget_all();
    }
}
