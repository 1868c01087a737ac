//! What a round does, all of it drawn from its seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// A round.
#[derive(Debug)]
pub(super) struct Plan {
    /// One or two; whether each has a spool.
    pub(super) spools: Vec<bool>,
    pub(super) lanes: usize,
    /// How slow the line to Postgres is; without it, they reach it through a socket.
    pub(super) line: Option<Duration>,
    pub(super) shape: Shape,
    pub(super) writers: Vec<Writing>,
    pub(super) readers: Vec<Reading>,
    pub(super) faults: Vec<Fault>,
}

/// The book.
#[derive(Debug)]
pub(super) struct Shape {
    /// Some are so small that none is merged; the largest holds all that a round mints.
    pub(super) buffer_frames: i64,
    pub(super) pages: usize,
    /// Each has every so many-th page; the last ones are in none.
    pub(super) chapters: usize,
    pub(super) size_ms: i64,
    pub(super) gap_ms: i64,
    /// The watermark stays so far behind: what it has passed is counted late, nothing is dropped.
    pub(super) delay_ms: i64,
}

/// A writer.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) seed: u64,
    pub(super) biggest_batch: usize,
    /// How many of a hundred batches hold clicks that were acknowledged before.
    pub(super) repeats: u32,
    /// How many of a hundred are sent twice at the same time.
    pub(super) twice: u32,
    /// How many of a hundred are given up if they are not acknowledged at once.
    pub(super) gives_up: u32,
    /// How far the time of its clicks moves with each batch.
    pub(super) step_ms: i64,
    /// How long answers are on their way; those of a server that is killed meanwhile are lost.
    pub(super) latency: Duration,
    /// Between two batches.
    pub(super) pause: Duration,
}

/// A reader.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// Whether it is the client of others.
    pub(super) by_client: bool,
    /// Begins when so many clicks are acknowledged.
    pub(super) joins_after: usize,
}

/// Something is killed, and comes back.
#[derive(Debug)]
pub(super) struct Fault {
    /// After so many more clicks were acknowledged.
    pub(super) after: usize,
    /// What is done, and how long after what was done before.
    pub(super) hits: Vec<(Duration, Hit)>,
    /// How long Postgres is away, or the servers if it is not.
    pub(super) away: Duration,
    /// Whether the servers are started before Postgres is there, as a supervisor would: again and
    /// again.
    pub(super) servers_first: bool,
}

/// What is done to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hit {
    /// `kill -9` of a server.
    KillServer(usize),
    /// SIGTERM to a server.
    EndServer(usize),
    /// `kill -9` of all processes of Postgres.
    KillPostgres,
    /// Its quickest stop, which is a crash too.
    StopPostgres,
}

impl Hit {
    /// Whose way this is: that of a server, if not of Postgres.
    pub(super) fn server(self) -> Option<usize> {
        match self {
            Self::KillServer(slot) | Self::EndServer(slot) => Some(slot),
            Self::KillPostgres | Self::StopPostgres => None,
        }
    }
}

impl Shape {
    /// Whether frames are merged.
    pub(super) fn merges(&self) -> bool {
        self.buffer_frames >= 256
    }
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let rng = &mut rng;
        let servers = rng.random_range(1..=2);
        let pages = rng.random_range(3..=30);
        let writers = rng.random_range(2..=6);
        let readers = rng.random_range(2..=4);
        let client = rng.random_range(0..readers);
        let faults = rng.random_range(2..=4);
        Self {
            spools: (0..servers).map(|_| rng.random_ratio(3, 4)).collect(),
            lanes: one_of(rng, &[1, 2, 4]),
            line: one_of(rng, &[None, Some(1), Some(5)]).map(Duration::from_millis),
            shape: Shape {
                buffer_frames: one_of(rng, &[16, 64, 256, 300, 65_536]),
                pages,
                chapters: rng.random_range(1..=4),
                size_ms: one_of(rng, &[1000, 5000, 60_000]),
                gap_ms: one_of(rng, &[20, 200, 2000]),
                delay_ms: one_of(rng, &[0, 500, 60_000]),
            },
            writers: (0..writers).map(|_| writing(rng)).collect(),
            readers: (0..readers)
                .map(|n| Reading {
                    by_client: n == client,
                    joins_after: if n == 0 { 0 } else { rng.random_range(0..300) },
                })
                .collect(),
            faults: (0..faults).map(|_| fault(rng, servers)).collect(),
        }
    }
}

fn one_of<T: Copy>(rng: &mut StdRng, all: &[T]) -> T {
    *all.choose(rng).unwrap()
}

fn ms(rng: &mut StdRng, most: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..=most))
}

fn writing(rng: &mut StdRng) -> Writing {
    Writing {
        seed: rng.random(),
        biggest_batch: one_of(rng, &[1, 5, 50]),
        repeats: rng.random_range(5..=40),
        twice: rng.random_range(0..=15),
        gives_up: rng.random_range(0..=30),
        step_ms: rng.random_range(1..=40),
        latency: Duration::from_millis(one_of(rng, &[0, 20, 100])),
        pause: ms(rng, 10),
    }
}

fn fault(rng: &mut StdRng, servers: usize) -> Fault {
    let (servers_too, postgres_too) = one_of(
        rng,
        &[(true, false), (false, true), (true, true), (true, true)],
    );
    let mut hits = Vec::new();
    if postgres_too {
        let quick = rng.random_ratio(1, 3);
        hits.push(if quick {
            Hit::StopPostgres
        } else {
            Hit::KillPostgres
        });
    }
    if servers_too {
        let all = rng.random_ratio(1, 3);
        let one = rng.random_range(0..servers);
        for slot in (0..servers).filter(|slot| all || *slot == one) {
            let gently = rng.random_ratio(1, 4);
            let hit = if gently {
                Hit::EndServer(slot)
            } else {
                Hit::KillServer(slot)
            };
            hits.insert(rng.random_range(0..=hits.len()), hit);
        }
    }
    // Close upon one another, or so far apart that something is spooled in between.
    let between = one_of(rng, &[20, 60, 1500]);
    Fault {
        after: one_of(rng, &[0, 100, 500]) + rng.random_range(0..100),
        hits: hits
            .into_iter()
            .map(|hit| (ms(rng, between), hit))
            .collect(),
        away: match one_of(rng, &[0, 1, 2]) {
            0 => Duration::ZERO,
            1 => ms(rng, 300),
            _ => ms(rng, 3000),
        },
        servers_first: rng.random(),
    }
}

#[test]
fn a_seed_gives_the_same_plan_and_another_one_another() {
    let shown = |seed| format!("{:?}", Plan::draw(seed));
    assert_eq!(shown(1), shown(1));
    assert_ne!(shown(1), shown(2));
}
