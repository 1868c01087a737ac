//! One reader's connection: a cursor and a loop.
//!
//! **Promises.** Positions strictly increase; no frame between the cursor and the newest is left
//! out without a `resync_required` that says so; a frame without a position of its own carries the
//! cursor as its id, so it cannot move a client past a frame that it has not got.
//!
//! Nothing is queued for a reader. The stream is polled when the socket takes more, and reads on
//! from its cursor then; the buffer in Postgres is the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cursor::{Asked, Reason, Start};
use super::feed::Head;
use super::hub::Watch;
use super::ring::Page;
use super::state;
use crate::access::ended::WhenEnded;
use crate::telemetry;
use crate::time::Timestamp;

/// Most bytes that are read from the feed at once.
const PAGE_BYTES: usize = 64 * 1024;

/// How long to wait after a failed reading before the next.
const RETRY: Duration = Duration::from_secs(1);

/// What a reader asked for besides its cursor, and when the server ends its stream.
#[derive(Debug)]
pub struct Options {
    /// A snapshot where the stream begins live or after a resync.
    pub snapshot: bool,
    /// Heartbeats as events rather than comments.
    pub heartbeat_events: bool,
    /// Sent after this long with nothing sent.
    pub heartbeat: Duration,
    /// The stream is closed at this age.
    pub max_age: Option<Duration>,
    /// Cancelled when the process shuts down.
    pub drain: CancellationToken,
    /// How long after that this stream says goodbye.
    pub drain_after: Duration,
    /// Tells when the token or session behind the stream ends.
    pub session: WhenEnded,
}

/// The stream of one connection.
pub struct Follow {
    watch: Watch,
    options: Options,
    /// What this client has been sent or resumed from.
    cursor: i64,
    /// Chunks that are ready, each one write, and the cursor behind each.
    ready: VecDeque<(Bytes, i64)>,
    delivered: Delivered,
    /// A snapshot is due before the next frame.
    snapshot_due: bool,
    ended: bool,
    last_sent: Instant,
    ends_at: Option<Instant>,
    drains_at: Option<Instant>,
}

/// How far a client has been served.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivered(Arc<AtomicI64>);

impl Delivered {
    /// The position behind the last chunk that was handed out.
    pub(super) fn position(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

enum Event {
    Changed,
    Heartbeat,
    SessionEnded,
    Draining,
    Bye(&'static str),
}

impl Follow {
    /// A stream that begins as `start` says, which was judged against `head`.
    #[must_use]
    pub fn new(watch: Watch, options: Options, asked: &Asked, start: Start, head: Head) -> Self {
        let now = Instant::now();
        let mut follow = Self {
            cursor: match start {
                Start::Replay(cursor) => cursor,
                Start::Live | Start::Resync(_) | Start::AtRest => head.bounds.position,
            },
            ready: VecDeque::new(),
            delivered: Delivered::default(),
            snapshot_due: false,
            ended: false,
            last_sent: now,
            ends_at: options.max_age.map(|age| now + age),
            drains_at: None,
            watch,
            options,
        };
        follow.begin(asked, start, head);
        follow
    }

    fn begin(&mut self, asked: &Asked, start: Start, head: Head) {
        let (mode, resync) = match start {
            Start::Live | Start::AtRest => ("live", None),
            Start::Replay(_) => ("replay", None),
            Start::Resync(reason) => ("resync", Some(reason)),
        };
        let hello = json!({
            "mode": mode,
            "position": head.bounds.position,
            "oldest": head.bounds.oldest,
            "revision": head.revision,
            "structure_version": head.structure_version,
            "watermark": head.watermark.shown(),
            "at_rest": head.bounds.at_rest,
            "server_time": Timestamp::now(),
            // So that a client knows how long silence may last.
            "heartbeat_ms": u64::try_from(self.options.heartbeat.as_millis()).unwrap_or(u64::MAX),
        });
        let id = resync.is_none().then_some(self.cursor);
        self.push("hello", Some(reconnect_ms()), &hello, id);
        match (resync, asked) {
            (Some(reason), Asked::Malformed(text)) => self.resync(reason, &json!(text), head),
            (Some(reason), Asked::After(cursor)) => self.resync(reason, &json!(cursor), head),
            (Some(reason), Asked::Live | Asked::Earliest) => {
                self.resync(reason, &Value::Null, head);
            }
            (None, _) => self.snapshot_due = self.options.snapshot && mode == "live",
        }
    }

    /// What the client has been handed, for whoever has to cut the stream off.
    pub(super) fn delivered(&self) -> Delivered {
        self.delivered.clone()
    }

    /// The next chunk of the body; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() && !self.ended {
            self.fill().await;
        }
        let (chunk, cursor) = self.ready.pop_front()?;
        self.delivered.0.store(cursor, Ordering::Relaxed);
        self.last_sent = Instant::now();
        Some(chunk)
    }

    /// Makes something ready, or waits for what may.
    async fn fill(&mut self) {
        let head = self.watch.take_head();
        let ending = *self.options.session.borrow();
        if let Some(ending) = ending {
            telemetry::session_ended(ending.as_str());
            return self.end_with("session_ended", ending.as_str());
        }
        if self.goodbye_is_due() {
            return;
        }
        if head.deleted {
            return self.end_with("end", "deleted");
        }
        if self.snapshot_due {
            // Boxed, for it is rare, and a stream that waits has room for it all its life.
            return Box::pin(self.send_snapshot(head)).await;
        }
        match self.watch.page(self.cursor, PAGE_BYTES).await {
            Ok(Page::Frames(frames)) => {
                telemetry::frames_sent(frames.len());
                for frame in frames {
                    self.cursor = frame.position;
                    self.ready.push_back((frame.bytes, frame.position));
                }
            }
            // The ring was cut while it was looked at; the next look reads further back.
            Ok(Page::Older) => {}
            Ok(Page::Pruned { oldest }) => {
                self.resync_behind(Reason::Pruned, oldest - 1, head);
            }
            Ok(Page::Replaced { barrier }) => self.resync_behind(Reason::Replaced, barrier, head),
            Ok(Page::CaughtUp) if head.bounds.at_rest && self.cursor >= head.bounds.position => {
                self.end_with("end", "at_rest");
            }
            Ok(Page::CaughtUp) => self.wait().await,
            Err(error) => {
                tracing::warn!(error = %telemetry::chain(&error), "frames could not be read; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Says goodbye if its time has come, however busy the stream is.
    fn goodbye_is_due(&mut self) -> bool {
        if self.options.drain.is_cancelled() {
            let after = self.options.drain_after;
            self.drains_at.get_or_insert_with(|| Instant::now() + after);
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= Instant::now());
        if due(self.drains_at) {
            self.bye("drain");
        } else if due(self.ends_at) {
            self.bye("max_age");
        }
        self.ended
    }

    async fn wait(&mut self) {
        let heartbeat_at = self.last_sent + self.options.heartbeat;
        let event = tokio::select! {
            () = self.watch.changed() => Event::Changed,
            () = tokio::time::sleep_until(heartbeat_at) => Event::Heartbeat,
            () = ended(&mut self.options.session) => Event::SessionEnded,
            () = self.options.drain.cancelled(), if self.drains_at.is_none() => Event::Draining,
            () = until(self.drains_at) => Event::Bye("drain"),
            () = until(self.ends_at) => Event::Bye("max_age"),
        };
        match event {
            // `fill` looks at what there is.
            Event::Changed | Event::SessionEnded | Event::Draining => {}
            Event::Bye(reason) => self.bye(reason),
            Event::Heartbeat if self.options.heartbeat_events => {
                let position = self.watch.take_head().bounds.position;
                let data = json!({ "server_time": Timestamp::now(), "position": position });
                self.push("heartbeat", None, &data, Some(self.cursor));
            }
            // One line and no blank one, for some clients dispatch an empty event at that.
            Event::Heartbeat => {
                let comment = Bytes::from_static(b":hb\n");
                self.ready.push_back((comment, self.cursor));
            }
        }
    }

    /// In the stream: what comes after the cursor is gone, up to `gone`, which may be news to the
    /// head.
    fn resync_behind(&mut self, reason: Reason, gone: i64, head: Head) {
        let mut head = head;
        let requested = json!(self.cursor);
        head.bounds.position = head.bounds.position.max(gone);
        head.bounds.oldest = match reason {
            Reason::Pruned => head.bounds.oldest.max(gone + 1),
            _ => head.bounds.oldest,
        };
        self.resync(reason, &requested, head);
    }

    /// Tells the reader that there is something which it cannot have, and goes on behind it.
    fn resync(&mut self, reason: Reason, requested: &Value, head: Head) {
        telemetry::resync(reason.as_str());
        self.cursor = head.bounds.position;
        let data = json!({
            "reason": reason.as_str(),
            "requested": requested,
            "oldest": head.bounds.oldest,
            "position": self.cursor,
        });
        self.push("resync_required", None, &data, Some(self.cursor));
        self.snapshot_due = self.options.snapshot;
    }

    /// Sends the snapshot, which contains everything up to its position.
    async fn send_snapshot(&mut self, head: Head) {
        let mut kept = self.watch.feed.snapshot.lock().await;
        let fresh = |s: &state::Encoded| s.revision >= head.revision && s.position >= self.cursor;
        if !kept.as_ref().is_some_and(fresh) {
            let here = self.watch.here();
            match state::encoded(self.watch.long_reads(), self.watch.feed.book, here).await {
                Ok(Some(read)) => *kept = Some(read),
                Ok(None) => {
                    drop(kept);
                    return self.end_with("end", "deleted");
                }
                Err(error) => {
                    drop(kept);
                    tracing::warn!(error = %telemetry::chain(&error), "a snapshot could not be read; trying again");
                    return tokio::time::sleep(RETRY).await;
                }
            }
        }
        let Some(snapshot) = kept.clone() else { return };
        drop(kept);
        self.cursor = snapshot.position;
        self.snapshot_due = false;
        let mut chunk = Vec::with_capacity(snapshot.data.len() + 64);
        chunk.extend_from_slice(b"event: snapshot\ndata: ");
        chunk.extend_from_slice(&snapshot.data);
        chunk.extend_from_slice(format!("\nid: {}\n\n", snapshot.position).as_bytes());
        self.ready.push_back((chunk.into(), self.cursor));
    }

    fn bye(&mut self, reason: &'static str) {
        self.ready
            .push_back((bye(reason, self.cursor), self.cursor));
        self.ended = true;
    }

    fn end_with(&mut self, event: &str, reason: &str) {
        let data = json!({ "reason": reason });
        self.push(event, None, &data, Some(self.cursor));
        self.ended = true;
    }

    fn push(&mut self, event: &str, retry_ms: Option<u32>, data: &Value, id: Option<i64>) {
        let frame = frame(event, retry_ms, data, id);
        self.ready.push_back((frame, self.cursor));
    }
}

async fn ended(session: &mut WhenEnded) {
    if session.wait_for(Option::is_some).await.is_err() {
        // Nobody looks after it any more, so it stays as it is.
        std::future::pending::<()>().await;
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Says that the server closes a healthy stream; the client comes back, and goes on after `cursor`.
#[must_use]
pub fn bye(reason: &'static str, cursor: i64) -> Bytes {
    let data = json!({ "reason": reason });
    frame("bye", Some(reconnect_ms()), &data, Some(cursor))
}

/// The whole body of a stream that is turned away: to an `EventSource` a status of 503 is final.
/// It leaves the client the cursor that it came with.
#[must_use]
pub fn overloaded(asked: &Asked) -> Bytes {
    telemetry::overloaded();
    match asked {
        Asked::After(cursor) => bye("overloaded", *cursor),
        Asked::Live | Asked::Earliest | Asked::Malformed(_) => {
            let data = json!({ "reason": "overloaded" });
            frame("bye", Some(reconnect_ms()), &data, None)
        }
    }
}

/// When a client is to reconnect, spread so that those who were cut off together do not come back
/// together.
fn reconnect_ms() -> u32 {
    rand::random_range(1000..=3000)
}

fn frame(event: &str, retry_ms: Option<u32>, data: &Value, id: Option<i64>) -> Bytes {
    let retry = retry_ms.map_or(String::new(), |ms| format!("retry: {ms}\n"));
    let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
    Bytes::from(format!("event: {event}\n{retry}data: {data}\n{id}\n"))
}
