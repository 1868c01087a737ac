//! The plans that Postgres makes of the hot statements when there is much in the tables: none may
//! walk a whole table, and none may sort on the disk.

mod explained;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Row;

use self::explained::Explained;
use super::ingest_batched::{BATCH, CONNECTIONS};
use crate::Error;
use crate::context::Context;
use crate::fill;
use crate::load::closed::Load;
use crate::load::follower::Follower;
use crate::load::mix::Mix;
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server};

/// Other books, so that the table of books is not so small that walking it is best.
const OTHER_BOOKS: i64 = 2000;

/// Windows before now that have clicks, more than a snapshot shows.
const PAST: i64 = 70;

/// Long enough for what happens once a second.
const ONCE_A_SECOND: Duration = Duration::from_millis(2500);

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    explain(&database).await?;
    let server = Server::start(&database, &[]).await?;
    let book = json!({"title": "Bench", "rollups": rollups()});
    server.put_book("book", &book).await?;
    let in_log = if context.quick { 300_000 } else { 5_000_000 };
    let mut conn = database.connect().await?;
    fill::log(&mut conn, "book", in_log).await?;
    fill::books(&mut conn, "book", OTHER_BOOKS).await?;
    let past = fill::windows(&server, "book", PAST).await?;
    sqlx::raw_sql("VACUUM ANALYZE").execute(&mut conn).await?;
    let before = std::fs::metadata(database.log())?.len();
    let sent = work(context, &server).await?;
    server.stop().await?;
    // The frames are not in the new process's memory, so that a reader who resumes has them read.
    let server = Server::start(&database, &[]).await?;
    let position = server.position("book").await?;
    let mut resumed = Follower::resume(&server, "book", "earliest").await?;
    resumed.through(position).await?;
    tokio::time::sleep(ONCE_A_SECOND).await;
    drop(resumed);
    server.stop().await?;
    let log = std::fs::read(database.log())?;
    let log = String::from_utf8_lossy(&log[usize::try_from(before)?..]).into_owned();
    database.expect_clicks(in_log + past + sent).await?;
    database.stop().await?;
    let plans = explained::read(&log)?;
    std::fs::write(context.folder.join("plans.txt"), text(&plans))?;
    Ok(figures(&plans))
}

/// Has every connection that is made from now on log the plan of each statement, as it was carried
/// out.
async fn explain(database: &Database) -> Result<(), Error> {
    let mut conn = database.connect().await?;
    let name: String = sqlx::query("SELECT current_database()")
        .fetch_one(&mut conn)
        .await?
        .get(0);
    for (setting, value) in [
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_buffers", "on"),
        ("auto_explain.log_format", "json"),
        // The server's own log takes nothing below.
        ("auto_explain.log_level", "warning"),
        // And clients are not to hear of it.
        ("client_min_messages", "error"),
        // Parameters are arrays of thousands. Known from Postgres 16 on; older ones do not log them.
        ("auto_explain.log_parameter_max_length", "0"),
    ] {
        let alter = format!("ALTER DATABASE {name} SET {setting} = '{value}'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(alter))
            .execute(&mut conn)
            .await?;
    }
    Ok(())
}

/// One rollup of each kind of window.
fn rollups() -> Value {
    json!([
        {"name": "pages", "group_by": "page", "aggregate": "count",
         "window": {"kind": "tumbling", "size_ms": 10_000}},
        {"name": "readers", "group_by": "book", "aggregate": "distinct",
         "window": {"kind": "sliding", "size_ms": 60_000, "slide_ms": 10_000}},
        {"name": "visits", "group_by": "visitor", "aggregate": "count",
         "window": {"kind": "session", "gap_ms": 5000}},
    ])
}

/// Clicks of all kinds, and snapshots, with a reader; says how many clicks.
async fn work(context: &Context, server: &Server) -> Result<u64, Error> {
    let reader = Follower::start(server, "book").await?;
    let token = server.token("write").await?;
    let load = Load {
        address: server.address.clone(),
        connections: CONNECTIONS,
        mix: Arc::new(Mix::new(9, &token, &["book".to_owned()], BATCH)),
    };
    let done = load.run(context.warm_up).await?;
    // With ids of the sender's own, which may be known; and sent again, when they are.
    let clicks: Vec<Value> = (0..BATCH)
        .map(|n| json!({"id": format!("click-{n}"), "page": format!("/guide/chapter-{n}"), "age_ms": 15_000}))
        .collect();
    let clicks = clicks.into();
    for _ in 0..2 {
        server
            .ask(Method::POST, "books/book/clicks", Some(&clicks))
            .await?;
    }
    server.ask(Method::GET, "books/book/snapshot", None).await?;
    let since = "books/book/snapshot?since=0";
    server.ask(Method::GET, since, None).await?;
    tokio::time::sleep(ONCE_A_SECOND).await;
    drop(reader);
    Ok(done.clicks + BATCH as u64)
}

/// How many statements there were, and how many of their plans are bad.
fn figures(plans: &BTreeMap<String, Explained>) -> Vec<Figure> {
    let figure = |name: &str, count: usize, target| Figure {
        name: format!("plans, {name}"),
        unit: "",
        #[allow(clippy::cast_precision_loss, reason = "some dozens")]
        value: Samples(vec![count as f64]),
        beside: None,
        target,
    };
    let bad = plans.values().filter(|plan| !plan.offences.is_empty());
    vec![
        figure("hot statements", plans.len(), None),
        figure(
            "hot statements that walk a table or sort on the disk",
            bad.count(),
            Some(Target::ValueAtMost(0.0)),
        ),
    ]
}

/// All of them, for people.
fn text(plans: &BTreeMap<String, Explained>) -> String {
    let mut text = String::new();
    for (statement, plan) in plans {
        // Nothing goes wrong in writing to a string.
        let _ = writeln!(text, "{statement}\n\n{}", plan.tree);
        for offence in &plan.offences {
            let _ = writeln!(text, "  BAD: {offence}");
        }
        text.push('\n');
    }
    text
}
