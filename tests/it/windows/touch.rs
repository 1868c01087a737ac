//! A commit touches the windows that its clicks need, however many others are open.

use std::str::FromStr;

use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Row};

use super::{by_page, session, tumbling};
use crate::harness::steps::execute;
use crate::harness::{Api, Database, Server, until};

const PAGES: usize = 10_000;

/// What transactions did to the table of windows.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Touched {
    fetched: i64,
    read_by_scans: i64,
    inserted: i64,
    updated: i64,
    removed: i64,
}

impl Touched {
    /// By all servers that have ended: their backends report at the latest then.
    async fn so_far(database: &Database) -> Self {
        let sql = "SELECT idx_tup_fetch, seq_tup_read, n_tup_ins, n_tup_upd, n_tup_del
                   FROM pg_stat_user_tables WHERE relname = 'windows'";
        let mut conn = database.connect().await;
        until("the backends of the server end", async || {
            let left = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND application_name = 'pagetide'";
            (database.number(left).await == 0).then_some(())
        })
        .await;
        let row = sqlx::query(sql).fetch_one(&mut conn).await.unwrap();
        Self {
            fetched: row.get(0),
            read_by_scans: row.get(1),
            inserted: row.get(2),
            updated: row.get(3),
            removed: row.get(4),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            fetched: self.fetched - before.fetched,
            read_by_scans: self.read_by_scans - before.read_by_scans,
            inserted: self.inserted - before.inserted,
            updated: self.updated - before.updated,
            removed: self.removed - before.removed,
        }
    }
}

/// What a server does while `work` is done with it.
async fn during(database: &Database, work: impl AsyncFnOnce(Api)) -> Touched {
    let before = Touched::so_far(database).await;
    let server = Server::start(database).await;
    work(server.api()).await;
    assert!(server.terminate().await.success());
    Touched::so_far(database).await.since(before)
}

/// A book with two open windows for each of [`PAGES`] pages and as many visitors.
async fn open_windows(api: &Api) {
    let visits = json!({"name": "visits", "group_by": "visitor", "aggregate": "count",
                        "window": session(60_000)});
    let fields = json!({
        "rollups": [by_page("pages", tumbling(3_600_000)), visits],
        "settings": {"delay_ms": 0, "lateness_ms": 60_000, "idle_timeout_ms": null,
                     "max_future_ms": null, "canonical_pages": false},
    });
    api.book("b", fields).await;
    let clicks =
        (0..PAGES).map(|n| json!({"page": format!("/{n}"), "visitor": n.to_string(), "at": 1000}));
    let taken = api.clicks("b", clicks.collect()).await;
    assert_eq!(taken["on_time"], PAGES);
}

#[tokio::test]
async fn one_more_click_touches_a_handful_of_windows_however_many_are_open() {
    let database = Database::create().await;
    // As soon as there are statistics, and as long as there are none.
    assert!(Server::start(&database).await.terminate().await.success());
    let off = "ALTER TABLE windows SET (autovacuum_enabled = off)";
    execute(&database, off).await;
    let filled = during(&database, async |api| open_windows(&api).await).await;
    assert_eq!(filled.inserted, i64::try_from(2 * PAGES).unwrap());
    for statistics in [false, true] {
        if statistics {
            execute(&database, "ANALYZE").await;
        }
        // Through the first of a connection and many that follow, whose plans may be others.
        let clicks: i64 = 12;
        let touched = during(&database, async |api| {
            for n in 0..clicks {
                let at = 1001 + n + if statistics { 100 } else { 0 };
                let click = json!({"page": "/77", "visitor": "77", "at": at});
                assert_eq!(api.clicks("b", click).await["on_time"], 1);
            }
        })
        .await;
        assert_eq!(touched.read_by_scans, 0, "{touched:?}");
        // The page's window is put; the session has other bounds and takes another's place.
        assert_eq!(touched.inserted, clicks, "{touched:?}");
        assert_eq!(touched.updated, clicks, "{touched:?}");
        assert_eq!(touched.removed, clicks, "{touched:?}");
        assert!(touched.fetched <= 8 * clicks, "{touched:?}");
    }
    // A look for what idleness has to do, and the many after it.
    let idle = json!({"settings": {"idle_timeout_ms": 1}});
    let touched = during(&database, async |api| {
        api.patch("/v1/books/b", &idle).await.expect(200);
        until("it is known when something is due", async || {
            let known = "SELECT count(*) FROM books WHERE due_ms IS NOT NULL";
            (database.number(known).await == 1).then_some(())
        })
        .await;
    })
    .await;
    assert_eq!((touched.read_by_scans, touched.updated), (0, 0));
    assert!(touched.fetched <= 16, "{touched:?}");
}

/// The statement that loads sessions, as it stands in the source.
fn sessions_statement() -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/ingest/commit/windows/load.rs"
    );
    let source = std::fs::read_to_string(path).unwrap();
    let statements = source.split("r#\"").skip(1);
    let statements = statements.map(|rest| rest.split("\"#").next().unwrap().to_owned());
    let mut of_sessions = statements.filter(|statement| statement.contains("w.session"));
    let found = of_sessions
        .next()
        .expect("no statement that loads sessions");
    assert_eq!(of_sessions.next(), None);
    found
}

#[tokio::test]
async fn sessions_are_looked_up_by_their_group_with_and_without_statistics() {
    let database = Database::create().await;
    let server = Server::start(&database).await;
    execute(
        &database,
        "ALTER TABLE windows SET (autovacuum_enabled = off)",
    )
    .await;
    open_windows(&server.api()).await;
    let options = PgConnectOptions::from_str(&database.url()).unwrap();
    for statistics in [false, true] {
        if statistics {
            execute(&database, "ANALYZE").await;
        }
        let mut conn = pagetide::db::write_connection(&options).await.unwrap();
        let prepare = format!(
            "PREPARE sessions (uuid[], int[], smallint[], text[], bigint[], bigint[]) AS {}",
            sessions_statement()
        );
        let prepare = sqlx::raw_sql(AssertSqlSafe(prepare));
        prepare.execute(&mut conn).await.unwrap();
        let explain = "EXPLAIN EXECUTE sessions ('{00000000-0000-0000-0000-000000000000}', '{0}',
                                                 '{1}', '{77}', '{1000}', '{61000}')";
        let rows = sqlx::raw_sql(explain).fetch_all(&mut conn).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        let lookups = plan.matches("using windows_sessions on windows").count();
        assert_eq!(lookups, 2, "{plan}");
        assert_eq!(plan.matches(" on windows").count(), 2, "{plan}");
        assert!(
            plan.matches("group_key = s.group_key").count() == 2,
            "{plan}"
        );
        let book: Value = server.api().get("/v1/books/b").await.expect(200);
        assert_eq!(book["totals"]["on_time"], PAGES);
    }
}
