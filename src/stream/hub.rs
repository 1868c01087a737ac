//! The hub: one for each process. It knows which books are watched, and reads what is new of them
//! once for all their readers.
//!
//! **Promises.** However many readers a book has, a change costs one query at most; changes of many
//! books that come together cost one query; an idle process asks once a second for all books.
//!
//! A commit of this process is told with its frames, and costs no query where they go on from what is
//! known of the book. A wake-up is a hint: after any other commit, after an announcement of another
//! process, and once a second for what neither told.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::announce::Outbox;
use super::feed::{Feed, Head};
use super::news;
use super::older::Buffer;
use super::ring::{Encoded, Page};
use crate::book::Here;
use crate::book::owed::Owed;
use crate::frame::News;
use crate::telemetry;

/// How often the hub looks for what nobody told it.
const POLL: Duration = Duration::from_secs(1);

/// How long a reader waits for the row of its book, and the hub for the database: behind a reading
/// that never returns, every stream would stand still.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most books that one statement reads; the others come next.
const BOOKS_AT_ONCE: usize = 64;

/// One for each process.
#[derive(Debug)]
pub struct Hub {
    pub(super) pool: PgPool,
    /// For snapshots.
    long_reads: PgPool,
    /// Tells this process's announcements from those of others.
    pub(super) process: Uuid,
    feeds: Mutex<HashMap<Uuid, Arc<Feed>>>,
    dirty: Mutex<HashSet<Uuid>>,
    bell: Notify,
    pub(super) outbox: Outbox,
    owed: Owed,
}

/// The book's row could not be read in time.
#[derive(Debug, thiserror::Error)]
#[error("the book could not be read in time")]
pub struct Unreadable;

impl Hub {
    /// A hub that nobody watches yet; [`Hub::run`] must run beside it.
    #[must_use]
    pub fn new(pool: PgPool, long_reads: PgPool) -> Self {
        Self {
            pool,
            long_reads,
            process: Uuid::new_v4(),
            feeds: Mutex::default(),
            dirty: Mutex::default(),
            bell: Notify::new(),
            outbox: Outbox::default(),
            owed: Owed::default(),
        }
    }

    /// Says that this process has committed frames of `books`.
    pub fn wake(&self, books: &[Uuid]) {
        self.wake_here(books);
        self.outbox.put(books);
    }

    /// Says that this process has committed frames of `books`. Where `news` tell which, and go on from
    /// what is known of the book, its readers get them at once; the other books are read.
    pub fn tell(&self, books: &[Uuid], news: &[News]) {
        self.outbox.put(books);
        let (feeds, watched) = {
            let watched = lock(&self.feeds);
            let feeds = news.iter().map(|news| watched.get(&news.book).cloned());
            (feeds.collect::<Vec<Option<Arc<Feed>>>>(), watched.len())
        };
        let told = news.iter().zip(feeds);
        let told = told.filter(|(news, feed)| {
            let feed = feed.as_ref();
            feed.is_none_or(|feed| feed.extend(news, watched))
        });
        let told: HashSet<Uuid> = told.map(|(news, _)| news.book).collect();
        let rest = books.iter().filter(|book| !told.contains(book));
        self.wake_here(&rest.copied().collect::<Vec<Uuid>>());
    }

    /// Says that `books` may have new frames.
    pub(super) fn wake_here(&self, books: &[Uuid]) {
        let feeds = lock(&self.feeds);
        let watched: Vec<Uuid> = books
            .iter()
            .filter_map(|id| feeds.get(id))
            .map(|feed| {
                feed.wake();
                feed.book
            })
            .collect();
        drop(feeds);
        self.mark(watched);
    }

    /// Says that any book may have new frames.
    pub(super) fn wake_all(&self) {
        let watched: Vec<Uuid> = lock(&self.feeds).keys().copied().collect();
        self.wake_here(&watched);
    }

    fn mark(&self, books: impl IntoIterator<Item = Uuid>) {
        let mut dirty = lock(&self.dirty);
        let before = dirty.len();
        dirty.extend(books);
        if dirty.len() > before {
            self.bell.notify_one();
        }
    }

    /// What this process owes its books. Whoever settles a debt wakes the book afterwards: it may
    /// be at rest now.
    #[must_use]
    pub fn owed(&self) -> &Owed {
        &self.owed
    }

    /// What this process knows of `book` besides its row; to be asked before the row is read.
    #[must_use]
    pub fn here(&self, book: Uuid) -> Here {
        let feeds = lock(&self.feeds);
        let feed = feeds.get(&book);
        Here {
            streams_open: feed.map_or(0, |feed| feed.watchers.load(Ordering::SeqCst)),
            owes: self.owed.owes(book),
        }
    }

    /// Begins to watch `book`: whatever is committed from now on is seen.
    #[must_use]
    pub fn watch(self: &Arc<Self>, book: Uuid) -> Watch {
        let mut feeds = lock(&self.feeds);
        let feed = feeds.entry(book).or_insert_with(|| {
            self.mark([book]);
            Arc::new(Feed::new(book))
        });
        feed.watchers.fetch_add(1, Ordering::SeqCst);
        Watch {
            hub: Arc::clone(self),
            head: feed.head.subscribe(),
            feed: Arc::clone(feed),
        }
    }

    /// Reads what is new, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let news = async {
                tokio::select! {
                    () = self.bell.notified() => {}
                    _ = poll.tick() => patiently(self.look_around()).await?,
                }
                self.refresh().await
            };
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = news => read,
            };
            if let Err(error) = read {
                tracing::warn!(error = %telemetry::chain(&error), "the streams' books could not be read");
            }
        }
    }

    /// One look at the rows of all watched books: those that moved, and those that were not read
    /// since they were woken, are read.
    async fn look_around(&self) -> Result<(), sqlx::Error> {
        let feeds: Vec<Arc<Feed>> = lock(&self.feeds).values().cloned().collect();
        if feeds.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = feeds.iter().map(|f| f.book).collect();
        let rows = sqlx::query!(
            "SELECT id, revision FROM books WHERE id = ANY($1) AND NOT deleted",
            &ids
        )
        .fetch_all(&self.pool)
        .await?;
        let revisions: HashMap<Uuid, i64> = rows.into_iter().map(|r| (r.id, r.revision)).collect();
        let moved = feeds.iter().filter(|feed| {
            let head = *feed.head.borrow();
            head.is_none_or(|head| {
                let now = revisions.get(&feed.book);
                head.as_of < feed.wakes()
                    || head.deleted == now.is_some()
                    || now.is_some_and(|r| *r != head.revision)
            })
        });
        self.mark(moved.map(|feed| feed.book));
        Ok(())
    }

    /// Reads what is new of the books that were marked, all in one statement.
    async fn refresh(&self) -> Result<(), sqlx::Error> {
        let dirty = self.take_marked();
        let (feeds, watched) = {
            let watched = lock(&self.feeds);
            let feeds = dirty.iter().filter_map(|id| watched.get(id).cloned());
            (feeds.collect::<Vec<Arc<Feed>>>(), watched.len())
        };
        if feeds.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = feeds.iter().map(|f| f.book).collect();
        let after: Vec<i64> = feeds.iter().map(|f| f.upto()).collect();
        // Before the statement: what was woken by now, it sees.
        let before: Vec<(u64, u64, bool)> = feeds
            .iter()
            .map(|f| (f.tells(), f.wakes(), self.owed.owes(f.book)))
            .collect();
        let rows = patiently(news::read(&self.pool, &ids, &after)).await;
        let rows = rows.inspect_err(|_| self.mark_quietly(&ids))?;
        let mut rows = rows.into_iter().peekable();
        for ((place, feed), (tells, as_of, owes)) in (1_i64..).zip(&feeds).zip(before) {
            let head = rows.peek().and_then(|row| row.head(as_of, owes));
            let of_book = std::iter::from_fn(|| rows.next_if(|row| row.place == place));
            let frames: Vec<Encoded> = of_book.filter_map(|row| row.frame()).collect();
            let Some(head) = head else {
                feed.gone(as_of);
                continue;
            };
            if feed.refresh((head, tells), frames, watched) {
                self.mark([feed.book]);
            }
        }
        Ok(())
    }

    /// Some of the books that are marked; the bell rings for the rest.
    fn take_marked(&self) -> Vec<Uuid> {
        let mut dirty = lock(&self.dirty);
        let some: Vec<Uuid> = dirty.iter().take(BOOKS_AT_ONCE).copied().collect();
        for book in &some {
            dirty.remove(book);
        }
        if !dirty.is_empty() {
            self.bell.notify_one();
        }
        some
    }

    /// Keeps books marked after a failed reading, without ringing: the next poll tries again.
    fn mark_quietly(&self, books: &[Uuid]) {
        lock(&self.dirty).extend(books);
    }
}

/// A reading, as long as there is patience for it.
async fn patiently<T>(
    reading: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let timed = tokio::time::timeout(PATIENCE, reading).await;
    timed.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reader's hold on a book's feed.
#[derive(Debug)]
pub struct Watch {
    hub: Arc<Hub>,
    pub(super) feed: Arc<Feed>,
    head: watch::Receiver<Option<Head>>,
}

impl Watch {
    /// The head as it was last read; whatever changes it later, [`Watch::changed`] tells.
    ///
    /// # Errors
    /// It was not read in time: the database is out of reach.
    pub async fn head(&mut self) -> Result<Head, Unreadable> {
        let known = self.head.wait_for(Option::is_some);
        let known = tokio::time::timeout(PATIENCE, known).await;
        let head = known.ok().and_then(Result::ok).and_then(|head| *head);
        head.ok_or(Unreadable)
    }

    /// The head as it is now or later: read after this was called, where there is doubt.
    ///
    /// # Errors
    /// As [`Watch::head`].
    pub async fn confirmed_head(&mut self) -> Result<Head, Unreadable> {
        let wake = self.feed.wake();
        self.hub.mark([self.feed.book]);
        let fresh = |head: &Option<Head>| head.is_some_and(|head| head.as_of >= wake);
        let read = tokio::time::timeout(PATIENCE, self.head.wait_for(fresh)).await;
        let head = read.ok().and_then(Result::ok).and_then(|head| *head);
        head.ok_or(Unreadable)
    }

    /// Whether frames may have been committed that the head does not know of.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let head = *self.head.borrow();
        head.is_none_or(|head| head.as_of < self.feed.wakes())
    }

    /// The head that the reader has not looked at yet counts as seen.
    pub(super) fn take_head(&mut self) -> Head {
        self.head.borrow_and_update().unwrap_or(Head::NOWHERE)
    }

    /// Waits until the head is another than the one taken last.
    pub(super) async fn changed(&mut self) {
        if self.head.changed().await.is_err() {
            // The feed lives as long as this watch, so its sender does too.
            std::future::pending::<()>().await;
        }
    }

    /// The frames after `cursor`, at most `most` bytes of them but at least one.
    ///
    /// # Errors
    /// What the database says, where it had to be asked.
    pub async fn page(&self, cursor: i64, most: usize) -> Result<Page, sqlx::Error> {
        match self.feed.page(cursor, most) {
            Page::Older => {
                let (pool, book) = (&self.hub.pool, self.feed.book);
                // Boxed, for it is rare, and a stream that waits has room for it all its life.
                Box::pin(self.feed.older(&Buffer { pool, book }, cursor, most)).await
            }
            page => Ok(page),
        }
    }

    pub(super) fn long_reads(&self) -> &PgPool {
        &self.hub.long_reads
    }

    pub(super) fn here(&self) -> Here {
        self.hub.here(self.feed.book)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut feeds = lock(&self.hub.feeds);
        if self.feed.watchers.fetch_sub(1, Ordering::SeqCst) == 1 {
            feeds.remove(&self.feed.book);
        }
    }
}
