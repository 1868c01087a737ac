//! One round, from an empty cluster to the verdict.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::Row;
use tokio::sync::watch;

use super::checks::{self, Click, Counts, Standing};
use super::line::Line;
use super::load::Load;
use super::plan::{Fault, Hit, Plan, Shape};
use super::readers::Readers;
use crate::harness::cluster::Cluster;
use crate::harness::load::{metric, stored};
use crate::harness::server::ADMIN;
use crate::harness::steps::Known;
use crate::harness::{Api, Database, PATIENCE, Server, until};

/// How long a fault waits for clicks that are acknowledged: nothing may be, without a spool.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Has a round, and says what was seen in it; panics if anything is not as it must be.
pub(super) async fn run(seed: u64) -> String {
    let plan = Plan::draw(seed);
    println!("    {plan:?}");
    let began = Instant::now();
    let mut laps = Vec::new();
    let mut lap = |what: &str| laps.push(format!("{what} {:.1} s", began.elapsed().as_secs_f64()));
    let cluster = Cluster::start();
    let database = Database::create_on(cluster.socket_url()).await;
    let mut servers = Servers::start(&plan, &cluster, &database).await;
    let api = servers.api();
    make_book(&api, &plan.shape).await;

    lap("up");
    let mut readers = Readers::new(plan.shape.merges());
    let mut waiting: Vec<_> = plan.readers.iter().collect();
    waiting.sort_by_key(|reader| reader.joins_after);
    let addresses = servers.addresses.subscribe();
    let load = Load::start(&api, &plan, &addresses);
    let mut waiting = waiting.into_iter().peekable();
    let mut mark = 0;
    for fault in &plan.faults {
        mark = load.acknowledged().max(mark) + fault.after;
        while let Some(reader) = waiting.next_if(|reader| reader.joins_after <= mark) {
            load.reaches(reader.joins_after, LONGEST_WAIT).await;
            readers.join(&api, &addresses, reader.by_client).await;
        }
        load.reaches(mark, LONGEST_WAIT).await;
        lap("hit");
        servers.suffer(fault, &cluster).await;
        lap("healed");
    }
    for reader in waiting {
        readers.join(&api, &addresses, reader.by_client).await;
    }
    load.reaches(load.acknowledged() + 50, LONGEST_WAIT).await;
    let written = load.finish().await;
    lap("acknowledged");
    servers.all_is_drained().await;
    let missing = async || {
        let stored = stored(&database).await;
        let all = written.acknowledged.is_subset(&stored);
        all.then_some(())
    };
    // If they never come, the checks say how many.
    let _ = tokio::time::timeout(PATIENCE / 3, until("all are stored", missing)).await;

    lap("drained");
    let api = servers.api();
    let snapshot = caught_up(&api, &mut readers).await;
    lap("read");
    let standing = standing(&database, &api).await;
    let mut wrong = checks::wrong(&plan.shape, &standing, &written.sent, &written.acknowledged);
    wrong.extend(written.wrong.iter().cloned());
    wrong.extend(servers.damage());
    let known = Known::of_snapshot(&snapshot);
    let (mut connections, mut resyncs) = (0, 0);
    for (number, reader) in readers.seen.iter().enumerate() {
        let reader = reader.lock().unwrap();
        wrong.extend(
            reader
                .wrong
                .iter()
                .map(|what| format!("reader {number}: {what}")),
        );
        if reader.known != known {
            wrong.push(format!(
                "reader {number} knows other numbers than the snapshot"
            ));
        }
        connections += reader.connections;
        resyncs += reader.resyncs;
    }
    if !wrong.is_empty() {
        let folder = servers.keep_folder();
        let folder = folder.display();
        let many = wrong.len();
        wrong.truncate(20);
        let wrong = wrong.join("\n    ");
        panic!("{many} things are wrong; the logs are in {folder}\n    {wrong}");
    }
    format!(
        "{} kills; {written}; {} clicks stored, {} frames; {} readers, {connections} connections, \
         {resyncs} resyncs; {}",
        servers.hits,
        standing.stored.len(),
        standing.position,
        readers.seen.len(),
        laps.join(", "),
    )
}

/// A book with every level, and windows that move.
async fn make_book(api: &Api, shape: &Shape) {
    let tumbling = json!({"kind": "tumbling", "size_ms": shape.size_ms});
    let rollup = |name: &str, group: &str, window: Value| json!({"name": name, "group_by": group, "aggregate": "count", "window": window});
    let fields = json!({
        "rollups": [
            rollup("pages", "page", tumbling.clone()),
            rollup("chapters", "chapter", tumbling.clone()),
            rollup("book", "book", tumbling),
            rollup("sessions", "page", json!({"kind": "session", "gap_ms": shape.gap_ms})),
            rollup("sliding", "book", json!({"kind": "sliding", "size_ms": 2 * shape.size_ms,
                                             "slide_ms": shape.size_ms})),
        ],
        "settings": {"delay_ms": shape.delay_ms, "lateness_ms": 86_400_000, "max_future_ms": null,
                     "idle_timeout_ms": null, "buffer_frames": shape.buffer_frames},
    });
    api.book("b", fields).await;
    let chapters = (0..shape.chapters).map(|chapter| {
        let id = format!("c{chapter}");
        let pages = (0..shape.pages).filter(|page| checks::chapter_of(shape, *page) == id);
        let pages: Vec<String> = pages.map(|page| format!("/p{page}")).collect();
        json!({"id": id, "title": id, "pages": pages})
    });
    let chapters: Value = chapters.collect();
    api.put("/v1/books/b/chapters", &chapters).await.expect(200);
}

/// Waits until every reader is where the book is; gives a snapshot of that.
async fn caught_up(api: &Api, readers: &mut Readers) -> Value {
    let began = Instant::now();
    loop {
        let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
        let position = snapshot["position"].as_i64().unwrap();
        let positions = readers.positions();
        if positions.iter().all(|p| *p == position) {
            return snapshot;
        }
        let waited = began.elapsed();
        assert!(waited < PATIENCE, "readers at {positions:?} of {position}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The book as the database and the interface show it.
async fn standing(database: &Database, api: &Api) -> Standing {
    let mut conn = database.connect().await;
    let clicks = sqlx::query("SELECT click_id, page, at_ms FROM clicks");
    let clicks = clicks.fetch_all(&mut conn).await.unwrap();
    let frames = sqlx::query_scalar("SELECT position FROM frames ORDER BY position");
    let frames = frames.fetch_all(&mut conn).await.unwrap();
    let click = |row: &sqlx::postgres::PgRow| {
        let (page, at) = (row.get("page"), row.get("at_ms"));
        (row.get("click_id"), Click { page, at })
    };
    let book = api.get("/v1/books/b").await.expect(200);
    Standing {
        stored: clicks.iter().map(click).collect(),
        pages: counts(api, "pages").await,
        chapters: counts(api, "chapters").await,
        book: counts(api, "book").await,
        sessions: counts(api, "sessions").await,
        sliding: counts(api, "sliding").await,
        totals: book["totals"].clone(),
        oldest: book["oldest"].as_i64().unwrap(),
        position: book["position"].as_i64().unwrap(),
        frames,
        dead_letters: database.number("SELECT count(*) FROM dead_letters").await,
    }
}

async fn counts(api: &Api, rollup: &str) -> Counts {
    let mut counts = Counts::new();
    for item in api.counts("b", rollup).await {
        let start = chrono::DateTime::parse_from_rfc3339(item["start"].as_str().unwrap());
        let group = item["group"].as_str().unwrap().to_owned();
        let key = (start.unwrap().timestamp_millis(), group);
        *counts.entry(key).or_default() += item["value"].as_i64().unwrap();
    }
    counts
}

/// The servers of a round, each with a place of its own, and what is needed to start them again.
struct Servers {
    slots: Vec<Option<Server>>,
    addresses: watch::Sender<Vec<Option<String>>>,
    spools: Vec<bool>,
    lanes: String,
    database: String,
    line: Option<Line>,
    folder: PathBuf,
    hits: usize,
    keep: bool,
}

impl Servers {
    async fn start(plan: &Plan, cluster: &Cluster, database: &Database) -> Self {
        let name = format!("pt-faults-{}", uuid::Uuid::new_v4().simple());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let (mut line, mut url) = (None, database.url());
        if let Some(delay) = plan.line {
            let slow = Line::start(cluster.port(), delay).await;
            url = database.url_over_tcp(slow.port);
            line = Some(slow);
        }
        let mut servers = Self {
            slots: plan.spools.iter().map(|_| None).collect(),
            addresses: watch::Sender::new(vec![None; plan.spools.len()]),
            spools: plan.spools.clone(),
            lanes: plan.lanes.to_string(),
            database: url,
            line,
            folder,
            hits: 0,
            keep: false,
        };
        servers.start_missing().await;
        servers
    }

    /// A client of the first.
    fn api(&self) -> Api {
        self.slots[0].as_ref().unwrap().api()
    }

    fn data_dir(&self, slot: usize) -> PathBuf {
        self.folder.join(slot.to_string())
    }

    fn command(&self, slot: usize) -> tokio::process::Command {
        let mut command = Server::command();
        let log = self.folder.join(format!("{slot}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log);
        command
            .env("DATABASE_URL", &self.database)
            .env("PAGETIDE_ADMIN_TOKEN", ADMIN)
            .env("PAGETIDE_LANES", &self.lanes)
            .env("PAGETIDE_DRAIN_MS", "1000")
            .env("PAGETIDE_DATA_DIR", self.data_dir(slot))
            .env(
                "PAGETIDE_SPOOL",
                if self.spools[slot] { "jsonl" } else { "off" },
            )
            .stderr(log.unwrap());
        command
    }

    /// Starts those that are not up, as a supervisor would: again, if one ends because Postgres is
    /// not there.
    async fn start_missing(&mut self) {
        let began = Instant::now();
        for slot in 0..self.slots.len() {
            while self.slots[slot].is_none() {
                match Server::try_spawn(self.command(slot)).await {
                    Ok(server) => {
                        let url = server.url.clone();
                        self.addresses.send_modify(|all| all[slot] = Some(url));
                        self.slots[slot] = Some(server);
                    }
                    Err(said) => {
                        assert!(began.elapsed() < PATIENCE, "server {slot}: {said:?}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }
    }

    /// Hits what is to be hit, and brings it back.
    async fn suffer(&mut self, fault: &Fault, cluster: &Cluster) {
        for (pause, hit) in &fault.hits {
            // A random moment, not a wait.
            tokio::time::sleep(*pause).await;
            self.hits += 1;
            if let (None, Some(line)) = (hit.server(), &self.line) {
                line.cut();
            }
            match hit {
                Hit::KillPostgres => cluster.kill(),
                Hit::StopPostgres => cluster.stop("immediate"),
                Hit::KillServer(slot) => {
                    let server = self.slots[*slot].take().unwrap();
                    // What it has answered so far, and is on its way, is lost.
                    self.addresses.send_modify(|all| all[*slot] = None);
                    server.signal("KILL");
                    assert!(!server.ended().await.success());
                }
                Hit::EndServer(slot) => {
                    let server = self.slots[*slot].take().unwrap();
                    let ended = server.terminate().await;
                    assert!(ended.success(), "server {slot} ended by {ended}");
                    self.addresses.send_modify(|all| all[*slot] = None);
                }
            }
        }
        let postgres = fault.hits.iter().any(|(_, hit)| hit.server().is_none());
        let back = async {
            tokio::time::sleep(fault.away).await;
            if postgres {
                cluster.resume();
            }
        };
        if postgres && fault.servers_first {
            tokio::join!(self.start_missing(), back);
        } else {
            back.await;
            self.start_missing().await;
        }
    }

    /// Waits until nothing waits in any spool.
    async fn all_is_drained(&self) {
        for server in self.slots.iter().flatten() {
            let api = server.api();
            until("the spool is empty", async || {
                let ready = api.get("/readyz").await;
                let checks = ready.json()["checks"].clone();
                let mut checks = checks.as_array().unwrap().iter();
                // A spool says how many clicks wait in it, if any do.
                let waits = checks.any(|check| check["detail"].is_string());
                let bytes = metric(&api, "pagetide_spool_bytes").await;
                (ready.status == 200 && !waits && bytes == 0.0).then_some(())
            })
            .await;
        }
    }

    /// What the spools have set aside, or not let go.
    fn damage(&self) -> Vec<String> {
        let mut damage = Vec::new();
        for slot in (0..self.spools.len()).filter(|slot| self.spools[*slot]) {
            for file in std::fs::read_dir(self.data_dir(slot).join("spool")).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                if name != "lock" {
                    damage.push(format!("spool {slot} still has {name}"));
                }
            }
        }
        damage
    }

    fn keep_folder(&mut self) -> PathBuf {
        self.keep = true;
        self.folder.clone()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if !self.keep && !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
