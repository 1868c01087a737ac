//! Fan-out: many readers of one book, a hundred frames a second; beside nchan with the same readers
//! and the same bytes, in turns.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Error;
use crate::context::Context;
use crate::http::{Client, number_after};
use crate::limits::allow_open_files;
use crate::pace::steadily;
use crate::peers::nchan::{self, Nchan};
use crate::readers::{Arrival, Dialect, Readers, Tally};
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server, counting_book};

/// From few to more than the machine can serve.
const READERS: [usize; 3] = [100, 1_000, 5_000];

/// What is below this is there to show how the cost grows.
const MANY: usize = 1_000;

/// Frames a second.
const RATE: f64 = 100.0;

/// Connections that publish: as many messages may wait for an answer.
const PUBLISHERS: usize = 16;

/// Clicks in a frame, each on another page.
const CLICKS: usize = 5;

/// Pages of the book.
const PAGES: usize = 200;

/// How many readers connect at a time.
const AT_ONCE: usize = 64;

/// How long stragglers are waited for.
const PATIENCE: Duration = Duration::from_mins(2);

const CHANNEL: &str = "bench";

/// Measures all numbers of readers.
pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let most = READERS.iter().max().copied().unwrap_or(0);
    allow_open_files(2 * most as u64 + 1_000)?;
    let database = Database::start(context).await?;
    let mut figures = Vec::new();
    for readers in READERS {
        figures.extend(with(context, &database, readers).await?);
    }
    database.stop().await?;
    Ok(figures)
}

async fn with(
    context: &Context,
    database: &Database,
    readers: usize,
) -> Result<Vec<Figure>, Error> {
    let server = Server::start(database, &[]).await?;
    let book = format!("fan-out-{readers}");
    let made = server.put_book(&book, &counting_book()).await?;
    let ours = Hub::Ours {
        server: &server,
        database,
        path: format!("/v1/books/{book}/clicks"),
        next_page: Cell::new(0),
    };
    let mut ours = Side {
        clients: server.clients(PUBLISHERS).await?,
        hub: ours,
    };
    ours.warm_up(context).await?;
    let before = ours.hub.memory()?;

    let peer = Nchan::start(context, readers).await?;
    let theirs = Hub::Nchan {
        nchan: &peer,
        path: Nchan::publish_path(CHANNEL),
        messages: frames(database, made["id"].as_str().unwrap_or_default()).await?,
        sent: Cell::new(0),
    };
    let mut theirs = Side {
        clients: Client::several(&peer.address, nchan::HEADERS, PUBLISHERS).await?,
        hub: theirs,
    };
    theirs.warm_up(context).await?;
    let peer_before = theirs.hub.memory()?;

    let follow = server.follow(&book, None);
    let following = Readers::send_off(
        &server.address,
        Dialect::Ours,
        vec![follow; readers],
        AT_ONCE,
    )?;
    following.opened(PATIENCE).await?;
    let peer_following = Readers::send_off(
        &peer.address,
        Dialect::Nchan,
        vec![peer.follow(CHANNEL); readers],
        AT_ONCE,
    )?;
    peer_following.opened(PATIENCE).await?;

    let (mut turns, mut peer_turns) = (Turns::default(), Turns::default());
    for _ in 0..context.runs {
        turns.take(&ours.turn(context, &following, before).await?);
        let turn = theirs.turn(context, &peer_following, peer_before).await?;
        peer_turns.take(&turn);
    }
    let tally = following.tally();
    check(&tally)?;
    drop((following, peer_following));
    peer.stop().await?;
    server.stop().await?;
    Ok(figures(readers, &turns, &peer_turns, &tally))
}

/// No frame was lost or sent twice; a reader that cannot have one is told so.
fn check(tally: &Tally) -> Result<(), Error> {
    if tally.doubled > 0 || tally.missed > 0 {
        return Err(format!("frames were lost or sent twice: {tally:?}").into());
    }
    Ok(())
}

/// The newest frames of a book, for others to send.
async fn frames(database: &Database, book: &str) -> Result<Vec<String>, Error> {
    let frames = sqlx::query_scalar(
        "SELECT data FROM frames WHERE book_id = $1::uuid AND event = 'counts' ORDER BY position",
    );
    let frames: Vec<String> = frames
        .bind(book)
        .fetch_all(&mut database.connect().await?)
        .await?;
    if frames.is_empty() {
        return Err("the book has no frames".into());
    }
    Ok(frames)
}

/// What hands frames to readers.
enum Hub<'a> {
    Ours {
        server: &'a Server,
        database: &'a Database,
        path: String,
        next_page: Cell<usize>,
    },
    Nchan {
        nchan: &'a Nchan,
        path: String,
        messages: Vec<String>,
        sent: Cell<u32>,
    },
}

/// Time on a processor: of what serves the readers, and together with the database.
#[derive(Clone, Copy)]
struct Busy {
    serving: Duration,
    all: Duration,
}

impl Hub<'_> {
    /// Publishes a frame; gives its position.
    async fn publish(&self, client: &mut Client) -> Result<i64, Error> {
        match self {
            Self::Ours {
                path, next_page, ..
            } => {
                let first = next_page.get();
                next_page.set((first + CLICKS) % PAGES);
                let click = |page: usize| format!(r#"{{"page":"/page-{page}"}}"#);
                let clicks: Vec<String> = (first..first + CLICKS).map(click).collect();
                let body = format!("[{}]", clicks.join(","));
                let receipt = client.send("POST", path, body.as_bytes()).await?;
                let position = number_after(receipt, b"\"position\":");
                Ok(position.ok_or("a receipt without a position")?)
            }
            Self::Nchan {
                path,
                messages,
                sent,
                ..
            } => {
                let number = sent.get() + 1;
                sent.set(number);
                let message = &messages[number as usize % messages.len()];
                let message = numbered(message, number).ok_or("a frame without a position")?;
                client.send("POST", path, message.as_bytes()).await?;
                Ok(i64::from(number))
            }
        }
    }

    fn busy(&self) -> Result<Busy, Error> {
        match self {
            Self::Ours {
                server, database, ..
            } => {
                let serving = server.usage()?.busy;
                let all = serving + database.usage()?.busy;
                Ok(Busy { serving, all })
            }
            Self::Nchan { nchan, .. } => {
                let serving = nchan.usage()?.busy;
                Ok(Busy {
                    serving,
                    all: serving,
                })
            }
        }
    }

    fn memory(&self) -> Result<u64, Error> {
        match self {
            Self::Ours { server, .. } => server.memory(),
            Self::Nchan { nchan, .. } => nchan.memory(),
        }
    }
}

/// The frame with another position.
fn numbered(frame: &str, number: u32) -> Option<String> {
    let (before, rest) = frame.split_once("\"position\":")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    Some(format!("{before}\"position\":{number}{}", &rest[end..]))
}

/// A hub, and those who publish.
struct Side<'a> {
    clients: Vec<Client>,
    hub: Hub<'a>,
}

/// What a turn measured.
struct Turn {
    /// Frames that were published, a second.
    published: f64,
    /// Of what would have been delivered, had all readers got all of it at last.
    arrived: f64,
    delivered_by_serving: f64,
    delivered_by_all: f64,
    memory: f64,
    latency_ms: f64,
}

impl Side<'_> {
    /// Publishes for nobody, so that what memory this takes is taken.
    async fn warm_up(&mut self, context: &Context) -> Result<(), Error> {
        let until = Instant::now() + context.warm_up;
        let publish = async |client: &mut Client| self.hub.publish(client).await.map(drop);
        let goes_on = || Instant::now() < until;
        steadily(&mut self.clients, RATE, goes_on, publish).await
    }

    /// Publishes for `readers`, and measures once that is under way.
    async fn turn(
        &mut self,
        context: &Context,
        readers: &Readers,
        memory_before: u64,
    ) -> Result<Turn, Error> {
        let hub = &self.hub;
        // The commit of several requests is one frame: it counts from the first of them.
        let sent: RefCell<HashMap<i64, Instant>> = RefCell::default();
        let publish = async |client: &mut Client| {
            let at = Instant::now();
            let position = hub.publish(client).await?;
            let mut sent = sent.borrow_mut();
            let first = sent.entry(position).or_insert(at);
            *first = at.min(*first);
            Ok(())
        };
        let mark = || -> Result<(Instant, u64, Busy), Error> {
            Ok((Instant::now(), readers.tally().frames, hub.busy()?))
        };
        let until = Instant::now() + context.warm_up + context.run;
        readers.note_arrivals();
        let goes_on = || Instant::now() < until;
        let publishing = steadily(&mut self.clients, RATE, goes_on, publish);
        let measuring = async {
            tokio::time::sleep(context.warm_up).await;
            let begin = mark()?;
            tokio::time::sleep_until(until.into()).await;
            Ok((begin, mark()?, hub.memory()?))
        };
        let ((), (begin, end, memory)) = tokio::try_join!(publishing, measuring)?;
        let last = sent.borrow().keys().max().copied().unwrap_or(0);
        readers.came_to(last, PATIENCE).await?;
        let arrivals = readers.take_arrivals();

        let mut sent = sent.into_inner();
        sent.retain(|_, at| (begin.0..end.0).contains(at));
        let latencies = latencies(&sent, &arrivals, readers.begin)?;
        let share = latencies.len() as f64 / (sent.len() * readers.number()) as f64;
        let delivered = (end.1 - begin.1) as f64;
        let cost =
            |of: fn(&Busy) -> Duration| of(&end.2).saturating_sub(of(&begin.2)).as_secs_f64();
        let grown = memory.saturating_sub(memory_before) as f64;
        Ok(Turn {
            published: sent.len() as f64 / (end.0 - begin.0).as_secs_f64(),
            arrived: share,
            delivered_by_serving: delivered / cost(|busy| busy.serving),
            delivered_by_all: delivered / cost(|busy| busy.all),
            memory: grown / 1024.0 / readers.number() as f64,
            latency_ms: latencies.value_at_quantile(0.99) as f64 / 1000.0,
        })
    }
}

/// From when a frame was sent to when each reader had it, in microseconds.
fn latencies(
    sent: &HashMap<i64, Instant>,
    arrivals: &[Arrival],
    begin: Instant,
) -> Result<Histogram<u64>, Error> {
    let mut latencies = Histogram::new(3)?;
    for arrival in arrivals {
        if let Some(sent) = sent.get(&arrival.position) {
            let late = (begin + arrival.after).saturating_duration_since(*sent);
            latencies.record(u64::try_from(late.as_micros())?)?;
        }
    }
    Ok(latencies)
}

#[derive(Default)]
struct Turns {
    published: Samples,
    arrived: Samples,
    delivered_by_serving: Samples,
    delivered_by_all: Samples,
    memory: Samples,
    latency_ms: Samples,
}

impl Turns {
    fn take(&mut self, turn: &Turn) {
        self.published.0.push(turn.published);
        self.arrived.0.push(turn.arrived * 100.0);
        self.delivered_by_serving.0.push(turn.delivered_by_serving);
        self.delivered_by_all.0.push(turn.delivered_by_all);
        self.memory.0.push(turn.memory);
        self.latency_ms.0.push(turn.latency_ms);
    }
}

fn figures(readers: usize, ours: &Turns, theirs: &Turns, tally: &Tally) -> Vec<Figure> {
    let figure = |what: &str, unit, of: fn(&Turns) -> &Samples, target: Option<Target>| Figure {
        name: format!("fan-out, {readers} readers: {what}"),
        unit,
        value: of(ours).clone(),
        beside: Some(("nchan".to_owned(), of(theirs).clone())),
        target: target.filter(|_| readers >= MANY),
    };
    let least = Some(Target::RatioAtLeast(1.0));
    let most = Some(Target::RatioAtMost(1.0));
    vec![
        figure(
            "frames a CPU-second",
            "frames",
            |t| &t.delivered_by_serving,
            least,
        ),
        figure(
            "the same with Postgres",
            "frames",
            |t| &t.delivered_by_all,
            None,
        ),
        figure("memory a reader", "KiB", |t| &t.memory, most),
        figure("p99 from request to reader", "ms", |t| &t.latency_ms, most),
        figure(
            "frames published a second",
            "frames",
            |t| &t.published,
            None,
        ),
        figure("of them arrived", "%", |t| &t.arrived, None),
        Figure {
            name: format!("fan-out, {readers} readers: told that frames are gone"),
            unit: "times",
            value: Samples(vec![tally.resyncs as f64]),
            beside: None,
            target: None,
        },
    ]
}
