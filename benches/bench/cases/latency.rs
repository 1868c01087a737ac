//! How long a click takes, to its receipt and to its frame, at half of the rate that can be had.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Error;
use crate::context::Context;
use crate::load::closed::Load;
use crate::load::follower::{Follower, Seen};
use crate::load::mix::Mix;
use crate::load::open::{Acknowledged, OpenLoad};
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server, counting_book};
use crate::turns::in_turns;

/// Connections with which the greatest rate is found.
const CLOSED_CONNECTIONS: usize = 64;

/// Most requests that may be under way at half of it.
const OPEN_CONNECTIONS: usize = 256;

/// What is shown of the latencies.
const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (99.0, "p99"), (99.9, "p99.9")];

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    let server = Server::start(&database, &[]).await?;
    server.put_book("book", &counting_book()).await?;
    let token = server.token("write").await?;
    let mix = Arc::new(Mix::new(5, &token, &["book".to_owned()], 1));
    let greatest = Load {
        address: server.address.clone(),
        connections: CLOSED_CONNECTIONS,
        mix: Arc::clone(&mix),
    };
    let [greatest] = in_turns(context, async |time| {
        let done = greatest.run(time).await?;
        database.expect_clicks(done.clicks).await?;
        Ok([done.rate()])
    })
    .await?;
    let load = OpenLoad {
        address: server.address.clone(),
        connections: OPEN_CONNECTIONS,
        mix,
        rate: greatest.median() / 2.0,
    };
    let mut reader = Follower::start(&server, "book").await?;
    let mut seed = 0;
    let [
        receipt,
        receipt_99,
        receipt_999,
        frame,
        frame_99,
        frame_999,
        bare,
    ] = in_turns(context, async |time| {
        seed += 1;
        let clicks = load.run(time, seed).await?;
        database.expect_clicks(clicks.len() as u64).await?;
        let newest = clicks.iter().map(|click| click.position).max();
        let frames = reader.through(newest.ok_or("no click was sent")?).await?;
        let mut measured = [0.0; 7];
        let receipts = clicks.iter().map(|click| click.at - click.due);
        measured[..3].copy_from_slice(&percentiles(receipts)?);
        let frames = to_frames(&clicks, &frames)?;
        measured[3..6].copy_from_slice(&percentiles(frames.into_iter())?);
        measured[6] = bare_insert(&database, time).await?;
        Ok(measured)
    })
    .await?;
    drop(reader);
    server.stop().await?;
    database.stop().await?;
    let most = 3.0 * bare.median() + 10.0;
    let figure = |what: &str, percentile: usize, value: Samples| Figure {
        name: format!(
            "latency at half rate, {what}, {}",
            PERCENTILES[percentile].1
        ),
        unit: "ms",
        value,
        beside: Some(("INSERT and commit, p50".to_owned(), bare.clone())),
        target: None,
    };
    Ok(vec![
        Figure {
            name: "greatest rate of single clicks, for the latency".to_owned(),
            unit: "clicks/s",
            value: greatest,
            beside: None,
            target: None,
        },
        figure("click to receipt", 0, receipt),
        figure("click to receipt", 1, receipt_99),
        figure("click to receipt", 2, receipt_999),
        figure("click to frame", 0, frame),
        Figure {
            target: Some(Target::ValueAtMost(most)),
            ..figure("click to frame", 1, frame_99)
        },
        figure("click to frame", 2, frame_999),
    ])
}

/// From when each click was to be sent until its reader had the frame that tells of it: the first
/// whose position is at least that of the receipt.
fn to_frames(clicks: &[Acknowledged], frames: &[Seen]) -> Result<Vec<Duration>, Error> {
    let tells = |click: &Acknowledged| {
        let before = frames.partition_point(|frame| frame.position < click.position);
        let frame = frames.get(before).ok_or("a click was in no frame")?;
        Ok(frame.at - click.due)
    };
    clicks.iter().map(tells).collect()
}

/// In milliseconds.
fn percentiles(latencies: impl Iterator<Item = Duration>) -> Result<[f64; 3], Error> {
    let mut histogram = Histogram::<u64>::new(3)?;
    for latency in latencies {
        histogram.record(u64::try_from(latency.as_micros())?)?;
    }
    #[allow(
        clippy::cast_precision_loss,
        reason = "microseconds of minutes at most"
    )]
    Ok(
        PERCENTILES
            .map(|(percentile, _)| histogram.value_at_percentile(percentile) as f64 / 1000.0),
    )
}

/// How long the least that can be committed takes, one after another, while nothing else happens:
/// the median in milliseconds.
async fn bare_insert(database: &Database, time: Duration) -> Result<f64, Error> {
    let mut conn = database.connect().await?;
    let table =
        "CREATE SCHEMA IF NOT EXISTS bench; CREATE TABLE IF NOT EXISTS bench.bare (n bigint)";
    sqlx::raw_sql(table).execute(&mut conn).await?;
    let end = Instant::now() + time;
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let begin = Instant::now();
        // A statement by itself is a transaction, and returns after its commit.
        let insert = sqlx::query("INSERT INTO bench.bare VALUES ($1)").bind(1_i64);
        insert.execute(&mut conn).await?;
        latencies.push(begin.elapsed());
    }
    let [median, ..] = percentiles(latencies.into_iter())?;
    Ok(median)
}
