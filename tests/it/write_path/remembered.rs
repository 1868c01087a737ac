//! What a lane remembers changes nothing: the same clicks, committed with and without it, give the
//! same fates, windows and frames.

use std::str::FromStr;

use pagetide::book::chapters::Structures;
use pagetide::click::{Click, ClickId};
use pagetide::db;
use pagetide::ingest::commit::clicks::LookFor;
use pagetide::ingest::commit::remembered::Memory;
use pagetide::ingest::commit::{self, Batch, Committed, Remember};
use pagetide::ingest::debounce;
use pagetide::ingest::pulse::Pulse;
use pagetide::time::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::id_of;
use crate::harness::steps::without_waiting_for_the_disk;
use crate::harness::{Database, Server};

const BEGIN_MS: i64 = 1_772_366_400_000;

/// Windows of all kinds, so short that they fire, are corrected and close all the time; the book takes
/// no step by itself.
fn fields() -> Value {
    let rollup = |name: &str, group_by: &str, aggregate: &str, window: Value| json!({"name": name, "group_by": group_by, "aggregate": aggregate, "window": window});
    json!({
        "rollups": [
            rollup("pages", "page", "count", json!({"kind": "tumbling", "size_ms": 5000})),
            rollup("readers", "book", "distinct",
                   json!({"kind": "sliding", "size_ms": 4000, "slide_ms": 2000})),
            rollup("visits", "visitor", "count", json!({"kind": "session", "gap_ms": 700})),
            rollup("top", "book", "top", json!({"kind": "tumbling", "size_ms": 3000})),
        ],
        "settings": {"delay_ms": 200, "lateness_ms": 3000, "idle_timeout_ms": null,
                     "max_future_ms": null},
    })
}

/// Somebody who commits to a book.
struct Writer {
    conn: PgConnection,
    book: Uuid,
    memory: Memory,
    structures: Structures,
    debounce: debounce::Memory,
    single_statements: usize,
}

impl Writer {
    async fn new(database: &Database, book: Uuid) -> Self {
        let options = PgConnectOptions::from_str(&database.url()).unwrap();
        Self {
            conn: db::write_connection(&options).await.unwrap(),
            book,
            memory: Memory::default(),
            structures: Structures::new(),
            debounce: debounce::Memory::new(),
            single_statements: 0,
        }
    }

    async fn commit(&mut self, now: Timestamp, batch: &Batch) -> Committed {
        let remember = Remember {
            structures: &self.structures,
            debounce: &self.debounce,
            memory: &mut self.memory,
        };
        let requests = [(self.book, batch)];
        let (look_for, pulse) = (LookFor::Nothing, Pulse::new());
        let conn = &mut self.conn;
        let committed = commit::commit(conn, now, &requests, look_for, remember, &pulse);
        let committed = committed.await.unwrap();
        self.single_statements += usize::from(committed.tally.single_statement);
        committed
    }

    /// Everything that `columns` of `table` say of the book.
    async fn rows(&mut self, table: &str, columns: &str) -> Vec<String> {
        let sql = format!(
            "SELECT replace(row({columns})::text, $1::text, 'book') FROM {table}
             WHERE book_id = $1 ORDER BY 1"
        );
        let rows = sqlx::query_scalar(AssertSqlSafe(sql)).bind(self.book);
        rows.fetch_all(&mut self.conn).await.unwrap()
    }
}

/// A click whose time is about `now`: some come late, some too late; some lack a visitor.
fn any_click(rng: &mut StdRng, now: Timestamp) -> Click {
    let behind_ms = match rng.random_range(0..10) {
        0 => rng.random_range(0..9000),
        1 | 2 => rng.random_range(0..2000),
        _ => 0,
    };
    Click {
        id: ClickId::made(),
        at: Timestamp::from_millis(now.millis() - behind_ms).unwrap(),
        received_at: now,
        page: format!("/{}", rng.random_range(0..4)),
        visitor: (rng.random_ratio(1, 8)).then(|| format!("v{}", rng.random_range(0..3))),
        referrer: None,
        source: None,
        value: None,
    }
}

async fn same_with_and_without(database: &Database, server: &Server, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut writers = Vec::new();
    for name in ["with", "without"] {
        let book = server.api().book(&format!("{name}-{seed}"), fields()).await;
        writers.push(Writer::new(database, id_of(&book)).await);
    }
    let mut now_ms = BEGIN_MS;
    for commit in 0..400 {
        now_ms += rng.random_range(0..150);
        let now = Timestamp::from_millis(now_ms).unwrap();
        let clicks = rng.random_range(1..4);
        let batch = Batch {
            clicks: (0..clicks).map(|_| any_click(&mut rng, now)).collect(),
            ..Batch::default()
        };
        let with = writers[0].commit(now, &batch).await;
        let without = writers[1].commit(now, &batch).await;
        writers[1].memory.clear();
        assert_eq!(
            with.replies, without.replies,
            "seed {seed}, commit {commit}"
        );
    }
    assert!(
        writers[0].single_statements > 40,
        "{}",
        writers[0].single_statements
    );
    assert_eq!(writers[1].single_statements, 0);
    let tables = [
        (
            "windows",
            "rollup, start_ms, end_ms, group_key, fired, weight, state, session",
        ),
        ("clicks", "seq, at_ms, watermark_before_ms, page, visitor"),
        ("frames", "position, event, data"),
    ];
    for (table, columns) in tables {
        let with = writers[0].rows(table, columns).await;
        let without = writers[1].rows(table, columns).await;
        assert!(!with.is_empty());
        assert_eq!(with, without, "seed {seed}, {table}");
    }
}

#[tokio::test]
async fn what_is_remembered_changes_nothing() {
    let database = Database::create().await;
    without_waiting_for_the_disk(&database).await;
    let server = Server::start(&database).await;
    for seed in 0..4 {
        same_with_and_without(&database, &server, seed).await;
    }
}
