//! A book that is committed to by the test itself, by a clock of its own, and what readers make of it.

use std::collections::BTreeMap;
use std::str::FromStr;

use pagetide::book::BookPatch;
use pagetide::book::chapters::Structures;
use pagetide::click::{Click, ClickId};
use pagetide::db;
use pagetide::ingest::command::{self, Command};
use pagetide::ingest::commit::clicks::LookFor;
use pagetide::ingest::commit::remembered::Memory;
use pagetide::ingest::commit::{self, Batch, Committed, Remember};
use pagetide::ingest::debounce;
use pagetide::ingest::pulse::Pulse;
use pagetide::time::Timestamp;
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::harness::raw::Raw;
use crate::harness::steps::{Known, without_waiting_for_the_disk};
use crate::harness::{Api, Database, Server};

const EVENTS: &str = "/v1/books/b/events";

/// Event, data and id of a frame; a hello before a resync has no id.
pub(super) fn parts(chunk: &str) -> (&str, Value, Option<i64>) {
    let field = |name: &str| chunk.lines().find_map(|line| line.strip_prefix(name));
    let data = serde_json::from_str(field("data: ").unwrap()).unwrap();
    let id = field("id: ").map(|id| id.parse().unwrap());
    (field("event: ").unwrap(), data, id)
}

/// The next frame; a heartbeat, which a quiet stream has on a slow machine, is none.
pub(super) async fn told(raw: &mut Raw) -> String {
    loop {
        let chunk = raw.chunk().await.expect("the stream ended");
        if !chunk.starts_with(':') {
            return chunk;
        }
    }
}

/// Follows the book from `cursor` on; gives the hello with it.
pub(super) async fn follow(api: &Api, cursor: i64) -> (Raw, Value) {
    let cursor = format!("last-event-id: {cursor}\r\n");
    let mut raw = Raw::get(api, EVENTS, &cursor).await;
    raw.head().await;
    let chunk = told(&mut raw).await;
    let (event, hello, _) = parts(&chunk);
    assert_eq!(event, "hello");
    (raw, hello)
}

/// A process that commits; its clock is behind that of the test.
struct Writer {
    conn: PgConnection,
    behind_ms: i64,
    structures: Structures,
    debounce: debounce::Memory,
    memory: Memory,
}

impl Writer {
    async fn new(database: &Database, behind_ms: i64) -> Self {
        let options = PgConnectOptions::from_str(&database.url()).unwrap();
        Self {
            conn: db::write_connection(&options).await.unwrap(),
            behind_ms,
            structures: Structures::new(),
            debounce: debounce::Memory::new(),
            memory: Memory::default(),
        }
    }

    fn now(&self, ms: i64) -> Timestamp {
        Timestamp::from_millis(1_772_366_400_000 + ms - self.behind_ms).unwrap()
    }

    async fn commit(&mut self, book: Uuid, ms: i64, click: Click) -> Committed {
        let (now, pulse) = (self.now(ms), Pulse::new());
        let clicks = vec![click];
        let batch = Batch {
            clicks,
            ..Batch::default()
        };
        let requests = [(book, &batch)];
        let remember = Remember {
            structures: &self.structures,
            debounce: &self.debounce,
            memory: &mut self.memory,
        };
        let committed = commit::commit(
            &mut self.conn,
            now,
            &requests,
            LookFor::Nothing,
            remember,
            &pulse,
        );
        committed.await.unwrap()
    }

    async fn carry_out(&mut self, book: Uuid, ms: i64, patch: Value) -> Committed {
        let (now, pulse) = (self.now(ms), Pulse::new());
        let patch: BookPatch = serde_json::from_value(patch).unwrap();
        let command = Command::Update(Box::new(patch));
        let done = command::carry_out(&mut self.conn, now, book, &command, false, &pulse);
        done.await.unwrap()
    }
}

/// A book that is clicked on, a server that streams it, and a reader that has missed nothing.
pub(super) struct Busy {
    pub(super) database: Database,
    pub(super) server: Server,
    live: Raw,
    told: i64,
    book: Uuid,
    conn: PgConnection,
    writers: [Writer; 2],
    ms: i64,
    clicks: i64,
    known: Known,
    pub(super) position: i64,
    /// What the reader knew at some positions.
    at: BTreeMap<i64, Known>,
    every: i64,
    /// Page names are so long.
    page_bytes: usize,
}

impl Busy {
    pub(super) async fn start(buffer_frames: i64, every: i64, page_bytes: usize) -> Self {
        let database = Database::create().await;
        without_waiting_for_the_disk(&database).await;
        let server = Server::start(&database).await;
        let rollup = |name: &str, group: &str, window: Value| json!({"name": name, "group_by": group, "aggregate": "count", "window": window});
        let fields = json!({
            "rollups": [
                rollup("pages", "page", json!({"kind": "tumbling", "size_ms": 5000})),
                rollup("book", "book", json!({"kind": "tumbling", "size_ms": 1000})),
                rollup("sessions", "page", json!({"kind": "session", "gap_ms": 700})),
            ],
            "settings": {"delay_ms": 500, "lateness_ms": 3_600_000, "max_future_ms": null,
                         "idle_timeout_ms": null, "buffer_frames": buffer_frames},
        });
        let api = server.api();
        let book = api.book("b", fields).await;
        let (live, _) = follow(&api, 0).await;
        Self {
            book: Uuid::from_str(book["id"].as_str().unwrap()).unwrap(),
            conn: database.connect().await,
            writers: [
                Writer::new(&database, 0).await,
                Writer::new(&database, 120).await,
            ],
            database,
            server,
            live,
            told: 0,
            ms: 0,
            clicks: 0,
            known: Known::default(),
            position: 0,
            at: BTreeMap::new(),
            every,
            page_bytes,
        }
    }

    /// One more click ten milliseconds later, in one process or the other; some are late.
    pub(super) async fn click(&mut self) {
        let n = self.clicks;
        self.clicks += 1;
        self.ms += 10;
        let late = if n % 7 == 3 { 3000 } else { 0 };
        let at = Timestamp::from_millis(10_000 + 20 * n - late).unwrap();
        let click = Click {
            id: ClickId::made(),
            at,
            received_at: at,
            page: format!("/{:0>1$}", n * n % 19, self.page_bytes),
            visitor: None,
            referrer: None,
            source: None,
            value: None,
        };
        let writer = &mut self.writers[usize::try_from(n % 2).unwrap()];
        let committed = writer.commit(self.book, self.ms, click).await;
        assert!(committed.replies[0].is_ok());
        self.learn().await;
    }

    /// A frame of another kind.
    pub(super) async fn change(&mut self, patch: Value) {
        let writer = &mut self.writers[0];
        let committed = writer.carry_out(self.book, self.ms, patch).await;
        assert!(committed.replies[0].is_ok());
        self.learn().await;
    }

    pub(super) async fn rename(&mut self) {
        let title = format!("after {}", self.clicks);
        self.change(json!({ "title": title })).await;
    }

    pub(super) async fn resize(&mut self, buffer_frames: i64) {
        let settings = json!({"settings": {"buffer_frames": buffer_frames}});
        self.change(settings).await;
    }

    /// Takes in every single frame; the server's reader gets them a few later.
    async fn learn(&mut self) {
        let new = "SELECT position, data FROM frames WHERE position > $1 ORDER BY position";
        let new = sqlx::query_as(new).bind(self.position);
        let new: Vec<(i64, String)> = new.fetch_all(&mut self.conn).await.unwrap();
        for (position, data) in new {
            assert_eq!(position, self.position + 1);
            self.position = position;
            self.known.learn(&serde_json::from_str(&data).unwrap());
            if position % self.every == 0 {
                self.at.insert(position, self.known.clone());
            }
        }
        if self.position >= self.told + 10 {
            self.tell().await;
        }
    }

    /// Has the server's reader read on.
    pub(super) async fn tell(&mut self) {
        let tell = "SELECT pg_notify('pagetide_frames', $1)";
        let tell = sqlx::query(tell).bind(format!("{}:*", Uuid::new_v4()));
        tell.execute(&mut self.conn).await.unwrap();
        while self.told < self.position {
            let chunk = told(&mut self.live).await;
            self.told += 1;
            assert_eq!(parts(&chunk).2, Some(self.told), "{chunk}");
        }
    }

    pub(super) async fn number(&self, sql: &str) -> i64 {
        self.database.number(sql).await
    }

    pub(super) async fn rows(&self) -> i64 {
        self.number("SELECT count(*) FROM frames").await
    }

    pub(super) async fn oldest(&self) -> i64 {
        self.number("SELECT oldest FROM books").await
    }

    /// The positions at which it is known what the reader knew, and from which one can resume.
    pub(super) fn cursors(&self, oldest: i64) -> Vec<i64> {
        let kept = self.at.keys().copied();
        kept.filter(|cursor| *cursor >= oldest - 1).collect()
    }

    /// The numbers of whoever resumes after `cursor` are those of the reader that missed nothing;
    /// gives how many frames it took.
    pub(super) async fn resumes(&self, api: &Api, cursor: i64) -> i64 {
        let (mut raw, hello) = follow(api, cursor).await;
        assert_eq!(hello["mode"], "replay", "cursor {cursor}: {hello}");
        let mut known = self.at[&cursor].clone();
        let (mut last, mut frames) = (cursor, 0);
        while last < self.position {
            let chunk = told(&mut raw).await;
            let (event, data, id) = parts(&chunk);
            assert!(["counts", "status"].contains(&event), "{chunk}");
            let id = id.unwrap();
            assert_eq!(data["position"], id);
            assert!(id > last, "{id} after {last}");
            known.learn(&data);
            last = id;
            frames += 1;
        }
        assert_eq!(last, self.position);
        assert!(known == self.known, "cursor {cursor}: other numbers");
        frames
    }

    pub(super) async fn agrees_with_a_snapshot(&self) {
        let snapshot = self.server.api().get("/v1/books/b/snapshot").await;
        let snapshot = snapshot.expect(200);
        assert_eq!(snapshot["position"], self.position);
        assert!(Known::of_snapshot(&snapshot) == self.known);
    }

    /// The buffer is as it has to be after each commit.
    pub(super) async fn check_bounds(&self, buffer_frames: i64) {
        check_bounds(&self.database, buffer_frames).await;
    }
}

/// Not too many frames, none of the newest half missing, and none before `oldest`.
pub(super) async fn check_bounds(database: &Database, buffer_frames: i64) {
    let merges = buffer_frames >= 256;
    let most = if merges {
        buffer_frames + buffer_frames / 4 - 1
    } else {
        buffer_frames
    };
    let rows = database.number("SELECT count(*) FROM frames").await;
    assert!(rows <= most, "{rows} rows");
    let whole = if merges {
        buffer_frames / 2 + 1
    } else {
        buffer_frames
    };
    let missing = format!(
        "SELECT count(*) FROM books b, generate_series(greatest(b.oldest, b.position - {whole} + 1),
                                                       b.position) p
         WHERE NOT EXISTS (SELECT FROM frames f WHERE f.position = p)"
    );
    assert_eq!(database.number(&missing).await, 0, "the newest are whole");
    let stray = "SELECT count(*) FROM frames f, books b WHERE f.position < b.oldest";
    assert_eq!(database.number(stray).await, 0);
}
