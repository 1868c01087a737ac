//! What anyone may know of a book that says so: how often it was read, and how many read it now.
//!
//! Each answer is remembered for a minute, so that a badge on a busy page costs Postgres next to
//! nothing. An answer hangs on the whole past of a book, but is not added up anew: the views of the book
//! stand in its row, and of a page those in closed windows, which do not change any more, are kept from
//! one reading to the next. The first reading of a page takes two steps of the index for each window of
//! the rollup, however many pages it has: less than a second for a year of quarters of an hour, and two
//! milliseconds for the next.
//!
//! Each reading is a task that goes on when nobody waits for it any more, as does its statement in
//! Postgres: so few at once means that few statements run, whoever hangs up. A book is read in turns of
//! its own, before its pages, whose names hang on its settings.
//!
//! A book that is not public costs what one costs that does not exist: the same statement, which finds
//! nothing, and of which nothing is remembered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::BEGIN;
use super::views_of_page::{self, Sum};
use crate::book::{self, Book, PlanError};
use crate::db;
use crate::engine::aggregate::{State, StateError, Value};
use crate::memo::{Memo, Place, ReadError};
use crate::page::{self, PageError};
use crate::rollup::{AggregateKind, Field, GroupBy, Rollup, WindowSpec};
use crate::time::Timestamp;

/// For how long the service gives an answer again.
pub const FRESH_FOR: Duration = Duration::from_mins(1);

/// How old an answer may be that is given because there is no newer one. Another process may have made
/// the book private.
const OLDEST: Duration = Duration::from_mins(2);

/// How many books are read at once, and how many pages. Whoever asks needs no credentials, and must not take the database
/// from those who have some.
const AT_ONCE: usize = 2;

/// How long a caller waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ends a statement that takes longer.
const BOUNDED: &str = "SET LOCAL statement_timeout = '5s'";

/// What anyone may know of a book, or of a page of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Public {
    /// The page, by its canonical name.
    pub page: Option<String>,
    /// Different readers of the last minutes; `None`: the book does not count them.
    pub readers_now: Option<i64>,
    /// How often it was read; `None`: the book does not count its pages, or there is more to add up than
    /// is done for anyone.
    pub views: Option<i64>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PublicError {
    /// The page can be nobody's name.
    #[error(transparent)]
    Page(#[from] PageError),
    /// Too many others ask.
    #[error("too many ask for public counts at once")]
    Busy,
    /// What the database says.
    #[error("the public counts could not be read")]
    Database(#[from] sqlx::Error),
    /// The book cannot be used.
    #[error("the book cannot be used")]
    Plan(#[from] PlanError),
    /// A stored window cannot be read.
    #[error("a stored window cannot be read")]
    State(#[from] StateError),
}

impl ReadError for PublicError {
    fn is_outage(&self) -> bool {
        match self {
            Self::Database(error) => error.is_outage(),
            // The database answers: others are asking it.
            Self::Busy | Self::Page(_) | Self::Plan(_) | Self::State(_) => false,
        }
    }
}

/// A book, as it is asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Name {
    Id(Uuid),
    Slug(String),
}

impl Name {
    /// `None`: no book has such a name.
    fn parse(name: &str) -> Option<Self> {
        match Uuid::try_parse(name) {
            Ok(id) => Some(Self::Id(id)),
            Err(_) if book::check_slug(name).is_none() => Some(Self::Slug(name.to_owned())),
            Err(_) => None,
        }
    }
}

/// What is remembered of a book.
#[derive(Debug)]
struct Whole {
    id: Uuid,
    canonical_pages: bool,
    base_path: String,
    public: Public,
}

/// A page by its canonical name, of the book with this id.
type Page = (Uuid, String);

/// What is remembered of a page.
#[derive(Debug)]
struct OfPage {
    public: Public,
    sum: Option<Sum>,
}

/// Reads what is public, and remembers it for a minute.
#[derive(Debug)]
pub struct PublicCounts {
    pool: PgPool,
    long_reads: PgPool,
    tasks: TaskTracker,
    books: Memo<Name, Arc<Whole>>,
    pages: Memo<Page, Arc<OfPage>>,
    book_turns: Arc<Semaphore>,
    page_turns: Arc<Semaphore>,
}

impl PublicCounts {
    /// Over two pools, of which the second is for readings that may take long. The readings are `tasks`;
    /// an answer is given again for so long.
    #[must_use]
    pub fn new(
        (pool, long_reads): (PgPool, PgPool),
        tasks: TaskTracker,
        fresh_for: Duration,
    ) -> Self {
        Self {
            pool,
            long_reads,
            tasks,
            books: Memo::trusting_for(fresh_for).giving_at_most(OLDEST),
            pages: Memo::trusting_for(fresh_for).giving_at_most(OLDEST),
            book_turns: Arc::new(Semaphore::new(AT_ONCE)),
            page_turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// What is public of the book `name`, an id or a slug, or of a page of it; `None` if there is no such
    /// book, or it is not public.
    ///
    /// # Errors
    /// See [`PublicError`].
    pub async fn of(&self, name: &str, page: Option<&str>) -> Result<Option<Public>, PublicError> {
        let Some(name) = Name::parse(name) else {
            return Ok(None);
        };
        let Some(whole) = self.whole(&name).await? else {
            return Ok(None);
        };
        let Some(page) = page else {
            return Ok(Some(whole.public.clone()));
        };
        let page = page::named(page, whole.canonical_pages, &whole.base_path)?;
        let found = self.page((whole.id, page)).await?;
        if found.is_none() {
            // Since the book was read it was hidden, or deleted.
            self.books.forget(&name);
        }
        Ok(found.map(|found| found.public.clone()))
    }

    /// Forgets everything, because this process has just changed or removed a book.
    pub fn forget_all(&self) {
        self.books.forget_all();
        self.pages.forget_all();
    }

    async fn whole(&self, name: &Name) -> Result<Option<Arc<Whole>>, PublicError> {
        let place = self.books.place(name);
        let read = read_whole(self.pool.clone(), name.clone());
        let reading = self.to_its_end(&self.book_turns, place, read);
        self.books.get(name, reading).await
    }

    async fn page(&self, page: Page) -> Result<Option<Arc<OfPage>>, PublicError> {
        let place = self.pages.place(&page);
        let before = self.pages.peek(&page).and_then(|found| found.sum);
        let read = read_page(self.long_reads.clone(), page.clone(), before);
        let reading = self.to_its_end(&self.page_turns, place, read);
        self.pages.get(&page, reading).await
    }

    /// Waits for a turn, and then for `read`: which has its turn until it ends, and whose answer comes to
    /// its `place`, also if this is dropped.
    async fn to_its_end<V: Clone + Send + 'static>(
        &self,
        turns: &Arc<Semaphore>,
        place: Place<V>,
        read: impl Future<Output = Result<Option<V>, PublicError>> + Send + 'static,
    ) -> Result<Option<V>, PublicError> {
        let turn = tokio::time::timeout(PATIENCE, Arc::clone(turns).acquire_owned()).await;
        let turn = turn.map_err(|_| PublicError::Busy)?;
        let reading = self.tasks.spawn(async move {
            let _turn = turn;
            let read_at = Instant::now();
            let found = read.await;
            if let Ok(Some(value)) = &found {
                place.put(value.clone(), read_at);
            }
            found
        });
        let lost = |_| Err(sqlx::Error::WorkerCrashed.into());
        reading.await.unwrap_or_else(lost)
    }
}

async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let mut tx = db::begin(pool, BEGIN).await?;
    sqlx::raw_sql(BOUNDED).execute(&mut *tx).await?;
    Ok(tx)
}

async fn read_whole(pool: PgPool, name: Name) -> Result<Option<Arc<Whole>>, PublicError> {
    let mut tx = begin(&pool).await?;
    let name = match name {
        Name::Id(id) => id.to_string(),
        Name::Slug(slug) => slug,
    };
    let Some(book) = find(&mut tx, &name).await? else {
        return Ok(None);
    };
    let readers_now = readers_now(&mut tx, &book, GroupBy::Book, "").await?;
    tx.commit().await?;
    Ok(Some(Arc::new(Whole {
        id: book.id,
        canonical_pages: book.settings.canonical_pages,
        base_path: book.settings.base_path,
        public: Public {
            page: None,
            readers_now,
            views: Some(book.totals.on_time + book.totals.late),
        },
    })))
}

async fn read_page(
    pool: PgPool,
    (book, page): Page,
    before: Option<Sum>,
) -> Result<Option<Arc<OfPage>>, PublicError> {
    let mut tx = begin(&pool).await?;
    let Some(book) = find(&mut tx, &book.to_string()).await? else {
        return Ok(None);
    };
    let readers_now = readers_now(&mut tx, &book, GroupBy::Page, &page).await?;
    let plan = book.plan()?;
    let sum = match views_of_page::rollup_of((0_i16..).zip(&plan.rollups)) {
        Some(rollup) => views_of_page::add_up(&mut tx, &book, rollup, &page, before).await?,
        None => None,
    };
    tx.commit().await?;
    Ok(Some(Arc::new(OfPage {
        public: Public {
            page: Some(page),
            readers_now,
            views: sum.map(|sum| sum.views),
        },
        sum,
    })))
}

/// The book `name`, if it is public.
async fn find(conn: &mut PgConnection, name: &str) -> Result<Option<Book>, sqlx::Error> {
    match book::table::find_public(&mut *conn, name).await? {
        Some(id) => book::table::find(conn, id).await,
        None => Ok(None),
    }
}

/// Of rollups like the one by which books count their readers: different visitors in windows that slide.
struct Readers {
    place: i16,
    size_ms: i64,
}

fn readers(place: i16, rollup: &Rollup, group_by: GroupBy) -> Option<Readers> {
    let of_visitors = rollup.aggregate == AggregateKind::Distinct
        && rollup.of == Some(Field::Visitor)
        && rollup.group_by == group_by;
    match rollup.window {
        WindowSpec::Sliding { size_ms, .. } if of_visitors => Some(Readers { place, size_ms }),
        _ => None,
    }
}

/// The readers of a group by the book's first rollup that counts them; `None`: it has none.
async fn readers_now(
    conn: &mut PgConnection,
    book: &Book,
    group_by: GroupBy,
    group: &str,
) -> Result<Option<i64>, PublicError> {
    let plan = book.plan()?;
    let mut rollups = (0_i16..).zip(&plan.rollups);
    match rollups.find_map(|(place, rollup)| readers(place, rollup, group_by)) {
        Some(readers) => readers_at(conn, book, &readers, group).await.map(Some),
        None => Ok(None),
    }
}

/// The readers in the window that holds this moment and began first: that of the longest stretch of
/// time up to now.
async fn readers_at(
    conn: &mut PgConnection,
    book: &Book,
    readers: &Readers,
    group: &str,
) -> Result<i64, PublicError> {
    let now_ms = Timestamp::now().millis();
    let state = sqlx::query_scalar!(
        "SELECT state FROM windows
         WHERE book_id = $1 AND generation = $2 AND rollup = $3
           AND start_ms > $4 AND start_ms <= $5 AND end_ms > $5 AND group_key = $6
         ORDER BY start_ms LIMIT 1",
        book.id,
        book.generation,
        readers.place,
        now_ms.saturating_sub(readers.size_ms),
        now_ms,
        group,
    );
    let Some(state) = state.fetch_optional(conn).await? else {
        return Ok(0);
    };
    match State::from_bytes(AggregateKind::Distinct, &state)?.value() {
        Value::Integer(readers) => Ok(readers),
        Value::Decimal(_) | Value::Top(_) => Ok(0),
    }
}
