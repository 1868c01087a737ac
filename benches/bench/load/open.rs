//! A load whose requests come at moments that were fixed before, however long the answers take; and
//! latency is counted from these moments, so that a server which keeps clients waiting is not spared
//! what they would have sent meanwhile.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{IoSlice, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, channel};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::answers::Answers;
use super::apart;
use super::mix::Mix;
use crate::Error;

/// How long the next answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who sends what to whom, and how often.
#[derive(Clone)]
pub(crate) struct OpenLoad {
    /// Host and port.
    pub(crate) address: String,
    /// At most so many requests are under way; what is due beyond that waits, and its latency grows.
    pub(crate) connections: usize,
    pub(crate) mix: Arc<Mix>,
    /// Requests a second, on average; the gaps between them are drawn from an exponential
    /// distribution, as those of many senders who know nothing of each other are.
    pub(crate) rate: f64,
}

/// A click that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// When it was to be sent.
    pub(crate) due: Instant,
    /// When its receipt was there.
    pub(crate) at: Instant,
    /// What the receipt says.
    pub(crate) position: i64,
}

#[derive(Deserialize)]
struct Receipt {
    position: i64,
}

impl OpenLoad {
    /// Sends for this long, and waits for the last answers. Fails if one is not a 200.
    pub(crate) async fn run(&self, time: Duration, seed: u64) -> Result<Vec<Acknowledged>, Error> {
        let load = self.clone();
        apart(move || async move { load.run_here(time, seed).await }).await
    }

    async fn run_here(&self, time: Duration, seed: u64) -> Result<Vec<Acknowledged>, Error> {
        let epoch = Instant::now();
        let (back, backs) = channel();
        let mut readers = JoinSet::new();
        let mut lines = Vec::with_capacity(self.connections);
        for place in 0..self.connections {
            let sending = std::net::TcpStream::connect(&self.address)?;
            sending.set_nodelay(true)?;
            sending.set_nonblocking(true)?;
            let due_ns = Arc::new(AtomicU64::new(0));
            let reader = Reader {
                place,
                reading: TcpStream::from_std(sending.try_clone()?)?,
                epoch,
                due_ns: Arc::clone(&due_ns),
                back: back.clone(),
            };
            lines.push(Line { sending, due_ns });
            readers.spawn(reader.run());
        }
        let sender = Sender {
            free: (0..self.connections).collect(),
            lines,
            epoch,
            backs,
            acknowledged: Vec::new(),
        };
        let load = self.clone();
        // The runtime's clock knows milliseconds only; a thread that sleeps is finer.
        let sending = tokio::task::spawn_blocking(move || sender.run(&load, time, seed));
        tokio::select! {
            sent = sending => sent?,
            Some(failed) = readers.join_next() => match failed? {
                Err(error) => Err(error),
                Ok(never) => match never {},
            },
        }
    }
}

/// One connection, as the sender has it.
struct Line {
    sending: std::net::TcpStream,
    /// When the request under way was to be sent, counted from the epoch of the load.
    due_ns: Arc<AtomicU64>,
}

/// One connection, as its reader has it.
struct Reader {
    place: usize,
    reading: TcpStream,
    epoch: Instant,
    due_ns: Arc<AtomicU64>,
    back: mpsc::Sender<(usize, Acknowledged)>,
}

impl Reader {
    /// Reads answers, and gives the connection back after each.
    async fn run(mut self) -> Result<Infallible, Error> {
        let mut answers = Answers::default();
        loop {
            let answer = answers.next(&mut self.reading).await?.accepted()?;
            let at = Instant::now();
            let receipt: Receipt = serde_json::from_slice(answer.body)?;
            let due_ns = self.due_ns.load(Ordering::Acquire);
            let acknowledged = Acknowledged {
                due: self.epoch + Duration::from_nanos(due_ns),
                at,
                position: receipt.position,
            };
            self.back.send((self.place, acknowledged))?;
        }
    }
}

/// Sends what is due, on whichever connection is free.
struct Sender {
    /// The one that has been free for longest is taken first.
    free: VecDeque<usize>,
    lines: Vec<Line>,
    epoch: Instant,
    backs: Receiver<(usize, Acknowledged)>,
    acknowledged: Vec<Acknowledged>,
}

impl Sender {
    fn run(
        mut self,
        load: &OpenLoad,
        time: Duration,
        seed: u64,
    ) -> Result<Vec<Acknowledged>, Error> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut due = Instant::now();
        let end = due + time;
        loop {
            let gap = -(1.0 - rng.random::<f64>()).ln() / load.rate;
            due += Duration::from_secs_f64(gap);
            if due > end {
                break;
            }
            // Nothing is waited for where it is late already.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let line = self.free_line()?;
            let since_epoch = due - self.epoch;
            let due_ns = u64::try_from(since_epoch.as_nanos())?;
            self.lines[line].due_ns.store(due_ns, Ordering::Release);
            let request = load.mix.draw(&mut rng);
            let parts = request.map(IoSlice::new);
            // A connection on which nothing is under way takes a small request at once.
            let written = self.lines[line].sending.write_vectored(&parts)?;
            if written < request.iter().map(|part| part.len()).sum() {
                return Err("a request did not fit into a socket".into());
            }
        }
        while self.free.len() < self.lines.len() {
            self.wait()?;
        }
        Ok(self.acknowledged)
    }

    fn free_line(&mut self) -> Result<usize, Error> {
        while let Ok(back) = self.backs.try_recv() {
            self.take_back(back);
        }
        loop {
            if let Some(line) = self.free.pop_front() {
                return Ok(line);
            }
            self.wait()?;
        }
    }

    fn wait(&mut self) -> Result<(), Error> {
        let back = self.backs.recv_timeout(PATIENCE)?;
        self.take_back(back);
        Ok(())
    }

    fn take_back(&mut self, (line, acknowledged): (usize, Acknowledged)) {
        self.free.push_back(line);
        self.acknowledged.push(acknowledged);
    }
}
