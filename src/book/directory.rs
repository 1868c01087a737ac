//! What admission and access must know of a book, without asking the database about every click.
//!
//! A process trusts what it read for [`TRUSTED_FOR`]; whatever must hold at the moment of the
//! commit (closed, deleted, the settings that count) is checked again under the row's lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;
use sqlx::PgPool;
use uuid::Uuid;

use super::{Book, PlanError, table};
use crate::engine::Plan;

/// How long an entry is believed. Another process's change shows here after this at the latest.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Most books that are remembered.
const CAPACITY: usize = 10_000;

/// What is remembered of a book.
#[derive(Debug)]
pub struct Known {
    /// The book as it was read: its settings are current to a second, its counts are not.
    pub book: Book,
    /// How its clicks are counted.
    pub plan: Plan,
    read_at: Instant,
}

/// Reads books, and remembers them for a moment.
#[derive(Debug)]
pub struct Directory {
    pool: PgPool,
    by_id: Cache<Uuid, Arc<Known>>,
    ids: Cache<String, (Uuid, Instant)>,
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

impl Directory {
    /// An empty directory over `pool`.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            by_id: Cache::new(CAPACITY),
            ids: Cache::new(CAPACITY),
        }
    }

    /// The book that `name`, an id or a slug, stands for.
    ///
    /// # Errors
    /// The database is out of reach, or the book cannot be used.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Known>>, LookupError> {
        let id = match Uuid::try_parse(name) {
            Ok(id) => Some(id),
            Err(_) => self.id_of_slug(name).await?,
        };
        match id {
            Some(id) => self.by_id(id).await,
            None => Ok(None),
        }
    }

    async fn id_of_slug(&self, slug: &str) -> Result<Option<Uuid>, sqlx::Error> {
        if let Some((id, read_at)) = self.ids.get(slug)
            && read_at.elapsed() < TRUSTED_FOR
        {
            return Ok(Some(id));
        }
        let read_at = Instant::now();
        let id = table::id_of_slug(&self.pool, slug).await?;
        match id {
            Some(id) => self.ids.insert(slug.to_owned(), (id, read_at)),
            None => drop(self.ids.remove(slug)),
        }
        Ok(id)
    }

    async fn by_id(&self, id: Uuid) -> Result<Option<Arc<Known>>, LookupError> {
        if let Some(known) = self.by_id.get(&id)
            && known.read_at.elapsed() < TRUSTED_FOR
        {
            return Ok(Some(known));
        }
        let read_at = Instant::now();
        let Some(book) = table::find(&self.pool, id).await? else {
            self.by_id.remove(&id);
            return Ok(None);
        };
        let plan = book.plan()?;
        let known = Arc::new(Known {
            book,
            plan,
            read_at,
        });
        self.by_id.insert(id, Arc::clone(&known));
        Ok(Some(known))
    }

    /// Forgets a book, because this process has just changed it.
    pub fn forget(&self, id: Uuid) {
        if let Some((_, known)) = self.by_id.remove(&id) {
            self.ids.remove(&known.book.slug);
        }
    }
}
