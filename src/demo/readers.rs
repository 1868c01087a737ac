//! Readers, made up: they come, read chapter after chapter, and leave. Which ones, a seed says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::book::PAGES;

/// Mean time between two who come, in milliseconds.
const BETWEEN_READERS_MS: f64 = 1000.0;

/// A page is read for this long at least, and for up to twice [`READING_SPREAD_MS`] longer.
const READING_MS: u64 = 3000;
const READING_SPREAD_MS: u64 = 5000;

/// Whoever sits in a train has nothing else to do.
const CARRIAGE_READING_MS: u64 = 1500;
const CARRIAGE_SPREAD_MS: u64 = 1000;

/// How many are there already when one begins to look.
const PRESENT: u32 = 24;

/// How many sit in the carriage.
const CARRIAGE: u32 = 8;

/// Where they come from; most come from nowhere in particular.
const REFERRERS: [&str; 3] = [
    "https://search.example/?q=counting",
    "https://news.example/item/17",
    "https://forum.example/books",
];

/// A page opened by a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// When, in milliseconds since they began.
    pub(crate) at_ms: u64,
    /// Who: the number of the reader, from 0.
    pub(crate) reader: u32,
    /// The page, as it is counted.
    pub(crate) page: String,
    /// Where the reader came from.
    pub(crate) referrer: Option<&'static str>,
}

/// Readers, and what they do next.
#[derive(Debug)]
pub(crate) struct Readers {
    rng: StdRng,
    /// When the next one comes; `None`: all are here.
    next_arrival_ms: Option<u64>,
    known: u32,
    /// (when, who, which page), the earliest first.
    turns: BinaryHeap<Reverse<(u64, u32, usize)>>,
    /// Least time on a page, and half the most that is added.
    pace: (u64, u64),
}

impl Readers {
    /// Some who are in the middle of the book, and others who come one after the other, for as long
    /// as anybody asks.
    pub(crate) fn passing(seed: u64) -> Self {
        let mut passing = Self::nobody(seed, Some(0), (READING_MS, READING_SPREAD_MS));
        passing.sit_down(PRESENT, READING_MS + READING_SPREAD_MS);
        passing
    }

    /// A carriage full of them, who read until they have read everything, and then begin anew.
    pub(crate) fn carriage(seed: u64) -> Self {
        let mut carriage = Self::nobody(seed, None, (CARRIAGE_READING_MS, CARRIAGE_SPREAD_MS));
        carriage.sit_down(CARRIAGE, 0);
        carriage
    }

    fn nobody(seed: u64, next_arrival_ms: Option<u64>, pace: (u64, u64)) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            next_arrival_ms,
            known: 0,
            turns: BinaryHeap::new(),
            pace,
        }
    }

    /// So many are there, each of whom opens any page within `by_ms`.
    fn sit_down(&mut self, readers: u32, by_ms: u64) {
        for reader in 0..readers {
            let at_ms = self.rng.random_range(0..=by_ms);
            let page = self.rng.random_range(0..PAGES.len());
            self.turns.push(Reverse((at_ms, reader, page)));
        }
        self.known = readers;
    }

    /// What they have done up to `now_ms` and was not told yet, in order.
    pub(crate) fn until(&mut self, now_ms: u64) -> Vec<Turn> {
        let mut done = Vec::new();
        loop {
            let turn = self.turns.peek().map(|Reverse((at, ..))| *at);
            let arrival = self.next_arrival_ms;
            let next = [turn, arrival].into_iter().flatten().min();
            if next.is_none_or(|next| next > now_ms) {
                return done;
            }
            if arrival == next {
                done.extend(arrival.map(|at_ms| self.arrive(at_ms)));
            } else if let Some(Reverse((at_ms, reader, page))) = self.turns.pop() {
                done.push(self.turn(at_ms, reader, page, None));
            }
        }
    }

    fn arrive(&mut self, at_ms: u64) -> Turn {
        let reader = self.known;
        self.known += 1;
        // Exponential gaps: nobody knows of anybody.
        let gap = -(1.0 - self.rng.random::<f64>()).ln() * BETWEEN_READERS_MS;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most some forty seconds"
        )]
        let gap = gap as u64;
        self.next_arrival_ms = Some(at_ms + gap);
        let page = match self.rng.random_range(0..100) {
            0..60 => 0,
            _ => self.rng.random_range(0..PAGES.len()),
        };
        let referrer = self.rng.random_range(0..REFERRERS.len() * 2);
        self.turn(at_ms, reader, page, REFERRERS.get(referrer).copied())
    }

    /// The reader opens the page, and goes on to another, or away, once it is read.
    fn turn(&mut self, at_ms: u64, reader: u32, page: usize, from: Option<&'static str>) -> Turn {
        let (least, spread) = self.pace;
        let once_more = |rng: &mut StdRng| rng.random_range(0..=spread);
        let read_ms = least + once_more(&mut self.rng) + once_more(&mut self.rng);
        let next = match self.rng.random_range(0..100) {
            _ if self.next_arrival_ms.is_none() => Some((page + 1) % PAGES.len()),
            0..72 if page + 1 < PAGES.len() => Some(page + 1),
            72..82 if page > 0 => Some(0),
            _ => None,
        };
        if let Some(next) = next {
            self.turns.push(Reverse((at_ms + read_ms, reader, next)));
        }
        let page = PAGES[page].counted_as();
        Turn {
            at_ms,
            reader,
            page,
            referrer: from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_brings_the_same_readers_however_often_one_looks() {
        let at_once = Readers::passing(7).until(600_000);
        let mut readers = Readers::passing(7);
        let piecewise: Vec<Turn> = (0..=6000).flat_map(|n| readers.until(n * 100)).collect();
        assert_eq!(at_once, piecewise);
        assert_ne!(at_once, Readers::passing(8).until(600_000));
        assert!(at_once.is_sorted_by_key(|turn| turn.at_ms));
    }

    #[test]
    fn a_few_pages_a_second_are_read() {
        let turns = Readers::passing(1).until(600_000);
        assert!((1200..3600).contains(&turns.len()), "{}", turns.len());
        let first = turns.iter().filter(|turn| turn.page == "/").count();
        assert!(first > 100 && first < turns.len(), "{first}");
    }

    #[test]
    fn a_carriage_reads_from_the_beginning_of_the_tunnel_on() {
        let turns = Readers::carriage(1).until(20_000);
        assert_eq!(turns.iter().filter(|turn| turn.at_ms == 0).count(), 8);
        assert!(turns.len() > 40, "{}", turns.len());
        assert!(turns.iter().all(|turn| turn.reader < CARRIAGE));
    }
}
