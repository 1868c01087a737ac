//! Two thousand readers are cut off, a hundred frames pass them by, and all of them are back at
//! once.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::Error;
use crate::context::Context;
use crate::http::{Client, number_after};
use crate::limits::allow_open_files;
use crate::readers::{Dialect, Readers};
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server, counting_book, statements};

const BOOKS: usize = 10;

/// Readers of each.
const READERS: usize = 200;

/// How many frames they have missed.
const MISSED: i64 = 100;

/// How long it may take until all have caught up.
const PATIENCE: Duration = Duration::from_mins(1);

/// Statements that are allowed: two a book, and ten besides.
const MOST: f64 = (2 * BOOKS + 10) as f64;

/// Measures several storms.
pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    allow_open_files((BOOKS * READERS) as u64 + 1_000)?;
    let database = Database::start_counting(context).await?;
    let server = Server::start(&database, &[]).await?;
    for number in 0..BOOKS {
        server.put_book(&book(number), &never_idle()).await?;
    }
    let mut clients = server.clients(BOOKS).await?;
    let mut conn = database.connect().await?;
    let (mut asked, mut lasted) = (Samples::default(), Samples::default());
    let mut seen = mint(&mut clients, 1).await?;
    for _ in 0..context.runs {
        let readers = readers(&server, seen.iter().map(|_| None), 64)?;
        readers.opened(PATIENCE).await?;
        drop(readers);
        let newest = mint(&mut clients, MISSED).await?;
        if seen
            .iter()
            .zip(&newest)
            .any(|(seen, newest)| seen + MISSED != *newest)
        {
            return Err("a request was no frame of its own".into());
        }
        let (queries, time) = storm(context, &server, &mut conn, &seen, &newest).await?;
        asked.0.push(queries);
        lasted.0.push(time.as_secs_f64() * 1000.0);
        seen = newest;
    }
    server.stop().await?;
    database.stop().await?;
    let name = format!("{} readers of {BOOKS} books back at once", BOOKS * READERS);
    Ok(vec![
        Figure {
            name: format!("{name}: queries to Postgres (pg_stat_statements)"),
            unit: "queries",
            value: asked,
            beside: None,
            target: Some(Target::ValueAtMost(MOST)),
        },
        Figure {
            name: format!("{name}: until the last had caught up"),
            unit: "ms",
            value: lasted,
            beside: None,
            target: None,
        },
    ])
}

/// A book that mints no frame by itself while it is counted what an idle server asks for.
fn never_idle() -> Value {
    let mut book = counting_book();
    book["settings"] = json!({ "idle_timeout_ms": null });
    book
}

fn book(number: usize) -> String {
    format!("storm-{number}")
}

/// The readers of all books, each going on after its book's cursor.
fn readers(
    server: &Server,
    cursors: impl Iterator<Item = Option<i64>>,
    at_once: usize,
) -> Result<Readers, Error> {
    let each = cursors.enumerate().flat_map(|(number, cursor)| {
        let wanted = server.follow(&book(number), cursor);
        std::iter::repeat_n(wanted, READERS)
    });
    Readers::send_off(&server.address, Dialect::Ours, each.collect(), at_once)
}

/// Mints frames in each book; gives where the books stand.
async fn mint(clients: &mut [Client], frames: i64) -> Result<Vec<i64>, Error> {
    let each = clients
        .iter_mut()
        .enumerate()
        .map(|(number, client)| async move {
            let path = format!("/v1/books/{}/clicks", book(number));
            let mut position = 0;
            for page in 0..frames {
                let click = format!(r#"{{"page":"/page-{page}"}}"#);
                let receipt = client.send("POST", &path, click.as_bytes()).await?;
                let at = number_after(receipt, b"\"position\":");
                position = at.ok_or("a receipt without a position")?;
            }
            Ok::<i64, Error>(position)
        });
    try_join_all(each).await
}

/// All readers come back; gives how many statements that took, what an idle server asks for left
/// out, and how long.
async fn storm(
    context: &Context,
    server: &Server,
    conn: &mut PgConnection,
    seen: &[i64],
    newest: &[i64],
) -> Result<(f64, Duration), Error> {
    let begin = (Instant::now(), statements(conn).await?);
    let readers = readers(server, seen.iter().copied().map(Some), usize::MAX)?;
    readers.note_arrivals();
    readers.opened(PATIENCE).await?;
    let wanted = (BOOKS * READERS) as u64 * MISSED.unsigned_abs();
    if !readers.got(wanted, PATIENCE).await? {
        return Err(format!("not all have caught up: {:?}", readers.tally()).into());
    }
    let end = (Instant::now(), statements(conn).await?);
    tokio::time::sleep(context.run).await;
    let idle = (Instant::now(), statements(conn).await?);

    // Each got the frames after its cursor, in order, and nothing else.
    let tally = readers.tally();
    let mut ends = readers.positions().into_iter().enumerate();
    let right = tally.frames == wanted
        && (tally.missed, tally.doubled, tally.resyncs) == (0, 0, 0)
        && ends.all(|(reader, end)| end == Some(newest[reader / READERS]));
    if !right {
        return Err(format!("not what was missed: {tally:?}").into());
    }
    let arrivals = readers.take_arrivals();
    let last = arrivals.iter().map(|arrival| arrival.after).max();
    let rate = f64::from(idle.1 - end.1) / (idle.0 - end.0).as_secs_f64();
    let usual = rate * (end.0 - begin.0).as_secs_f64();
    let queries = f64::from(end.1 - begin.1) - usual;
    Ok((queries, last.unwrap_or_default()))
}
