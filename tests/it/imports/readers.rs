//! Who follows a book into which a log is imported: told of the progress, and of the new counts in one
//! go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Feed, beginning, check_done, close, expected_of_log, hours_book, log, post_import};
use crate::harness::sse::Event;
use crate::harness::steps::Known;
use crate::harness::{self, Api, until};
use crate::independent::{ALL_REQUESTS, PAGE_VIEWS};
use crate::real_log::shown;

const ALL: &str = "assets=true&bots=true&errors=true&methods=GET,HEAD,POST,OPTIONS";

/// What a reader knows.
#[derive(Default)]
struct Seen {
    /// As of which position.
    position: i64,
    known: Known,
    progress: Vec<Value>,
    resyncs: Vec<Value>,
}

impl Seen {
    fn take_snapshot(&mut self, snapshot: &Value) {
        self.position = snapshot["position"].as_i64().unwrap();
        self.known = Known::of_snapshot(snapshot);
    }

    fn take(&mut self, event: &Event) {
        match &*event.name {
            "resync_required" => self.resyncs.push(event.data["reason"].clone()),
            "snapshot" => self.take_snapshot(&event.data),
            "progress" => self.progress.push(event.data.clone()),
            _ => {}
        }
        let new = |position: &i64| *position > self.position;
        if let Some(position) = event.position().filter(new) {
            self.known.learn(&event.data);
            self.position = position;
        }
    }
}

/// A reader that does what the contract tells dashboards to do, until it is dropped.
struct Reader {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

impl Reader {
    /// With `?snapshot=1` the stream brings all that is needed; without, it reads snapshots.
    async fn follow(api: &Api, query: &str) -> Self {
        let mut events = api.follow("b", query, None).await;
        events.expect("hello").await;
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (api, noted, plain) = (api.clone(), Arc::clone(&seen), query.is_empty());
        let snapshot = async move |api: &Api| api.get("/v1/books/b/snapshot").await.expect(200);
        if plain {
            let snapshot = snapshot(&api).await;
            seen.lock().unwrap().take_snapshot(&snapshot);
        }
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(event) = events.next().await {
                noted.lock().unwrap().take(&event);
                if plain && event.name == "resync_required" {
                    let snapshot = snapshot(&api).await;
                    noted.lock().unwrap().take_snapshot(&snapshot);
                }
            }
        });
        Self { seen, _task: task }
    }

    /// Waits until it is at `position`.
    async fn at(&self, position: i64) -> MutexGuard<'_, Seen> {
        let there = async || (self.seen.lock().unwrap().position == position).then_some(());
        until("the reader catches up", there).await;
        self.seen.lock().unwrap()
    }
}

/// A click that has nothing to do with the log.
async fn live_click(api: &Api) -> i64 {
    let at = chrono::DateTime::parse_from_rfc3339("2015-05-20T21:30:00Z").unwrap();
    let click = json!({"page": "/live", "at": at.timestamp_millis()});
    let taken = api.clicks("b", click).await;
    assert_eq!(taken["on_time"], 1, "{taken}");
    taken["position"].as_i64().unwrap()
}

fn millis(time: &Value) -> i64 {
    let time = chrono::DateTime::parse_from_rfc3339(time.as_str().unwrap());
    time.unwrap().timestamp_millis()
}

/// Frames of one run: growing, and at most four a second.
fn check_progress(frames: &[Value], run: &Value) {
    let moving = frames.iter().filter(|f| f["run"]["state"] == "running");
    let moving: Vec<&Value> = moving.collect();
    let processed: Vec<i64> = (moving.iter())
        .map(|frame| frame["run"]["processed"].as_i64().unwrap())
        .collect();
    eprintln!("processed {processed:?}");
    assert!(processed.is_sorted(), "{processed:?}");
    let mut grown = processed.clone();
    grown.dedup();
    assert!(grown.len() >= 3, "{processed:?}");
    let at: Vec<i64> = moving.iter().map(|frame| millis(&frame["at"])).collect();
    for second in at.windows(5) {
        assert!(
            second[4] - second[0] >= 1000,
            "more than 4 a second: {at:?}"
        );
    }
    for frame in frames {
        assert_eq!(frame["run"]["id"], run["id"], "{frame}");
        assert_eq!(frame["run"]["kind"], "import", "{frame}");
        assert_eq!(frame["run"].get("rejections"), None, "{frame}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_an_import_grow_and_end_with_the_numbers_of_a_snapshot() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    live_click(&api).await;
    let plain = Reader::follow(&api, "").await;
    let by_itself = Reader::follow(&api, "?snapshot=1").await;

    let many = log().repeat(5);
    let importing = {
        let api = api.clone();
        let query = format!("format=combined&source=five&{ALL}");
        tokio::spawn(async move { post_import(&api, "b", &query, many).await.expect(200) })
    };
    let begun = async || (!plain.seen.lock().unwrap().progress.is_empty()).then_some(());
    until("the import has begun", begun).await;
    let late = Reader::follow(&api, "?snapshot=1").await;
    // Clicks go on beside it.
    let done = AtomicBool::new(false);
    let (mut clicks, mut run) = (1, Value::Null);
    let live = async {
        while !done.load(Ordering::SeqCst) {
            live_click(&api).await;
            clicks += 1;
        }
    };
    let imported = async {
        run = importing.await.unwrap();
        done.store(true, Ordering::SeqCst);
    };
    tokio::join!(live, imported);
    let five = expected_of_log(ALL_REQUESTS).times(5);
    check_done(&run, 50_000, &five, 0);

    let position = live_click(&api).await;
    clicks += 1;
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(snapshot["position"], position);
    let known = Known::of_snapshot(&snapshot);
    for reader in [&plain, &by_itself, &late] {
        let seen = reader.at(position).await;
        assert_eq!(seen.resyncs, ["replaced"]);
        assert!(seen.known == known, "other numbers than the snapshot");
    }
    check_progress(&plain.seen.lock().unwrap().progress, &run);
    let mut counts = shown(&api, "b").await;
    counts.retain(|(_, page), count| {
        page != "/live" || {
            assert_eq!(*count, clicks);
            false
        }
    });
    assert_eq!(counts, five.counts);
    // Each takes the place of the one before it.
    let kept = "SELECT count(*) FROM frames WHERE event = 'progress'";
    assert!(database.number(kept).await <= 1);
}

#[tokio::test]
async fn the_last_frame_of_an_import_says_so_and_is_the_barrier() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    live_click(&api).await;
    let query = "format=combined&source=access.log";
    let run = post_import(&api, "b", query, log()).await.expect(200);
    let book = api.get("/v1/books/b").await.expect(200);
    let barrier = database.number("SELECT barrier FROM books").await;
    assert_eq!(book["position"], barrier);
    let mut conn = database.connect().await;
    let frame = sqlx::query_scalar("SELECT data FROM frames WHERE position = $1");
    let frame: String = frame.bind(barrier).fetch_one(&mut conn).await.unwrap();
    let frame: Value = serde_json::from_str(&frame).unwrap();
    assert_eq!(frame["type"], "status", "{frame}");
    assert_eq!(frame["reason"], "imported", "{frame}");
    assert_eq!(frame["status"], "live", "{frame}");
    // Whoever was away is told to begin anew; whoever knows the new counts goes on.
    let mut behind = api.follow("b", "", Some("1")).await;
    behind.expect("hello").await;
    let resync = behind.expect("resync_required").await;
    assert_eq!(resync.data["reason"], "replaced");
    let mut there = api.follow("b", "", Some(&barrier.to_string())).await;
    assert_eq!(there.expect("hello").await.data["mode"], "replay");
    let position = live_click(&api).await;
    assert_eq!(there.expect("counts").await.position(), Some(position));
    // An import that brings nothing new replaces nothing.
    let again = post_import(&api, "b", query, log()).await.expect(200);
    assert_eq!(again["duplicates"], run["counted"]);
}

#[tokio::test]
async fn a_book_that_is_closed_during_an_import_ends_when_the_import_has() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let position = live_click(&api).await;
    let mut before = api.follow("b", "", Some(&position.to_string())).await;
    before.expect("hello").await;
    let feed = Feed::start(&api, "b", "format=combined&source=access.log");
    let first = beginning(5000);
    feed.send(first.clone()).await;
    until("some of it is counted", async || {
        (super::logged(&database).await > 1).then_some(())
    })
    .await;
    close(&api, "b").await;
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["status"], "closed");
    assert_eq!(book["at_rest"], false, "an import goes on: {book}");
    // Neither 204 nor `end` for whoever has all.
    let position = book["position"].as_i64().unwrap().to_string();
    let mut during = api.follow("b", "", Some(&position)).await;
    let hello = during.expect("hello").await;
    assert_eq!(hello.data["at_rest"], false);

    feed.send(log()[first.len()..].to_vec()).await;
    let run = feed.end().await.unwrap().expect(200);
    for events in [&mut before, &mut during] {
        loop {
            let event = events.next().await.expect("the stream ended without `end`");
            if event.name == "end" {
                break;
            }
        }
        assert!(events.next().await.is_none());
    }
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["at_rest"], true, "{book}");
    let request = api.request(reqwest::Method::GET, "/v1/books/b/events");
    let position = book["position"].as_i64().unwrap().to_string();
    let request = request.header("last-event-id", position);
    assert_eq!(harness::Answer::of(request).await.status, 204);
    // All of it is there, and has fired.
    let expected = expected_of_log(PAGE_VIEWS);
    check_done(&run, 10_000, &expected, 0);
    let counts = api.counts("b", "pages").await;
    assert!(counts.iter().all(|window| window["state"] == "closed"));
    let mut counts = shown(&api, "b").await;
    counts.retain(|(_, page), _| page != "/live");
    assert_eq!(counts, expected.counts);
}
