//! What is there already must not slow down what comes: ingest and the snapshot with many clicks in
//! the log, and with many windows open.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::ingest_batched::{BATCH, CONNECTIONS};
use crate::Error;
use crate::context::Context;
use crate::fill;
use crate::load::answers::{Answers, send};
use crate::load::clicks::PAGES;
use crate::load::closed::Load;
use crate::load::mix::Mix;
use crate::report::{Figure, Samples, Target, shown};
use crate::service::{ADMIN, Database, Server, counting_book};
use crate::turns::in_turns;

/// Before the ingest, so many windows have a click on every page, where the log grows: more than a
/// snapshot shows of those that are closed, so that each shows as many.
const PAST: i64 = 70;

/// And where windows are open: with 200 pages each, ten thousand rows.
const OPEN: i64 = 50;

/// The least part of the ingest of an empty book, and the greatest multiple of the time of its
/// snapshot.
const INGEST: Target = Target::RatioAtLeast(0.85);
const SNAPSHOT: Target = Target::RatioAtMost(1.15);

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    let server = Server::start(&database, &[]).await?;
    let mut measuring = Measuring {
        database: &database,
        server: &server,
        token: server.token("write").await?,
        books: 0,
    };
    let mut figures = measuring.with_clicks(context).await?;
    figures.extend(measuring.with_windows(context).await?);
    server.stop().await?;
    database.stop().await?;
    Ok(figures)
}

struct Measuring<'a> {
    database: &'a Database,
    server: &'a Server,
    token: String,
    /// How many were made.
    books: usize,
}

/// What is measured of a book.
struct Measured {
    /// Clicks a second.
    ingest: f64,
    /// The median of the snapshot's times, in milliseconds.
    snapshot_ms: f64,
    snapshot_kib: f64,
}

impl Measuring<'_> {
    async fn with_clicks(&mut self, context: &Context) -> Result<Vec<Figure>, Error> {
        let sizes = if context.quick {
            [0, 100_000, 300_000]
        } else {
            [0, 1_000_000, 5_000_000]
        };
        let [none, none_ms, some, some_ms, most, most_ms, kib] = in_turns(context, async |time| {
            let none = self
                .book(time, &counting_book(), PAST, PAGES, sizes[0])
                .await?;
            let some = self
                .book(time, &counting_book(), PAST, PAGES, sizes[1])
                .await?;
            let most = self
                .book(time, &counting_book(), PAST, PAGES, sizes[2])
                .await?;
            Ok([
                none.ingest,
                none.snapshot_ms,
                some.ingest,
                some.snapshot_ms,
                most.ingest,
                most.snapshot_ms,
                most.snapshot_kib,
            ])
        })
        .await?;
        let beside = "none";
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let [_, some_are_there, most_are_there] =
            sizes.map(|size| format!("{} clicks in the log", shown(size as f64)));
        Ok(vec![
            figure(
                ("ingest", &some_are_there, "clicks/s"),
                some,
                (beside, &none),
                None,
            ),
            figure(
                ("ingest", &most_are_there, "clicks/s"),
                most,
                (beside, &none),
                Some(INGEST),
            ),
            figure(
                ("snapshot", &some_are_there, "ms"),
                some_ms,
                (beside, &none_ms),
                None,
            ),
            figure(
                ("snapshot", &most_are_there, "ms"),
                most_ms,
                (beside, &none_ms),
                Some(SNAPSHOT),
            ),
            alone(("snapshot", &most_are_there, "KiB"), kib),
        ])
    }

    async fn with_windows(&mut self, context: &Context) -> Result<Vec<Figure>, Error> {
        // The watermark stays an hour behind, so that no window ends.
        let mut book = counting_book();
        book["settings"] = json!({"delay_ms": 3_600_000});
        let [one, one_ms, few_per_kib, many, many_ms, many_per_kib, kib] =
            in_turns(context, async |time| {
                let one = self.book(time, &book, 0, 1, 0).await?;
                let few = self.book(time, &book, OPEN / 10, 1, 0).await?;
                let many = self.book(time, &book, OPEN, 1, 0).await?;
                let per_kib = |m: &Measured| m.snapshot_ms * 1000.0 / m.snapshot_kib;
                Ok([
                    one.ingest,
                    one.snapshot_ms,
                    per_kib(&few),
                    many.ingest,
                    many.snapshot_ms,
                    per_kib(&many),
                    many.snapshot_kib,
                ])
            })
            .await?;
        let open = |windows: i64| {
            let rows = u32::try_from(windows).unwrap_or(u32::MAX) * PAGES;
            format!("{} open windows", shown(f64::from(rows)))
        };
        let (few, many_open) = (open(OPEN / 10), open(OPEN));
        let ingest = ("ingest", many_open.as_str(), "clicks/s");
        let snapshot = |unit| ("snapshot", many_open.as_str(), unit);
        Ok(vec![
            figure(ingest, many, ("1", &one), Some(INGEST)),
            figure(snapshot("ms"), many_ms, ("1", &one_ms), None),
            // Ten times as many are to cost ten times as much at most.
            figure(
                snapshot("µs/KiB"),
                many_per_kib,
                (&few, &few_per_kib),
                Some(SNAPSHOT),
            ),
            alone(snapshot("KiB"), kib),
        ])
    }

    /// Measures a new book with `past` windows before now and so many clicks in its log, into which
    /// clicks on `pages` pages come.
    async fn book(
        &mut self,
        time: Duration,
        body: &Value,
        past: i64,
        pages: u32,
        in_log: u64,
    ) -> Result<Measured, Error> {
        self.books += 1;
        let slug = format!("book-{}", self.books);
        self.server.put_book(&slug, body).await?;
        let sent_before = fill::windows(self.server, &slug, past).await?;
        let mut conn = self.database.connect().await?;
        fill::log(&mut conn, &slug, in_log).await?;
        let books = std::slice::from_ref(&slug);
        let load = Load {
            address: self.server.address.clone(),
            connections: CONNECTIONS,
            mix: Arc::new(Mix::on_pages(pages, 7, &self.token, books, BATCH)),
        };
        let done = load.run(time).await?;
        let snapshots = self.snapshots(&slug, time / 4).await?;
        self.database
            .expect_clicks(in_log + sent_before + done.clicks)
            .await?;
        Ok(Measured {
            ingest: done.rate(),
            ..snapshots
        })
    }

    /// Reads the snapshot of a book again and again.
    async fn snapshots(&self, slug: &str, time: Duration) -> Result<Measured, Error> {
        let request = format!(
            "GET /v1/books/{slug}/snapshot HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {ADMIN}\r\n\r\n"
        );
        let mut stream = TcpStream::connect(&self.server.address).await?;
        stream.set_nodelay(true)?;
        let mut answers = Answers::default();
        let (mut times, mut bytes) = (Samples::default(), 0);
        let end = Instant::now() + time;
        while times.0.is_empty() || Instant::now() < end {
            let begin = Instant::now();
            send(&mut stream, [request.as_bytes(), &[]]).await?;
            bytes = answers.next(&mut stream).await?.accepted()?.body.len();
            times.0.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        #[allow(clippy::cast_precision_loss, reason = "a few megabytes at most")]
        let snapshot_kib = bytes as f64 / 1024.0;
        Ok(Measured {
            ingest: f64::NAN,
            snapshot_ms: times.median(),
            snapshot_kib,
        })
    }
}

/// What was measured where there is something, beside the same where there is nothing.
fn figure(
    (what, there, unit): (&str, &str, &'static str),
    value: Samples,
    (beside, without): (&str, &Samples),
    target: Option<Target>,
) -> Figure {
    Figure {
        beside: Some((beside.to_owned(), without.clone())),
        target,
        ..alone((what, there, unit), value)
    }
}

fn alone((what, there, unit): (&str, &str, &'static str), value: Samples) -> Figure {
    Figure {
        name: format!("growth, {what}, {there}"),
        unit,
        value,
        beside: None,
        target: None,
    }
}
