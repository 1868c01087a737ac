//! The log of a book, counted again, beside the same count as one statement; and what that takes in
//! memory, with many clicks and with a tenth of them.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use sqlx::PgConnection;

use crate::Error;
use crate::context::Context;
use crate::fill;
use crate::report::{Figure, Samples, Target, shown};
use crate::service::{Database, Server};
use crate::turns::in_turns;

/// Milliseconds of an hour, in windows of which the clicks of thirty days are counted; and of a few
/// seconds, in which there are hardly fewer windows than clicks.
const HOURS: i64 = 3_600_000;
const SECONDS: i64 = 10_000;

/// The greatest multiple of the statement's time, and of the memory with a tenth of the clicks.
const TIME: Target = Target::RatioAtMost(3.0);
const MEMORY: Target = Target::RatioAtMost(1.2);

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let clicks: u32 = if context.quick { 100_000 } else { 1_000_000 };
    let database = Database::start(context).await?;
    let mut figures = Vec::new();
    for (size_ms, target) in [(HOURS, Some(TIME)), (SECONDS, None)] {
        let mut book = Book::make(&database, size_ms, clicks).await?;
        let [ours, statement] = in_turns(context, async |_| {
            let ours = book.recount().await?;
            Ok([ours, book.statement(&database).await?])
        })
        .await?;
        figures.push(Figure {
            name: format!("recount, {}", book.describe()),
            unit: "s",
            value: ours,
            beside: Some(("GROUP BY".to_owned(), statement)),
            target,
        });
        book.server.stop().await?;
        forget(&database).await?;
    }
    let (many, few) = memory(context, &database, clicks).await?;
    let tenth = format!("{} clicks", shown(f64::from(clicks / 10)));
    figures.push(Figure {
        name: format!("recount, {} clicks: most memory", shown(f64::from(clicks))),
        unit: "MiB",
        value: many,
        beside: Some((tenth, few)),
        target: Some(MEMORY),
    });
    database.stop().await?;
    Ok(figures)
}

/// A book with a past, and a server of its own.
struct Book {
    server: Server,
    size_ms: i64,
    clicks: u32,
    /// Rows that hold its counts, once they are known.
    windows: i64,
}

impl Book {
    async fn make(database: &Database, size_ms: i64, clicks: u32) -> Result<Self, Error> {
        let server = Server::start(database, &[]).await?;
        let body = json!({
            "rollups": [{
                "name": "pages", "group_by": "page", "aggregate": "count",
                "window": {"kind": "tumbling", "size_ms": size_ms},
            }],
        });
        server.put_book("book", &body).await?;
        fill::log(&mut database.connect().await?, "book", u64::from(clicks)).await?;
        let windows = 0;
        Ok(Self {
            server,
            size_ms,
            clicks,
            windows,
        })
    }

    fn describe(&self) -> String {
        let clicks = shown(f64::from(self.clicks));
        let windows = shown(self.windows as f64);
        let seconds = self.size_ms / 1000;
        format!("{clicks} clicks, {windows} counts in windows of {seconds} s")
    }

    /// Counts it again, and gives the seconds from the request to the end of the run.
    async fn recount(&self) -> Result<f64, Error> {
        let begin = Instant::now();
        let wanted = json!({"kind": "recount"});
        let run = self
            .server
            .ask(Method::POST, "books/book/runs", Some(&wanted))
            .await?;
        let id = run["id"].as_str().ok_or("a run does not say its id")?;
        let path = format!("books/book/runs/{id}");
        let run = loop {
            let run = self.server.ask(Method::GET, &path, None).await?;
            if run["state"] != "running" {
                break run;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let took = begin.elapsed();
        if run["state"] != "done" || run["processed"] != self.clicks {
            return Err(format!("the recount ended otherwise: {run}").into());
        }
        Ok(took.as_secs_f64())
    }

    /// Seconds of the statement that counts the same; fails unless it finds what the recount found.
    async fn statement(&mut self, database: &Database) -> Result<f64, Error> {
        let mut conn = database.connect().await?;
        let counted = sqlx::query_as(
            "SELECT count(*), coalesce(sum(n), 0)::bigint
             FROM (SELECT at_ms / $1, page, count(*) AS n
                   FROM clicks WHERE book_id = (SELECT id FROM books) GROUP BY 1, 2) AS counted",
        );
        let begin = Instant::now();
        let counted: (i64, i64) = counted.bind(self.size_ms).fetch_one(&mut conn).await?;
        let took = begin.elapsed();
        let ours = sqlx::query_as(
            "SELECT count(*), coalesce(sum(weight), 0)::bigint
             FROM windows w JOIN books b ON b.id = w.book_id AND b.generation = w.generation",
        );
        let ours: (i64, i64) = ours.fetch_one(&mut conn).await?;
        if ours != counted {
            return Err(format!("the recount made {ours:?}, the statement {counted:?}").into());
        }
        self.windows = counted.0;
        swept(&mut conn).await?;
        Ok(took.as_secs_f64())
    }
}

/// Waits until the windows that nobody counts by any more are gone, so that the next turn finds what
/// this one found.
async fn swept(conn: &mut PgConnection) -> Result<(), Error> {
    let left = "SELECT count(*) FROM runs WHERE NOT swept";
    while sqlx::query_scalar::<_, i64>(left)
        .fetch_one(&mut *conn)
        .await?
        > 0
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    sqlx::raw_sql("VACUUM windows").execute(&mut *conn).await?;
    sqlx::raw_sql("CHECKPOINT").execute(&mut *conn).await?;
    Ok(())
}

/// The database as it was before there were books.
async fn forget(database: &Database) -> Result<(), Error> {
    let tables =
        "TRUNCATE books, book_slugs, book_log, clicks, windows, frames, runs, recount_tail";
    let mut conn = database.connect().await?;
    sqlx::raw_sql(tables).execute(&mut conn).await?;
    Ok(())
}

/// The most memory that a server had that counted so many clicks again, and one that counted a tenth.
async fn memory(
    context: &Context,
    database: &Database,
    clicks: u32,
) -> Result<(Samples, Samples), Error> {
    let (mut many, mut few) = <(Samples, Samples)>::default();
    for _ in 0..if context.quick { 1 } else { 3 } {
        for (clicks, samples) in [(clicks / 10, &mut few), (clicks, &mut many)] {
            let book = Book::make(database, HOURS, clicks).await?;
            book.recount().await?;
            let peak = book.server.peak_resident()?;
            samples.0.push(peak as f64 / f64::from(1 << 20));
            book.server.stop().await?;
            forget(database).await?;
        }
    }
    Ok((many, few))
}
