//! Ten thousand idle readers of a thousand books: what they hold, and what they ask of Postgres;
//! beside nchan with as many readers of as many channels.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::Error;
use crate::context::Context;
use crate::limits::allow_open_files;
use crate::peers::nchan::Nchan;
use crate::readers::{Dialect, Readers};
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server, counting_book, statements};

const BOOKS: usize = 1_000;

/// Readers of each.
const READERS: usize = 10;

/// How many books are made at a time.
const MAKERS: usize = 16;

/// How many readers connect at a time.
const AT_ONCE: usize = 64;

/// How long it may take until all are there.
const PATIENCE: Duration = Duration::from_mins(5);

/// Measures both, one after the other.
pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    allow_open_files((BOOKS * READERS) as u64 + 1_000)?;
    let (memory, queries) = ours(context).await?;
    let beside = nchans(context).await?;
    let name = format!("{} idle readers of {BOOKS} books", BOOKS * READERS);
    Ok(vec![
        Figure {
            name: format!("{name}: memory a reader"),
            unit: "KiB",
            value: memory,
            beside: Some(("nchan".to_owned(), beside)),
            target: Some(Target::ValueAtMost(12.0)),
        },
        Figure {
            name: format!("{name}: queries a second to Postgres (pg_stat_statements)"),
            unit: "queries",
            value: queries,
            beside: None,
            target: Some(Target::ValueAtMost(5.0)),
        },
    ])
}

/// Kibibytes a reader, and queries a second.
async fn ours(context: &Context) -> Result<(Samples, Samples), Error> {
    let database = Database::start_counting(context).await?;
    let server = Server::start(&database, &[]).await?;
    make_books(&server).await?;
    let before = server.memory()?;
    let wanted = (0..BOOKS * READERS).map(|number| {
        let book = format!("book-{}", number / READERS);
        server.follow(&book, None)
    });
    let wanted = wanted.collect();
    let readers = Readers::send_off(&server.address, Dialect::Ours, wanted, AT_ONCE)?;
    readers.opened(PATIENCE).await?;
    // What was looked up for the beginning of the streams is behind us.
    tokio::time::sleep(context.warm_up).await;

    let (mut memory, mut queries) = (Samples::default(), Samples::default());
    let mut conn = database.connect().await?;
    for _ in 0..context.runs {
        let begin = (Instant::now(), statements(&mut conn).await?);
        tokio::time::sleep(context.run).await;
        let asked = statements(&mut conn).await? - begin.1;
        queries
            .0
            .push(f64::from(asked) / begin.0.elapsed().as_secs_f64());
        memory.0.push(each(before, server.memory()?));
    }
    all_there(&readers)?;
    drop(readers);
    server.stop().await?;
    database.stop().await?;
    Ok((memory, queries))
}

/// Several at a time, so that commits are shared.
async fn make_books(server: &Server) -> Result<(), Error> {
    let book = serde_json::to_vec(&counting_book())?;
    let (book, numbers) = (&book, &Cell::new(0));
    let mut clients = server.clients(MAKERS).await?;
    let makers = clients.iter_mut().map(|client| async move {
        while numbers.get() < BOOKS {
            let path = format!("/v1/books/book-{}", numbers.get());
            numbers.set(numbers.get() + 1);
            client.send("PUT", &path, book).await?;
        }
        Ok::<(), Error>(())
    });
    try_join_all(makers).await?;
    Ok(())
}

/// Kibibytes a reader.
async fn nchans(context: &Context) -> Result<Samples, Error> {
    let nchan = Nchan::start(context, BOOKS * READERS).await?;
    let before = nchan.memory()?;
    let wanted =
        (0..BOOKS * READERS).map(|number| nchan.follow(&format!("book-{}", number / READERS)));
    let wanted = wanted.collect();
    let readers = Readers::send_off(&nchan.address, Dialect::Nchan, wanted, AT_ONCE)?;
    readers.opened(PATIENCE).await?;
    let mut memory = Samples::default();
    for _ in 0..context.runs {
        tokio::time::sleep(context.warm_up).await;
        memory.0.push(each(before, nchan.memory()?));
    }
    all_there(&readers)?;
    drop(readers);
    nchan.stop().await?;
    Ok(memory)
}

fn each(before: u64, with: u64) -> f64 {
    with.saturating_sub(before) as f64 / 1024.0 / (BOOKS * READERS) as f64
}

fn all_there(readers: &Readers) -> Result<(), Error> {
    match readers.tally().ended {
        0 => Ok(()),
        ended => Err(format!("{ended} streams ended meanwhile").into()),
    }
}
