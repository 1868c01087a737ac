//! A book takes five thousand clicks a second; a reader that was away comes back with the last id
//! that it saw. The buffer should still hold what it needs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::time::sleep_until;

use crate::Error;
use crate::context::Context;
use crate::http::{Client, number_after};
use crate::pace::steadily;
use crate::readers::{Dialect, Readers};
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server, counting_book};

const BOOK: &str = "horizon";

/// Clicks a second, each a request of its own.
const RATE: f64 = 5_000.0;

/// Connections that send them.
const CLIENTS: usize = 64;

/// Pages of the book.
const PAGES: usize = 200;

/// Readers leave one after the other, so that each finds another moment.
const APART: Duration = Duration::from_secs(1);

/// How long a reader may take to get what it missed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures as many readers as other cases have runs, all under the same load.
pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let away = Duration::from_secs(if context.quick { 10 } else { 30 });
    let database = Database::start(context).await?;
    let server = Server::start(&database, &[]).await?;
    let made = server.put_book(BOOK, &counting_book()).await?;
    let scene = Scene {
        server: &server,
        database: &database,
        book: made["id"].as_str().unwrap_or_default(),
    };
    let readers = u32::try_from(context.runs)?;
    let begin = Instant::now() + context.warm_up;
    let clients = server.clients(CLIENTS).await?;
    let done = Cell::new(false);
    let coming_back = async {
        let each = (0..readers).map(|reader| {
            let leaves = begin + APART * reader;
            scene.away(leaves, leaves + away)
        });
        let returns = try_join_all(each).await;
        done.set(true);
        returns
    };
    let ((), returns) = tokio::try_join!(click(clients, &done), coming_back)?;
    server.stop().await?;
    database.stop().await?;
    Ok(figures(away, &returns))
}

/// Sends clicks, one a request, until that is `done`.
async fn click(mut clients: Vec<Client>, done: &Cell<bool>) -> Result<(), Error> {
    let path = format!("/v1/books/{BOOK}/clicks");
    let page = Cell::new(0);
    let one = async |client: &mut Client| {
        page.set((page.get() + 1) % PAGES);
        let click = format!(r#"{{"page":"/page-{}"}}"#, page.get());
        client.send("POST", &path, click.as_bytes()).await?;
        Ok(())
    };
    steadily(&mut clients, RATE, || !done.get(), one).await
}

/// Where it happens.
#[derive(Clone, Copy)]
struct Scene<'a> {
    server: &'a Server,
    database: &'a Database,
    book: &'a str,
}

/// How a book stood.
struct Standing {
    at: Instant,
    position: i64,
    clicks: i64,
}

/// What a reader found when it came back.
struct Return {
    resyncs: f64,
    /// Frames a second while it was away.
    minted: f64,
    /// Clicks a second.
    clicks: f64,
    /// From the oldest frame in the buffer to the newest, in seconds.
    reach: f64,
    frames: f64,
    caught_up_ms: f64,
}

impl Scene<'_> {
    /// One reader: it leaves, and comes back.
    async fn away(self, leaves: Instant, returns: Instant) -> Result<Return, Error> {
        sleep_until(leaves.into()).await;
        let reader = self.reader(None)?;
        reader.opened(PATIENCE).await?;
        let before = self.standing().await?;
        if !reader.came_to(before.position, PATIENCE).await? {
            return Err("a reader got no frames".into());
        }
        let cursor = reader.positions()[0];
        drop(reader);

        sleep_until(returns.into()).await;
        let reach = self.reach().await?;
        let reader = self.reader(cursor)?;
        reader.note_arrivals();
        reader.opened(PATIENCE).await?;
        let now = self.standing().await?;
        if !reader.came_to(now.position, PATIENCE).await? {
            return Err("a reader did not catch up".into());
        }
        let tally = reader.tally();
        if tally.doubled > 0 {
            return Err("a frame was sent twice".into());
        }
        let arrivals = reader.take_arrivals();
        let mut arrivals = arrivals.iter().filter(|a| a.position <= now.position);
        let caught_up = arrivals.next_back().map(|a| a.after).unwrap_or_default();
        let seconds = (now.at - before.at).as_secs_f64();
        Ok(Return {
            resyncs: tally.resyncs as f64,
            minted: (now.position - before.position) as f64 / seconds,
            clicks: (now.clicks - before.clicks) as f64 / seconds,
            reach,
            frames: tally.frames as f64,
            caught_up_ms: caught_up.as_secs_f64() * 1000.0,
        })
    }

    fn reader(self, cursor: Option<i64>) -> Result<Readers, Error> {
        let wanted = vec![self.server.follow(BOOK, cursor)];
        Readers::send_off(&self.server.address, Dialect::Ours, wanted, 1)
    }

    async fn standing(self) -> Result<Standing, Error> {
        let mut client = self.server.clients(1).await?;
        let path = format!("/v1/books/{BOOK}");
        let book = client[0].send("GET", &path, b"").await?;
        let number = |name: &str| number_after(book, name.as_bytes());
        Ok(Standing {
            at: Instant::now(),
            position: number("\"position\":").ok_or("a book without a position")?,
            clicks: number("\"received\":").ok_or("a book without totals")?,
        })
    }

    /// Over how many seconds the frames in the buffer are spread.
    async fn reach(self) -> Result<f64, Error> {
        let reach = sqlx::query_scalar(
            "SELECT extract(epoch FROM max(at) - min(at))::float8
             FROM (SELECT (data::json->>'at')::timestamptz AS at FROM frames
                   WHERE book_id = $1::uuid) f",
        );
        let mut conn = self.database.connect().await?;
        Ok(reach.bind(self.book).fetch_one(&mut conn).await?)
    }
}

fn figures(away: Duration, returns: &[Return]) -> Vec<Figure> {
    let name = format!(
        "a reader away for {} s from a book with {RATE} clicks a second",
        away.as_secs()
    );
    let samples = |of: fn(&Return) -> f64| Samples(returns.iter().map(of).collect());
    let stated = |what: &str, unit, of: fn(&Return) -> f64| Figure {
        name: format!("{name}: {what}"),
        unit,
        value: samples(of),
        beside: None,
        target: None,
    };
    vec![
        Figure {
            name: format!("{name}: resyncs, of {} readers", returns.len()),
            unit: "resyncs",
            value: Samples(vec![samples(|r| r.resyncs).0.iter().sum()]),
            beside: None,
            target: Some(Target::ValueAtMost(0.0)),
        },
        stated("clicks counted a second", "clicks", |r| r.clicks),
        stated("frames minted a second", "frames", |r| r.minted),
        Figure {
            beside: Some(("away".to_owned(), Samples(vec![away.as_secs_f64()]))),
            ..stated("the buffer reaches back", "s", |r| r.reach)
        },
        stated("frames that it then got", "frames", |r| r.frames),
        stated("until it had caught up", "ms", |r| r.caught_up_ms),
    ]
}
