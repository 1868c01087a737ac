//! The engine by itself, on one thread and without a database, beside the same fold in bare maps.

mod bare;
mod held;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagetide::click::{Click, ClickId};
use pagetide::engine::{self, Logged, Plan, Progress};
use pagetide::rollup::{AggregateKind, GroupBy, Rollup, WindowSpec};
use pagetide::time::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use self::held::Held;
use crate::Error;
use crate::context::Context;
use crate::report::{Figure, Target};
use crate::turns::in_turns;

/// In the log.
const CLICKS: u32 = 1_000_000;

/// That they are on.
const PAGES: u32 = 1000;

/// Clicks that are counted at once, as a transaction would.
const BATCH: usize = 1000;

/// When the first happens: in March 2026.
const BEGIN_MS: i64 = 1_772_366_400_000;

/// How far the watermark stays behind.
const DELAY_MS: i64 = 2000;

/// How long windows take clicks after their end.
const LATENESS_MS: i64 = 60_000;

/// How far back a click may be that comes out of order: late, but not too late.
const MOST_BEHIND_MS: i64 = 10_000;

const WINDOWS: [(&str, WindowSpec); 3] = [
    ("tumbling", WindowSpec::Tumbling { size_ms: 10_000 }),
    (
        "sliding, 6 windows a click",
        WindowSpec::Sliding {
            size_ms: 60_000,
            slide_ms: 10_000,
        },
    ),
    ("session", WindowSpec::Session { gap_ms: 2000 }),
];

/// What was counted: clicks by start, end and page.
type Counts = BTreeMap<(i64, i64, String), i64>;

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let log = log();
    let mut figures = Vec::new();
    for (name, window) in WINDOWS {
        let [whole, pure, bare] = in_turns(context, async |time| {
            let (mut spent, mut passes) = ([Duration::ZERO; 3], 0);
            let begin = Instant::now();
            while begin.elapsed() < time {
                let (ours, [of_whole, of_pure]) = counted(&log, window)?;
                let (theirs, of_bare) = bare::counted(&log, window);
                if ours != theirs {
                    return Err("the engine and the bare map have counted differently".into());
                }
                for (spent, more) in spent.iter_mut().zip([of_whole, of_pure, of_bare]) {
                    *spent += more;
                }
                passes += 1;
            }
            Ok(spent.map(|spent| f64::from(CLICKS * passes) / spent.as_secs_f64()))
        })
        .await?;
        figures.push(Figure {
            name: format!("engine, {name}"),
            unit: "clicks/s",
            value: pure,
            beside: Some(("bare map".to_owned(), bare.clone())),
            target: Some(Target::RatioAtLeast(0.5)),
        });
        figures.push(Figure {
            name: format!("engine, {name}, and windows taken from and put into a map"),
            unit: "clicks/s",
            value: whole,
            beside: Some(("bare map".to_owned(), bare)),
            target: None,
        });
    }
    Ok(figures)
}

/// A click a millisecond, on a page drawn at random; one in twenty is told of late.
fn log() -> Vec<Click> {
    let mut rng = StdRng::seed_from_u64(6);
    (0..i64::from(CLICKS))
        .map(|passed_ms| {
            let behind_ms = if rng.random_ratio(1, 20) {
                rng.random_range(1..=MOST_BEHIND_MS)
            } else {
                0
            };
            let received_ms = BEGIN_MS + passed_ms;
            Click {
                id: ClickId {
                    uuid: Uuid::nil(),
                    sent: None,
                    fresh: true,
                },
                at: Timestamp::saturating_from_millis(received_ms - behind_ms),
                received_at: Timestamp::saturating_from_millis(received_ms),
                page: format!("/guide/chapter-{:03}", rng.random_range(0..PAGES)),
                visitor: None,
                referrer: None,
                source: None,
                value: None,
            }
        })
        .collect()
}

/// What the engine counts, and how long that took: with taking windows from a map and putting them
/// into it again, which a transaction does with a table, and without.
fn counted(log: &[Click], window: WindowSpec) -> Result<(Counts, [Duration; 2]), Error> {
    let plan = Plan {
        delay_ms: DELAY_MS,
        rollups: vec![Rollup {
            name: "pages".to_owned(),
            group_by: GroupBy::Page,
            window,
            aggregate: AggregateKind::Count,
            of: None,
            lateness_ms: LATENESS_MS,
        }],
        structure: Arc::default(),
    };
    let mut held = Held::new(window);
    let mut progress = Progress::NONE;
    let mut pure = Duration::ZERO;
    let begin = Instant::now();
    let mut first_seq = 1;
    for batch in log.chunks(BATCH) {
        let logged = (first_seq..).zip(batch);
        let logged: Vec<Logged<'_>> = logged.map(|(seq, click)| Logged { seq, click }).collect();
        first_seq += i64::try_from(batch.len()).unwrap_or(i64::MAX);
        let reaching = Instant::now();
        let reach = engine::reach(&plan, progress, &logged);
        pure += reaching.elapsed();
        let windows = held.take(&reach);
        let applying = Instant::now();
        let outcome = engine::apply(&plan, progress, &logged, reach, windows);
        pure += applying.elapsed();
        progress = outcome.progress;
        held.put(outcome.changed);
    }
    let whole = begin.elapsed();
    Ok((held.counts()?, [whole, pure]))
}
