//! Emptying the spool: segment by segment, oldest first, through the lanes.
//!
//! **Promises.** A segment is removed only once all that it holds is committed; replayed after a
//! crash in between, its clicks fall out by their ids. A segment that cannot be delivered is kept,
//! told of, and passed over, and tried again later. While the database is away one segment is
//! tried at a time, with growing pauses.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::commit::{Batch, Refusal};
use super::lane::{Answer, Lanes, SubmitError, Work};
use super::retry::Retries;
use super::spooled::SpooledClick;
use super::tier::Spool;
use crate::spool::{Segment, SegmentKey, Store};
use crate::telemetry;

/// Most clicks of one book that go into a lane as one request.
const BATCH_CLICKS: usize = 1000;

/// Most clicks that are in the lanes at a time.
const CLICKS_IN_LANES: usize = 5_000;

/// How long a segment that could not be delivered is left alone.
const PASSED_OVER_FOR: Duration = Duration::from_secs(5);

/// How often the spool is looked at that nobody rang for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How a pass over the segments ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    /// Nothing is left.
    Emptied,
    /// Some segments could not be delivered; the others were.
    PassedOver,
    /// The database is away.
    Away,
}

/// How the delivery of a segment ended.
#[derive(PartialEq, Eq, Debug)]
enum Delivery {
    /// All of it is committed.
    Done,
    /// All but the clicks of these books.
    Refused(HashMap<Uuid, Left>),
    /// The database is away.
    Away,
}

/// Why clicks of a book are left in a segment, and so whether newer ones come after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// The book could not be written in time: newer ones wait.
    Busy,
    /// The book cannot be written, and nobody knows when it can: newer ones do not wait.
    Refused,
}

/// Segments that could not be delivered, and the books whose clicks in them are left.
type Kept = HashMap<SegmentKey, HashMap<Uuid, Left>>;

impl<S: Store<SpooledClick>> Spool<S> {
    /// Empties the spool whenever there is something in it, until `stop`.
    pub async fn drain(self: Arc<Self>, lanes: Arc<Lanes>, stop: CancellationToken) {
        let pauses = Retries::default();
        let (mut failed, mut kept) = (0_u32, Kept::new());
        loop {
            let pass = tokio::select! {
                () = stop.cancelled() => return,
                pass = self.pass(&lanes, &mut kept) => pass,
            };
            failed = if pass == Pass::Away {
                failed.saturating_add(1)
            } else {
                0
            };
            let pause = match pass {
                Pass::Emptied => None,
                Pass::PassedOver => Some(PASSED_OVER_FOR),
                Pass::Away => Some(pauses.wait_before(failed)),
            };
            let again = async {
                if let Some(pause) = pause {
                    tokio::time::sleep(pause).await;
                } else {
                    let filled = self.filled.notified();
                    let _ = tokio::time::timeout(LOOK_EVERY, filled).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = again => {}
            }
        }
    }

    /// One pass over the segments, from the oldest.
    async fn pass(&self, lanes: &Lanes, kept: &mut Kept) -> Pass {
        let (mut after, mut passed_over) = (None, false);
        loop {
            let mut segment = match self.store.oldest(after).await {
                Ok(Some(segment)) => segment,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(error = %telemetry::chain(&error), "a segment of the spool is passed over");
                    (after, passed_over) = (Some(error.key()), true);
                    continue;
                }
            };
            let key = segment.key();
            telemetry::spool_damaged(segment.damaged());
            let only = kept.get(&key);
            match self.deliver(lanes, segment.take_records(), only).await {
                Delivery::Away => {
                    self.away.store(true, Ordering::SeqCst);
                    return Pass::Away;
                }
                Delivery::Refused(books) => {
                    telemetry::segment_kept();
                    tracing::error!(segment = %key, ?books, "a segment of the spool could not be delivered; it is kept, and tried again later");
                    kept.insert(key, books);
                    (after, passed_over) = (Some(key), true);
                }
                Delivery::Done => {
                    // Delivered again, should it not go, nothing is left of it.
                    kept.insert(key, HashMap::new());
                    match segment.commit().await {
                        Ok(()) => drop(kept.remove(&key)),
                        Err(error) => {
                            tracing::error!(error = %telemetry::chain(&error), "a segment of the spool could not be removed");
                            (after, passed_over) = (Some(key), true);
                        }
                    }
                }
            }
            self.away.store(false, Ordering::SeqCst);
        }
        if passed_over {
            return Pass::PassedOver;
        }
        // Whatever was appended meanwhile has rung.
        self.away.store(false, Ordering::SeqCst);
        self.settle_up();
        Pass::Emptied
    }

    /// Has the records committed, in order: all, or, where the rest is committed already, those of
    /// the books of which it was left before.
    async fn deliver(
        &self,
        lanes: &Lanes,
        mut records: Vec<SpooledClick>,
        left_before: Option<&HashMap<Uuid, Left>>,
    ) -> Delivery {
        if let Some(books) = left_before {
            records.retain(|record| books.contains_key(&record.book));
        }
        let mut clicks_of: HashMap<Uuid, usize> = HashMap::new();
        for record in &records {
            *clicks_of.entry(record.book).or_default() += 1;
        }
        let mut waiting = Waiting::default();
        for (book, batch) in batches(records) {
            while waiting.clicks > 0 && waiting.clicks + batch.clicks.len() > CLICKS_IN_LANES {
                waiting.next().await;
            }
            if waiting.away {
                break;
            }
            waiting.hand_over(lanes, book, Arc::new(batch)).await;
        }
        while !waiting.answers.is_empty() {
            waiting.next().await;
        }
        if waiting.away {
            return Delivery::Away;
        }
        for (book, clicks) in &clicks_of {
            let before = left_before.and_then(|books| books.get(book)).copied();
            let now = waiting.left.get(book).copied();
            match (before, now) {
                (_, None) => {
                    telemetry::drained(*clicks - waiting.discarded.get(book).unwrap_or(&0));
                    match before {
                        Some(Left::Refused) => self.owed().settle_passed_over(*book, *clicks),
                        None | Some(Left::Busy) => self.owed().settle(*book, *clicks),
                    }
                }
                (None | Some(Left::Busy), Some(Left::Refused)) => {
                    self.owed().pass_over(*book, *clicks);
                }
                (_, Some(_)) => {
                    // It was passed over, or newer ones wait as before.
                    if let (Some(Left::Refused), Some(left)) = (before, waiting.left.get_mut(book))
                    {
                        *left = Left::Refused;
                    }
                }
            }
        }
        // A closed book comes to rest only now.
        let books: Vec<Uuid> = clicks_of.into_keys().collect();
        self.hub.wake(&books);
        if waiting.left.is_empty() {
            Delivery::Done
        } else {
            Delivery::Refused(waiting.left)
        }
    }
}

/// Runs of clicks of the same book, in order.
fn batches(records: Vec<SpooledClick>) -> Vec<(Uuid, Batch)> {
    let mut batches: Vec<(Uuid, Batch)> = Vec::new();
    // Clicks of a book stay in order though those of others lie between them.
    let mut newest: HashMap<Uuid, usize> = HashMap::new();
    for SpooledClick { book, click } in records {
        let place = newest.get(&book).copied();
        if let Some(place) = place.filter(|p| batches[*p].1.clicks.len() < BATCH_CLICKS) {
            batches[place].1.clicks.push(click);
            continue;
        }
        newest.insert(book, batches.len());
        let batch = Batch {
            clicks: vec![click],
            acknowledged: true,
            ..Batch::default()
        };
        batches.push((book, batch));
    }
    batches
}

/// What is in the lanes.
#[derive(Default)]
struct Waiting {
    answers: VecDeque<(Uuid, usize, Answer)>,
    clicks: usize,
    left: HashMap<Uuid, Left>,
    /// Clicks of books that are gone.
    discarded: HashMap<Uuid, usize>,
    away: bool,
}

impl Waiting {
    /// Puts a batch into its lane, as soon as there is room.
    async fn hand_over(&mut self, lanes: &Lanes, book: Uuid, batch: Arc<Batch>) {
        loop {
            match lanes.enqueue(book, Work::Clicks(Arc::clone(&batch))) {
                Ok(answer) => {
                    let clicks = batch.clicks.len();
                    self.clicks += clicks;
                    self.answers.push_back((book, clicks, answer));
                    return;
                }
                // Live clicks fill the lane; it is emptied while we wait.
                Err(SubmitError::QueueFull) if self.answers.is_empty() => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(SubmitError::QueueFull) => self.next().await,
                Err(_) => {
                    self.away = true;
                    return;
                }
            }
        }
    }

    /// Waits for the oldest answer.
    async fn next(&mut self) {
        let Some((book, clicks, answer)) = self.answers.pop_front() else {
            return;
        };
        self.clicks -= clicks;
        match answer.wait().await {
            Ok(_) => {}
            Err(SubmitError::Refused(Refusal::NoSuchBook)) => {
                tracing::warn!(%book, clicks, "clicks of the spool are discarded: there is no such book any more");
                telemetry::discarded(clicks);
                *self.discarded.entry(book).or_default() += clicks;
            }
            Err(SubmitError::Unavailable) => self.away = true,
            Err(SubmitError::Busy) => {
                self.left.entry(book).or_insert(Left::Busy);
            }
            Err(_) => {
                self.left.insert(book, Left::Refused);
            }
        }
    }
}
