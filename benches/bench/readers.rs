//! Readers of event streams, many thousands of them, as cheap as they can be: they run on the cores
//! that are measured.
//!
//! A few threads, a task for each connection, one buffer for all connections of a thread. Only the
//! heads of lines are looked at; nothing is kept of a frame but its position and when it came.

mod crew;
mod seat;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crew::{Crew, Orders};
use seat::Seat;

pub(crate) use seat::Dialect;

/// How often those who wait look.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a reader asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The request, whole.
    pub(crate) request: Arc<str>,
    /// The position that it goes on after, if it says so.
    pub(crate) cursor: Option<i64>,
}

/// The request for the stream at `path`.
pub(crate) fn request(address: &str, path: &str, headers: &str) -> Arc<str> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{headers}\r\n")
        .into()
}

/// A frame that a reader got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) position: i64,
    /// Since the readers were sent off.
    pub(crate) after: Duration,
}

/// What readers got so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    /// Streams that were answered.
    pub(crate) opened: usize,
    /// Streams that ended, or could not be opened.
    pub(crate) ended: usize,
    /// Frames that have a position of their own.
    pub(crate) frames: u64,
    /// Positions that were left out without a word.
    pub(crate) missed: u64,
    /// Frames whose position is not above that of the frame before.
    pub(crate) doubled: u64,
    /// How often a reader was told that it cannot have what it wants.
    pub(crate) resyncs: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.ended += other.ended;
        self.frames += other.frames;
        self.missed += other.missed;
        self.doubled += other.doubled;
        self.resyncs += other.resyncs;
    }
}

/// Readers, until they are dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    crews: Vec<Crew>,
    number: usize,
    /// When they were sent off.
    pub(crate) begin: Instant,
    stop: CancellationToken,
}

impl Readers {
    /// Sends them off, `at_once` of them connecting at a time.
    pub(crate) fn send_off(
        address: &str,
        dialect: Dialect,
        wanted: Vec<Wanted>,
        at_once: usize,
    ) -> Result<Self, Error> {
        let begin = Instant::now();
        let stop = CancellationToken::new();
        let number = wanted.len();
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let mut shares: Vec<Vec<Wanted>> = vec![Vec::new(); threads];
        for (place, wanted) in wanted.into_iter().enumerate() {
            shares[place % threads].push(wanted);
        }
        let crews = shares.into_iter().map(|wanted| {
            let orders = Orders {
                address: address.to_owned(),
                dialect,
                wanted,
                at_once: at_once.div_ceil(threads),
                begin,
            };
            Crew::send_off(orders, stop.clone())
        });
        Ok(Self {
            crews: crews.collect::<Result<_, Error>>()?,
            number,
            begin,
            stop,
        })
    }

    /// How many they are.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Waits until all streams are answered.
    pub(crate) async fn opened(&self, patience: Duration) -> Result<(), Error> {
        let all = |tally: &Tally| tally.opened == self.number;
        if !self.wait(patience, all).await? {
            let opened = self.tally().opened;
            return Err(format!("only {opened} of {} streams were opened", self.number).into());
        }
        Ok(())
    }

    /// Waits until every reader has come to `position`; gives whether that was in time.
    pub(crate) async fn came_to(&self, position: i64, patience: Duration) -> Result<bool, Error> {
        let there = |seat: &Seat| seat.position() >= Some(position);
        let all = |_: &Tally| {
            self.crews
                .iter()
                .all(|crew| crew.seen().seats.iter().all(there))
        };
        self.wait(patience, all).await
    }

    /// Waits until all of them together have got this many frames; gives whether that was in time.
    pub(crate) async fn got(&self, frames: u64, patience: Duration) -> Result<bool, Error> {
        self.wait(patience, |tally| tally.frames >= frames).await
    }

    /// Where each of them is, as far as it knows, in the order in which they were sent off.
    pub(crate) fn positions(&self) -> Vec<Option<i64>> {
        let crews = self.crews.len();
        let position = |reader: usize| {
            let crew = &self.crews[reader % crews];
            crew.seen().seats[reader / crews].position()
        };
        (0..self.number).map(position).collect()
    }

    async fn wait(
        &self,
        patience: Duration,
        until: impl Fn(&Tally) -> bool,
    ) -> Result<bool, Error> {
        let begin = Instant::now();
        loop {
            let tally = self.tally();
            if until(&tally) {
                return Ok(true);
            }
            if tally.ended > 0 {
                let complaints = self
                    .crews
                    .iter()
                    .find_map(|crew| crew.seen().complaint.clone());
                let complaint = complaints.unwrap_or_default();
                return Err(format!("{} streams ended: {complaint}", tally.ended).into());
            }
            if begin.elapsed() > patience {
                return Ok(false);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What they got so far.
    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for crew in &self.crews {
            tally.add(&crew.seen().tally);
        }
        tally
    }

    /// From now on, keeps when each frame came.
    pub(crate) fn note_arrivals(&self) {
        for crew in &self.crews {
            crew.seen().arrivals = Some(Vec::with_capacity(1 << 20));
        }
    }

    /// The frames that came since; no more are kept.
    pub(crate) fn take_arrivals(&self) -> Vec<Arrival> {
        let taken = self.crews.iter().map(|crew| crew.seen().arrivals.take());
        taken.flatten().flatten().collect()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.cancel();
        self.crews.iter_mut().for_each(Crew::join);
    }
}
