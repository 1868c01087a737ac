//! The tier before the lanes: where clicks go when the database is out of reach.
//!
//! **Promises.** What is answered as spooled would survive a crash; newer clicks of a book queue
//! behind those of it that wait; what waits in memory is bounded. Without a spool, this is the way
//! into the lanes and nothing more.
//!
//! **Called by** the endpoint that takes clicks. [`super::drain`] empties the spool.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use super::commit::{Batch, Receipt};
use super::lane::{Lanes, SubmitError, Work, weight};
use super::spooled::SpooledClick;
use crate::book::owed::Owed;
use crate::spool::disk::DiskStore;
use crate::spool::{AppendError, Segment, Store, Window};
use crate::stream::hub::Hub;
use crate::telemetry;
use crate::time::Timestamp;

/// What has become of a request.
#[derive(Debug)]
pub enum Taken {
    /// It is committed.
    Committed(Receipt),
    /// It waits where it would survive a crash.
    Spooled,
}

/// Clicks that arrive within this time share a segment.
const SEGMENT_MS: u64 = 10_000;

/// When no more than this many clicks of a book wait, newer ones wait for them in memory rather
/// than queue behind them on disk, so that a busy book comes out of the spool.
const LITTLE: usize = 10_000;

/// How long they wait at most.
const WAIT: Duration = Duration::from_secs(5);

/// The way in, with or without a spool.
#[derive(Debug)]
pub struct Tier<S = DiskStore<SpooledClick>> {
    lanes: Arc<Lanes>,
    spool: Option<Arc<Spool<S>>>,
}

/// Clicks that wait for the database.
#[derive(Debug)]
pub struct Spool<S = DiskStore<SpooledClick>> {
    pub(super) store: S,
    pub(super) hub: Arc<Hub>,
    /// The database did not answer last time. True only while something waits: the drain finds out
    /// when it answers again.
    pub(super) away: AtomicBool,
    /// Rings when something was appended.
    pub(super) filled: Notify,
    /// How many appends are under way. Held while what is owed is looked at as a whole.
    appending: Mutex<usize>,
    newest_window: AtomicU64,
    /// Clicks that are being appended, or wait for those before them.
    room: Arc<Semaphore>,
}

impl<S: Store<SpooledClick>> Tier<S> {
    /// The way into `lanes`, past `spool` if there is one.
    #[must_use]
    pub fn new(lanes: Arc<Lanes>, spool: Option<Arc<Spool<S>>>) -> Self {
        Self { lanes, spool }
    }

    /// The spool, if there is one.
    #[must_use]
    pub fn spool(&self) -> Option<&Arc<Spool<S>>> {
        self.spool.as_ref()
    }

    /// Has the clicks committed, or keeps them until they can be.
    ///
    /// # Errors
    /// Nothing of them was acknowledged; see [`SubmitError`].
    pub async fn submit(&self, book: Uuid, batch: Arc<Batch>) -> Result<Taken, SubmitError> {
        let work = Work::Clicks(Arc::clone(&batch));
        let spool = match &self.spool {
            Some(spool) if !batch.clicks.is_empty() => spool,
            _ => return self.lanes.submit(book, work).await.map(Taken::Committed),
        };
        if spool.must_queue(book, &batch).await? {
            return spool.keep(book, batch, false).await;
        }
        match self.lanes.submit(book, work).await {
            Err(SubmitError::Unavailable) => spool.keep(book, batch, true).await,
            // Another book may fare better.
            Err(SubmitError::Busy) => spool.keep(book, batch, false).await,
            other => other.map(Taken::Committed),
        }
    }

    /// Waits, for a while, until no clicks of `book` wait in the spool: what ends its input comes
    /// after them.
    pub async fn wait_for_earlier_clicks(&self, book: Uuid) {
        if let Some(spool) = &self.spool {
            let earlier = async {
                loop {
                    let settled = spool.owed().settled();
                    if spool.owed().ahead(book) == 0 || spool.away.load(Ordering::SeqCst) {
                        return;
                    }
                    settled.await;
                }
            };
            let _ = tokio::time::timeout(WAIT, earlier).await;
        }
    }
}

impl<S: Store<SpooledClick>> Spool<S> {
    /// A spool over `store`, whose segments of an earlier process are counted first.
    pub async fn open(store: S, hub: Arc<Hub>, queue_clicks: usize) -> Self {
        let spool = Self {
            store,
            hub,
            away: AtomicBool::new(false),
            filled: Notify::new(),
            appending: Mutex::new(0),
            newest_window: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(queue_clicks)),
        };
        let mut after = None;
        loop {
            match spool.store.oldest(after).await {
                Ok(None) => break,
                Ok(Some(segment)) => {
                    after = Some(segment.key());
                    let window = segment.key().window().0;
                    spool.newest_window.fetch_max(window, Ordering::SeqCst);
                    for record in segment.records() {
                        spool.owed().add(record.book, 1);
                    }
                }
                // The drain tells of it.
                Err(error) => after = Some(error.key()),
            }
        }
        if spool.store.segments() > 0 {
            let clicks = spool.owed().all_clicks();
            tracing::info!(clicks, "clicks of an earlier process wait in the spool");
            spool.filled.notify_one();
        }
        spool
    }

    pub(super) fn owed(&self) -> &Owed {
        self.hub.owed()
    }

    /// Whether the spool takes no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.store.bytes() >= self.store.max_bytes()
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// How many clicks wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.owed().all_clicks()
    }

    /// Whether clicks of `book` must queue behind others on disk. Where little is left of those,
    /// waits for them instead.
    async fn must_queue(&self, book: Uuid, batch: &Batch) -> Result<bool, SubmitError> {
        let deadline = Instant::now() + WAIT;
        // Held to the end, while the clicks wait.
        let mut room = None;
        loop {
            let settled = self.owed().settled();
            let away = self.away.load(Ordering::SeqCst);
            match self.owed().ahead(book) {
                0 => return Ok(away),
                waiting if away || waiting > LITTLE => return Ok(true),
                _ => {}
            }
            if room.is_none() {
                let taken = self.room.try_acquire_many(weight(batch));
                room = Some(taken.map_err(|_| SubmitError::QueueFull)?);
            }
            if tokio::time::timeout_at(deadline, settled).await.is_err() {
                return Ok(true);
            }
        }
    }

    /// Keeps the clicks where they survive a crash. `away`: because the database did not answer.
    async fn keep(
        self: &Arc<Self>,
        book: Uuid,
        batch: Arc<Batch>,
        away: bool,
    ) -> Result<Taken, SubmitError> {
        // The store would say so itself, but only after it was handed all the lines.
        if self.is_full() {
            return Err(refused(&AppendError::Full));
        }
        let room = Arc::clone(&self.room).try_acquire_many_owned(weight(&batch));
        let room = room.map_err(|_| SubmitError::QueueFull)?;
        let spool = Arc::clone(self);
        // A task of its own: a client that goes away must not leave the account wrong, or clicks in
        // the spool that nobody was told of.
        let append = async move {
            let clicks = batch.clicks.len();
            // Before they are there, so that nobody goes past them.
            spool.begin_append(book, clicks);
            let records = batch.clicks.iter().map(|click| SpooledClick {
                book,
                click: click.clone(),
            });
            let now = u64::try_from(Timestamp::now().millis()).unwrap_or(0);
            // A clock that is set back must not put newer clicks first.
            let window = spool
                .newest_window
                .fetch_max(now - now % SEGMENT_MS, Ordering::SeqCst);
            let window = Window(window.max(now - now % SEGMENT_MS));
            let appended = spool.store.append(window, records.collect()).await;
            if appended.is_err() {
                spool.owed().settle(book, clicks);
                spool.hub.wake(&[book]);
            } else {
                telemetry::spooled(clicks);
                if away {
                    spool.away.store(true, Ordering::SeqCst);
                }
            }
            spool.end_append();
            spool.filled.notify_one();
            drop(room);
            appended
        };
        // What is said of it belongs to the request.
        let kept = tokio::spawn(append.in_current_span());
        match kept.await {
            Ok(Ok(())) => Ok(Taken::Spooled),
            Ok(Err(error)) => Err(refused(&error)),
            Err(_) => Err(SubmitError::Unavailable),
        }
    }

    fn begin_append(&self, book: Uuid, clicks: usize) {
        let mut appending = self.appending();
        *appending += 1;
        self.owed().add(book, clicks);
    }

    fn end_append(&self) {
        *self.appending() -= 1;
    }

    /// Called when the store was found empty: what is still on the account was damaged on disk.
    pub(super) fn settle_up(&self) {
        let appending = self.appending();
        if *appending > 0 || self.store.segments() > 0 {
            return;
        }
        let lost = self.owed().forgive();
        drop(appending);
        if !lost.is_empty() {
            tracing::warn!(
                books = lost.len(),
                "spooled clicks were damaged; see the .bad files"
            );
            self.hub.wake(&lost);
        }
    }

    fn appending(&self) -> MutexGuard<'_, usize> {
        self.appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a request whose clicks could not be kept.
fn refused(error: &AppendError) -> SubmitError {
    match error {
        // Readiness tells of it, and a flood must not flood the log too.
        AppendError::Full => SubmitError::SpoolFull,
        AppendError::Io(_) => {
            tracing::error!(error = %telemetry::chain(error), "clicks could not be spooled");
            SubmitError::Unavailable
        }
    }
}
