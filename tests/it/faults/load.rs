//! Writers: each posts a batch until it is acknowledged, and again what was acknowledged before.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::checks::Click;
use super::plan::{Plan, Writing};
use crate::harness::load::answer;
use crate::harness::{Answer, Api, PATIENCE};

/// The addresses of the servers, where they are up.
pub(super) type Addresses = watch::Receiver<Vec<Option<String>>>;

/// What all writers share.
#[derive(Debug)]
struct Common {
    spools: Vec<bool>,
    pages: usize,
    stop: AtomicBool,
    acknowledged: AtomicUsize,
}

/// The writers of a round.
pub(super) struct Load {
    common: Arc<Common>,
    writers: JoinSet<Written>,
}

/// What writers did.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) sent: HashMap<Uuid, Click>,
    pub(super) acknowledged: HashSet<Uuid>,
    pub(super) batches: usize,
    /// Clicks that were sent although they had been acknowledged.
    pub(super) resent: usize,
    /// Clicks that a post had committed which was not answered.
    pub(super) unanswered: usize,
    /// Batches that were acknowledged as spooled.
    pub(super) spooled: usize,
    pub(super) unavailable: usize,
    /// Posts whose connection broke, or that found no server.
    pub(super) broken: usize,
    /// Answers that must not be given.
    pub(super) wrong: Vec<String>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            batches,
            resent,
            unanswered,
            spooled,
            unavailable,
            broken,
            ..
        } = self;
        let (sent, acknowledged) = (self.sent.len(), self.acknowledged.len());
        write!(
            f,
            "{batches} batches with {sent} clicks, {acknowledged} acknowledged, {unanswered} of \
             them only when sent again though committed, {resent} sent again on purpose; \
             {spooled} batches spooled, {unavailable} unavailable, {broken} posts broken"
        )
    }
}

impl Load {
    pub(super) fn start(api: &Api, plan: &Plan, addresses: &Addresses) -> Self {
        let common = Arc::new(Common {
            spools: plan.spools.clone(),
            pages: plan.shape.pages,
            stop: AtomicBool::default(),
            acknowledged: AtomicUsize::default(),
        });
        let mut writers = JoinSet::new();
        for plan in &plan.writers {
            let writer = Writer {
                plan: plan.clone(),
                api: api.clone(),
                addresses: addresses.clone(),
                common: Arc::clone(&common),
                written: Written::default(),
                known: Vec::new(),
            };
            writers.spawn(writer.write());
        }
        Self { common, writers }
    }

    /// How many clicks were acknowledged so far.
    pub(super) fn acknowledged(&self) -> usize {
        self.common.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until so many are, or so long.
    pub(super) async fn reaches(&self, acknowledged: usize, at_most: Duration) {
        let began = Instant::now();
        while self.acknowledged() < acknowledged && began.elapsed() < at_most {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops, once every batch that was begun is acknowledged.
    pub(super) async fn finish(self) -> Written {
        self.common.stop.store(true, Ordering::SeqCst);
        let all = tokio::time::timeout(PATIENCE, self.writers.join_all()).await;
        let mut sum = Written::default();
        for one in all.expect("some batch was never acknowledged") {
            sum.sent.extend(one.sent);
            sum.acknowledged.extend(one.acknowledged);
            sum.batches += one.batches;
            sum.resent += one.resent;
            sum.unanswered += one.unanswered;
            sum.spooled += one.spooled;
            sum.unavailable += one.unavailable;
            sum.broken += one.broken;
            sum.wrong.extend(one.wrong);
        }
        sum
    }
}

struct Writer {
    plan: Writing,
    api: Api,
    addresses: Addresses,
    common: Arc<Common>,
    written: Written,
    /// What was acknowledged, in order.
    known: Vec<Uuid>,
}

impl Writer {
    async fn write(mut self) -> Written {
        for number in 0_u32.. {
            if self.common.stop.load(Ordering::SeqCst) {
                break;
            }
            // From a seed of its own: a batch is the same however often those before it were posted.
            let mut rng = StdRng::seed_from_u64(self.plan.seed.wrapping_add(number.into()));
            let batch = self.batch(number, &mut rng);
            let body = self.body(&batch);
            let first = rng.random_range(0..self.common.spools.len());
            let mut acknowledged = false;
            let twice = rng.random_ratio(self.plan.twice, 100);
            if twice {
                // Both at once, and to the other server if there is one.
                let second = (first + 1) % self.common.spools.len();
                let (one, other) = tokio::join!(self.post(first, &body), self.post(second, &body));
                acknowledged |= self.judge(first, one, &batch);
                acknowledged |= self.judge(second, other, &batch);
            }
            let gives_up = rng.random_ratio(self.plan.gives_up, 100);
            let mut slot = first;
            loop {
                let answer = self.post(slot, &body).await;
                if !twice && let Ok(Some(answer)) = &answer {
                    self.count_unanswered(answer, &batch);
                }
                acknowledged |= self.judge(slot, answer, &batch);
                if acknowledged || gives_up {
                    break;
                }
                slot = (slot + 1) % self.common.spools.len();
                // As a client would, only sooner.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.written.batches += 1;
            if !acknowledged {
                // Perhaps it counts, perhaps not: the log of clicks says.
                tokio::time::sleep(self.plan.pause).await;
                continue;
            }
            for id in batch {
                if self.written.acknowledged.insert(id) {
                    self.known.push(id);
                    self.common.acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            }
            tokio::time::sleep(self.plan.pause).await;
        }
        self.written
    }

    /// New clicks, and some that were acknowledged before, whole batches of them or single ones.
    fn batch(&mut self, number: u32, rng: &mut StdRng) -> Vec<Uuid> {
        let mut batch = Vec::new();
        let again = rng.random_ratio(self.plan.repeats, 100);
        if again && !self.known.is_empty() {
            let most = self.plan.biggest_batch.min(self.known.len());
            let many = rng.random_range(1..=most);
            if rng.random() {
                batch.extend(&self.known[self.known.len() - many..]);
            } else {
                batch.extend((0..many).map(|_| *self.known.choose(rng).unwrap()));
            }
        }
        self.written.resent += batch.len();
        if batch.is_empty() || rng.random() {
            for _ in 0..rng.random_range(1..=self.plan.biggest_batch) {
                let id = Uuid::from_u128(rng.random());
                let click = Click {
                    page: format!("/p{}", rng.random_range(0..self.common.pages)),
                    at: i64::from(number) * self.plan.step_ms + rng.random_range(0..500),
                };
                self.written.sent.insert(id, click);
                batch.push(id);
                if rng.random_ratio(1, 20) {
                    batch.push(id);
                }
            }
        }
        batch.shuffle(rng);
        batch
    }

    fn body(&self, batch: &[Uuid]) -> Value {
        let clicks = batch.iter().map(|id| {
            let click = &self.written.sent[id];
            json!({"id": id, "page": click.page, "at": click.at})
        });
        clicks.collect()
    }

    /// An answer, or why there is none.
    async fn post(&self, slot: usize, body: &Value) -> Result<Option<Answer>, String> {
        let Some(url) = self.addresses.borrow()[slot].clone() else {
            return Ok(None);
        };
        let request = self.api.http.post(format!("{url}/v1/books/b/clicks"));
        let request = request.bearer_auth(&self.api.token).json(body);
        let answered = tokio::time::timeout(PATIENCE / 2, answer(request)).await;
        let answered = answered.map_err(|_| format!("server {slot} left a post without an answer"));
        tokio::time::sleep(self.plan.latency).await;
        let lost = self.addresses.borrow()[slot].as_ref() != Some(&url);
        answered.map(|answer| answer.filter(|_| !lost))
    }

    /// New clicks of which the receipt says that they are known.
    fn count_unanswered(&mut self, answer: &Answer, batch: &[Uuid]) {
        let receipt = if answer.status == 200 {
            answer.json()
        } else {
            return;
        };
        let known = receipt["exceptions"].as_array().unwrap().iter();
        let known = known.filter(|exception| exception["status"] == "duplicate");
        let known: Vec<&str> = known.filter_map(|e| e["id"].as_str()).collect();
        let new: HashSet<&Uuid> = batch
            .iter()
            .filter(|id| !self.written.acknowledged.contains(id))
            .collect();
        for id in new {
            // One that is there twice is known the second time.
            let times = batch.iter().filter(|other| *other == id).count();
            let id = id.to_string();
            let said = known.iter().filter(|known| **known == id).count();
            self.written.unanswered += usize::from(said == times);
        }
    }

    /// Whether the batch is acknowledged.
    fn judge(
        &mut self,
        slot: usize,
        answer: Result<Option<Answer>, String>,
        batch: &[Uuid],
    ) -> bool {
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                self.written.broken += 1;
                return false;
            }
            Err(wrong) => {
                self.written.wrong.push(wrong);
                return false;
            }
        };
        let number = |name: &str| answer.json()[name].as_u64().unwrap_or(0);
        let clicks = u64::try_from(batch.len()).unwrap();
        let right = match answer.status.as_u16() {
            200 => {
                let judged = number("on_time") + number("late") + number("duplicates");
                number("received") == clicks && judged == clicks
            }
            202 => {
                self.written.spooled += 1;
                let spools = self.common.spools[slot];
                spools && number("received") == clicks && number("spooled") == clicks
            }
            503 => {
                self.written.unavailable += 1;
                answer.headers.contains_key("retry-after")
            }
            _ => false,
        };
        if !right {
            let (status, text) = (answer.status, &answer.text);
            let wrong = format!("server {slot} answered {clicks} clicks by {status}: {text}");
            self.written.wrong.push(wrong);
        }
        answer.status.is_success()
    }
}
