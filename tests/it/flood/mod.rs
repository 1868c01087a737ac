//! A hundred megabytes of clicks in a burst, and a database that is held up or away: the server's
//! memory stays within its bounds, and whoever else is there does not notice.

mod away;
mod held;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use crate::harness::{Answer, Api, PATIENCE, Server};

const MEGABYTE: i64 = 1_000_000;

/// Of a body: just below what is taken, which is a mebibyte.
const BODY_BYTES: usize = 1_000_000;

/// So many bodies make the hundred megabytes.
const POSTS: usize = 100;

/// A line of `/proc/…/status`, in bytes: `VmRSS` is the resident memory, `VmHWM` the most it was.
fn memory(server: &Server, line: &str) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    let kilobytes = line.split_whitespace().next().unwrap();
    kilobytes.parse::<i64>().unwrap() * 1024
}

/// A body of clicks, one a line and each of about `click_bytes`, and how many there are.
fn body(click_bytes: usize) -> (Bytes, usize) {
    let clicks = BODY_BYTES / click_bytes;
    // What of a click is not its page and its referrer.
    let fill = click_bytes - 40;
    let click = |n: usize| {
        let (page, referrer) = (format!("/{:0>1$}", n % 100, fill / 2), fill - fill / 2);
        let referrer = format!("https://example.org/{:r<1$}", "", referrer - 20);
        format!(
            "{}\n",
            json!({"page": page, "referrer": referrer, "at": 1000})
        )
    };
    let text: String = (0..clicks).map(click).collect();
    assert!(text.len() > BODY_BYTES * 9 / 10 && text.len() < 1024 * 1024);
    (text.into(), clicks)
}

/// What was answered: how often each status and code, and how many clicks were acknowledged.
#[derive(Debug, Default)]
struct Told {
    answers: BTreeMap<(u16, String), usize>,
    acknowledged: usize,
}

impl Told {
    fn note(&mut self, answer: Answer) {
        let status = answer.status.as_u16();
        let code = if answer.status.is_success() {
            let said = answer.json();
            let taken = [&said["on_time"], &said["spooled"]];
            let taken = taken.into_iter().find_map(Value::as_u64).unwrap();
            self.acknowledged += usize::try_from(taken).unwrap();
            String::new()
        } else {
            assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
            answer.problem(503)
        };
        *self.answers.entry((status, code)).or_default() += 1;
    }

    fn count(&self, status: u16, code: &str) -> usize {
        let found = self.answers.get(&(status, code.to_owned()));
        found.copied().unwrap_or_default()
    }

    fn all(&self) -> usize {
        self.answers.values().sum()
    }
}

/// Writers who post the hundred megabytes, as fast as they are answered.
struct Flood {
    answered: Arc<AtomicUsize>,
    writers: JoinSet<Told>,
}

impl Flood {
    fn start(api: &Api, connections: usize, body: &Bytes) -> Self {
        let begun = Arc::new(AtomicUsize::new(0));
        let answered = Arc::new(AtomicUsize::new(0));
        let mut writers = JoinSet::new();
        for _ in 0..connections {
            let (api, body) = (api.clone(), body.clone());
            let (begun, answered) = (Arc::clone(&begun), Arc::clone(&answered));
            writers.spawn(async move {
                let mut told = Told::default();
                while begun.fetch_add(1, Ordering::SeqCst) < POSTS {
                    told.note(post(&api, body.clone()).await);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                told
            });
        }
        Self { answered, writers }
    }

    /// Waits until all but so many posts are answered, for as long as a busy machine may take.
    async fn all_but(&self, waiting: usize) {
        let began = Instant::now();
        while self.answered.load(Ordering::SeqCst) + waiting < POSTS {
            assert!(began.elapsed() < 3 * PATIENCE, "waited in vain for answers");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn finish(self) -> Told {
        let mut sum = Told::default();
        for told in self.writers.join_all().await {
            for (answer, count) in told.answers {
                *sum.answers.entry(answer).or_default() += count;
            }
            sum.acknowledged += told.acknowledged;
        }
        assert_eq!(sum.all(), POSTS);
        sum
    }
}

async fn post(api: &Api, body: Bytes) -> Answer {
    let request = api.request(reqwest::Method::POST, "/v1/books/b/clicks");
    let request = request.header("content-type", "application/x-ndjson");
    Answer::of(request.body(body)).await
}

/// How long the others waited: for `/healthz`, for a book, and for a click of theirs.
#[derive(Debug, Default)]
struct Waits([Vec<Duration>; 3]);

impl Waits {
    async fn once(&mut self, api: &Api) {
        let began = Instant::now();
        api.get("/healthz").await.expect(200);
        self.0[0].push(began.elapsed());
        let began = Instant::now();
        api.get("/v1/books/other").await.expect(200);
        self.0[1].push(began.elapsed());
        let began = Instant::now();
        api.clicks("other", json!({"page": "/a", "at": 1000})).await;
        self.0[2].push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    /// Median and 95th percentile of each.
    fn show(&mut self, when: &str) {
        for (waits, what) in self.0.iter_mut().zip(["healthz", "book", "click"]) {
            waits.sort_unstable();
            let (count, p95) = (waits.len(), p95(waits));
            let median = waits[count / 2];
            eprintln!("{when}: {what} {count} times, median {median:.1?}, p95 {p95:.1?}");
        }
    }

    /// Far below what a reader would call slow, even by a build for tests on a machine that has
    /// much else to do.
    fn are_short(&self) {
        for waits in &self.0 {
            assert!(p95(waits) < Duration::from_secs(1), "{:?}", p95(waits));
        }
    }
}

fn p95(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 95 / 100]
}

/// Somebody else, who asks on and on until `stop`.
struct Others {
    stop: Arc<AtomicUsize>,
    asking: JoinHandle<Waits>,
}

impl Others {
    async fn start(server: &Server) -> Self {
        // Connections of its own.
        let api = server.api();
        let mut quiet = Waits::default();
        for _ in 0..30 {
            quiet.once(&api).await;
        }
        quiet.show("before");
        let stop = Arc::new(AtomicUsize::new(0));
        let stopped = Arc::clone(&stop);
        let asking = tokio::spawn(async move {
            let mut waits = Waits::default();
            while stopped.load(Ordering::SeqCst) == 0 {
                waits.once(&api).await;
            }
            waits
        });
        Self { stop, asking }
    }

    /// They have been served throughout.
    async fn finish(self) -> Waits {
        self.stop.store(1, Ordering::SeqCst);
        let mut waits = self.asking.await.unwrap();
        waits.show("during");
        waits
    }
}

/// The lane of a book, of two.
fn lane(book: &Value) -> u64 {
    let id: Uuid = book["id"].as_str().unwrap().parse().unwrap();
    id.as_u64_pair().1 % 2
}

/// Books `b` and `other`, which do not share a lane.
async fn two_books(api: &Api) {
    // Pages are taken as they are: making them canonical is most of the work of a build for tests.
    let fields = json!({
        "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": 60_000}}],
        "settings": {"delay_ms": 0, "lateness_ms": 60_000, "max_future_ms": null,
                     "canonical_pages": false},
    });
    let b = api.book("b", fields.clone()).await;
    loop {
        let other = api.book("other", fields.clone()).await;
        if lane(&other) != lane(&b) {
            return;
        }
        let path = "/v1/books/other";
        assert!(api.delete(path).await.status.is_success());
    }
}

/// The most that the server's memory has grown since it was `before`, in megabytes.
fn grown(server: &Server, before: i64) -> i64 {
    let grown = (memory(server, "VmHWM:") - before) / MEGABYTE;
    let now = (memory(server, "VmRSS:") - before) / MEGABYTE;
    let before = before / MEGABYTE;
    eprintln!("memory: {before} MB before, at most {grown} MB more, {now} MB more at the end");
    grown
}
