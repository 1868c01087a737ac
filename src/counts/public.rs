//! What anyone may know of a book that says so: how often it was read, and how many read it now.
//!
//! Each answer is remembered for a minute, so that a badge on a busy page costs Postgres next to
//! nothing. An answer hangs on the whole past of a book, but is not added up anew: the views of the book
//! stand in its row, and of a page those in closed windows, which do not change any more, are kept from
//! one reading to the next. The first reading of a page takes two steps of the index for each window of
//! the rollup, however many pages it has: less than a second for a year of quarters of an hour, and two
//! milliseconds for the next.
//!
//! A book that is not public costs what one costs that does not exist: the same statement, which finds
//! nothing, and of which nothing is remembered.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::BEGIN;
use crate::book::{self, Book, PlanError, Settings};
use crate::db;
use crate::engine::aggregate::{State, StateError, Value};
use crate::memo::{Memo, ReadError};
use crate::page::{self, PageError};
use crate::rollup::{AggregateKind, Field, GroupBy, Rollup, WindowSpec};
use crate::time::Timestamp;

/// For how long the service gives an answer again.
pub const FRESH_FOR: Duration = Duration::from_mins(1);

/// How many answers are read at once. Whoever asks needs no credentials, and must not take the database
/// from those who have some.
const AT_ONCE: usize = 2;

/// How long a caller waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many windows one statement looks into.
const WINDOWS: i64 = 10_000;

/// What anyone may know of a book, or of a page of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Public {
    /// The page, by its canonical name.
    pub page: Option<String>,
    /// Different readers of the last minutes; `None`: the book does not count them.
    pub readers_now: Option<i64>,
    /// How often it was read; `None`: the book does not count its pages.
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
            Self::Busy => true,
            Self::Page(_) | Self::Plan(_) | Self::State(_) => false,
        }
    }
}

/// Book and page, as they are asked for.
type Asked = (String, Option<String>);

#[derive(Debug)]
struct Answer {
    public: Public,
    sum: Option<Sum>,
}

/// What was added up of a page.
#[derive(Clone, Copy, Debug)]
struct Sum {
    of: Counted,
    /// As of which revision of the book.
    revision: i64,
    views: i64,
    /// Of them in windows that do not change any more.
    closed_views: i64,
    /// Where the other windows begin.
    open_from_ms: i64,
}

/// The windows that a sum is of. Imports and recounts change closed ones, and move the barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    book: Uuid,
    generation: i32,
    rollup: i16,
    barrier: i64,
}

/// Reads what is public, and remembers it for a minute.
#[derive(Debug)]
pub struct PublicCounts {
    pool: PgPool,
    answers: Memo<Asked, Arc<Answer>>,
    turns: Semaphore,
}

impl PublicCounts {
    /// Over `pool`, which is for readings that may take long; an answer is given again for so long.
    #[must_use]
    pub fn new(pool: PgPool, fresh_for: Duration) -> Self {
        Self {
            pool,
            answers: Memo::trusting_for(fresh_for),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// What is public of the book `name`, an id or a slug, or of a page of it; `None` if there is no such
    /// book, or it is not public.
    ///
    /// # Errors
    /// See [`PublicError`].
    pub async fn of(&self, name: &str, page: Option<&str>) -> Result<Option<Public>, PublicError> {
        if Uuid::try_parse(name).is_err() && book::check_slug(name).is_some() {
            return Ok(None);
        }
        if page.is_some_and(|page| page.len() > page::MAX_PAGE_BYTES) {
            // Nothing so long is remembered.
            return Err(PageError::TooLong.into());
        }
        let asked = (name.to_owned(), page.map(str::to_owned));
        let before = self.answers.peek(&asked).and_then(|answer| answer.sum);
        let found = self
            .answers
            .get(&asked, self.read(name, page, before))
            .await?;
        Ok(found.map(|answer| answer.public.clone()))
    }

    /// Forgets everything, because this process has just changed or removed a book.
    pub fn forget_all(&self) {
        self.answers.forget_all();
    }

    async fn read(
        &self,
        name: &str,
        page: Option<&str>,
        before: Option<Sum>,
    ) -> Result<Option<Arc<Answer>>, PublicError> {
        let turn = tokio::time::timeout(PATIENCE, self.turns.acquire()).await;
        let _turn = turn.map_err(|_| PublicError::Busy)?;
        let Some(id) = book::table::find_public(&self.pool, name).await? else {
            return Ok(None);
        };
        let mut tx = db::begin(&self.pool, BEGIN).await?;
        let Some(book) = book::table::find(&mut *tx, id).await? else {
            return Ok(None);
        };
        let page = page.map(|page| named(page, &book.settings)).transpose()?;
        let plan = book.plan()?;
        let rollups = || (0_i16..).zip(&plan.rollups);
        let group_by = page.as_ref().map_or(GroupBy::Book, |_| GroupBy::Page);
        let group = page.as_deref().unwrap_or_default();
        let readers_now =
            match rollups().find_map(|(place, rollup)| readers(place, rollup, group_by)) {
                Some(readers) => Some(readers_at(&mut tx, &book, &readers, group).await?),
                None => None,
            };
        let sum = match views(rollups()).filter(|_| page.is_some()) {
            Some((place, rollup)) => {
                Some(add_up(&mut tx, &book, (place, rollup), group, before).await?)
            }
            None => None,
        };
        tx.commit().await?;
        let views = match &page {
            None => Some(book.totals.on_time + book.totals.late),
            Some(_) => sum.map(|sum| sum.views),
        };
        Ok(Some(Arc::new(Answer {
            public: Public {
                page,
                readers_now,
                views,
            },
            sum,
        })))
    }
}

fn named(page: &str, settings: &Settings) -> Result<String, PageError> {
    page::named(page, settings.canonical_pages, &settings.base_path)
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

/// The rollup whose windows hold each view of a page once: of those that count all clicks by page, side
/// by side, the one that takes late clicks for longest; of these the one of the longest windows, for they
/// are fewest.
fn views<'a>(rollups: impl Iterator<Item = (i16, &'a Rollup)>) -> Option<(i16, &'a Rollup)> {
    let sized = rollups.filter_map(|(place, rollup)| match rollup.window {
        WindowSpec::Tumbling { size_ms }
            if rollup.aggregate == AggregateKind::Count
                && rollup.of.is_none()
                && rollup.group_by == GroupBy::Page =>
        {
            Some(((rollup.lateness_ms, size_ms), (place, rollup)))
        }
        _ => None,
    });
    sized
        .max_by_key(|(order, _)| *order)
        .map(|(_, found)| found)
}

/// The views of `page`, beginning with what was added up `before`.
async fn add_up(
    conn: &mut PgConnection,
    book: &Book,
    (place, rollup): (i16, &Rollup),
    page: &str,
    before: Option<Sum>,
) -> Result<Sum, sqlx::Error> {
    let of = Counted {
        book: book.id,
        generation: book.generation,
        rollup: place,
        barrier: book::table::barrier(&mut *conn, book.id).await?,
    };
    let before = before.filter(|sum| sum.of == of);
    if let Some(sum) = before.filter(|sum| sum.revision == book.revision) {
        return Ok(sum);
    }
    // While a run is live any window may change. Those of a closed book may once it is reopened.
    let before = before.filter(|_| book.live_run.is_none());
    let settled = !book.closed && book.live_run.is_none();
    let watermark_ms = book.watermark.stored().filter(|_| settled);
    let closed_until =
        watermark_ms.map_or(i64::MIN, |ms| ms.saturating_sub(rollup.closes_after_ms()));
    let mut sum = before.unwrap_or(Sum {
        of,
        revision: 0,
        views: 0,
        closed_views: 0,
        open_from_ms: i64::MIN,
    });
    sum.revision = book.revision;
    sum.views = sum.closed_views;
    let mut from_ms = sum.open_from_ms;
    loop {
        let part = part(conn, &of, page, from_ms, closed_until).await?;
        sum.views = sum.views.saturating_add(part.views);
        sum.closed_views = sum.closed_views.saturating_add(part.closed_views);
        sum.open_from_ms = part.closed_before_ms.unwrap_or(sum.open_from_ms);
        match part.next_ms {
            Some(next_ms) if part.windows == WINDOWS => from_ms = next_ms,
            _ => return Ok(sum),
        }
    }
}

/// What some windows hold of a page.
struct Part {
    windows: i64,
    views: i64,
    /// Of them in closed windows.
    closed_views: i64,
    /// Where the windows begin behind the last closed one, if there is one.
    closed_before_ms: Option<i64>,
    /// Where those begin that were not looked into.
    next_ms: Option<i64>,
}

/// One step along the index a window, however many pages it has, and one to the page.
async fn part(
    conn: &mut PgConnection,
    of: &Counted,
    page: &str,
    from_ms: i64,
    closed_until: i64,
) -> Result<Part, sqlx::Error> {
    sqlx::query_as!(
        Part,
        r#"WITH RECURSIVE steps AS (
               (SELECT start_ms, end_ms, 1::bigint AS step
                FROM windows
                WHERE book_id = $1 AND generation = $2 AND rollup = $3 AND start_ms >= $4
                ORDER BY start_ms, end_ms LIMIT 1)
               UNION ALL
               SELECT next.start_ms, next.end_ms, s.step + 1
               FROM steps s
               CROSS JOIN LATERAL (
                   SELECT w.start_ms, w.end_ms
                   FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                     AND w.start_ms > s.start_ms
                   ORDER BY w.start_ms, w.end_ms LIMIT 1) next
               WHERE s.step < $7)
           SELECT count(*) AS "windows!",
                  coalesce(sum(w.weight), 0)::bigint AS "views!",
                  coalesce(sum(w.weight) FILTER (WHERE s.end_ms <= $6), 0)::bigint AS "closed_views!",
                  max(s.start_ms) FILTER (WHERE s.end_ms <= $6) + 1 AS closed_before_ms,
                  max(s.start_ms) + 1 AS next_ms
           FROM steps s
           LEFT JOIN LATERAL (
               SELECT weight FROM windows w
               WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                 AND w.start_ms = s.start_ms AND w.end_ms = s.end_ms AND w.group_key = $5
               LIMIT 1) w ON true"#,
        of.book,
        of.generation,
        of.rollup,
        from_ms,
        page,
        closed_until,
        WINDOWS,
    )
    .fetch_one(conn)
    .await
}
