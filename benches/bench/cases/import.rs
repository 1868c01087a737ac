//! A long access log, read by `pagetide import` beside `GoAccess`: lines for each second of a
//! processor.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::Error;
use crate::context::Context;
use crate::cpu;
use crate::report::Figure;
use crate::service::{Database, Server};
use crate::turns::in_turns;

/// The log that is repeated.
const LOG: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/apache_combined.log"
);

/// Lines of it.
const LINES: u32 = 10_000;

/// So that every line counts.
const ALL: [&str; 5] = [
    "--assets",
    "--bots",
    "--errors",
    "--methods",
    "GET,HEAD,POST,OPTIONS",
];

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let times = if context.quick { 10 } else { 50 };
    let log = Log::repeat(context, times)?;
    let database = Database::start(context).await?;
    make_books(context, &database).await?;
    let mut book = 0;
    let measured = in_turns(context, async |_| {
        book += 1;
        let views = log.import(&database, &format!("views-{book}"), &[]).await?;
        let all = log.import(&database, &format!("all-{book}"), &ALL).await?;
        Ok([
            log.a_second(views.own),
            log.a_second(views.with_postgres),
            log.a_second(all.own),
            log.a_second(all.with_postgres),
            log.a_second(log.read_by_goaccess(context).await?),
        ])
    });
    let [views, views_postgres, all, all_postgres, goaccess] = measured.await?;
    database.stop().await?;
    std::fs::remove_file(&log.path)?;
    let figure = |what: &str, value| Figure {
        name: format!("import, {} lines, {what}", times * LINES),
        unit: "lines/CPU-s",
        value,
        beside: Some(("GoAccess".to_owned(), goaccess.clone())),
        target: None,
    };
    Ok(vec![
        figure("page views count", views),
        figure("page views count, with Postgres", views_postgres),
        figure("each line counts", all),
        figure("each line counts, with Postgres", all_postgres),
    ])
}

/// A book for each import, so that all that comes is new to it. The server that makes them has ended
/// when it is measured.
async fn make_books(context: &Context, database: &Database) -> Result<(), Error> {
    let book = json!({
        "rollups": [{
            "name": "pages", "group_by": "page", "aggregate": "count",
            "window": {"kind": "tumbling", "size_ms": 3_600_000},
        }],
    });
    let server = Server::start(database, &[]).await?;
    // One turn is there to warm up.
    for number in 1..=context.runs + 1 {
        for kind in ["views", "all"] {
            server.put_book(&format!("{kind}-{number}"), &book).await?;
        }
    }
    server.stop().await
}

struct Log {
    path: PathBuf,
    lines: u32,
}

/// Seconds of a processor.
struct Took {
    own: f64,
    with_postgres: f64,
}

impl Log {
    /// The log so many times over.
    fn repeat(context: &Context, times: u32) -> Result<Self, Error> {
        let path = context.folder.join("access.log");
        std::fs::write(&path, std::fs::read(LOG)?.repeat(usize::try_from(times)?))?;
        let lines = times * LINES;
        Ok(Self { path, lines })
    }

    fn a_second(&self, seconds: f64) -> f64 {
        f64::from(self.lines) / seconds
    }

    async fn import(&self, database: &Database, book: &str, rules: &[&str]) -> Result<Took, Error> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagetide"));
        command
            .args(["import", "--format", "combined", "--book", book])
            .args(rules)
            .arg(&self.path)
            .env("DATABASE_URL", database.url()?);
        let postgres = database.usage()?.busy;
        let own = seconds_of(command).await?;
        let postgres = database.usage()?.busy.saturating_sub(postgres);
        self.check(database, book, rules).await?;
        Ok(Took {
            own,
            with_postgres: own + postgres.as_secs_f64(),
        })
    }

    /// Fails unless all of it was imported.
    async fn check(&self, database: &Database, book: &str, rules: &[&str]) -> Result<(), Error> {
        let told = sqlx::query_as(
            "SELECT processed, counted FROM runs
             WHERE book_id = (SELECT id FROM books WHERE slug = $1) AND state = 'done'",
        );
        let mut conn = database.connect().await?;
        let (processed, counted): (i64, i64) = told.bind(book).fetch_one(&mut conn).await?;
        database.expect_clicks(u64::try_from(counted)?).await?;
        let fits = counted == processed || rules.is_empty();
        if processed == i64::from(self.lines) && fits && counted > 0 {
            return Ok(());
        }
        let lines = self.lines;
        Err(format!("of {lines} lines, {processed} were read and {counted} counted").into())
    }

    /// Seconds of a processor.
    async fn read_by_goaccess(&self, context: &Context) -> Result<f64, Error> {
        let report = context.folder.join("goaccess.json");
        let mut command = Command::new("goaccess");
        command
            .arg(&self.path)
            .args(["--no-global-config", "--log-format=COMBINED"])
            .args(["--no-progress", "--no-parsing-spinner", "-o"])
            .arg(&report);
        let seconds = seconds_of(command).await?;
        let read = requests_of(&report)?;
        std::fs::remove_file(&report)?;
        if read == Some(u64::from(self.lines)) {
            return Ok(seconds);
        }
        Err(format!("of {} lines, GoAccess read {read:?}", self.lines).into())
    }
}

/// How many requests `GoAccess` says that it has read.
fn requests_of(report: &Path) -> Result<Option<u64>, Error> {
    // Some of the addresses in it are no text.
    let report = std::fs::read(report)?;
    let report: Value = serde_json::from_str(&String::from_utf8_lossy(&report))?;
    Ok(report["general"]["total_requests"].as_u64())
}

/// Runs a program to its end, which must be a good one; gives what it took of a processor, in seconds.
async fn seconds_of(mut command: Command) -> Result<f64, Error> {
    let before = cpu::of_ended_children()?;
    let output = command.stdin(Stdio::null()).output().await?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}: {said}", output.status).into());
    }
    let took = cpu::of_ended_children()?.saturating_sub(before);
    Ok(took.as_secs_f64())
}
