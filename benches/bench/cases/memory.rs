//! What the server holds in memory: with nothing to do, under the batched ingest, and after it.

use std::sync::Arc;
use std::time::Duration;

use super::ingest_batched::{BATCH, CONNECTIONS};
use crate::Error;
use crate::context::Context;
use crate::load::closed::Load;
use crate::load::follower::Follower;
use crate::load::mix::Mix;
use crate::report::{Figure, Samples, Target};
use crate::service::{Database, Server, counting_book};

/// Mebibytes that are to suffice.
const IDLE: f64 = 64.0;
const LOADED: f64 = 256.0;

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let after = Duration::from_secs(if context.quick { 5 } else { 60 });
    let database = Database::start(context).await?;
    let (mut idle, mut loaded, mut rested) = <(Samples, Samples, Samples)>::default();
    // A new server each time: memory that has been used once may never be given back.
    for _ in 0..if context.quick { 1 } else { 3 } {
        let server = Server::start(&database, &[]).await?;
        server.put_book("book", &counting_book()).await?;
        idle.0.push(mib(server.usage()?.resident));
        let token = server.token("write").await?;
        let load = Load {
            address: server.address.clone(),
            connections: CONNECTIONS,
            mix: Arc::new(Mix::new(8, &token, &["book".to_owned()], BATCH)),
        };
        let reader = Follower::start(&server, "book").await?;
        let done = load.run(context.warm_up + context.run).await?;
        loaded.0.push(mib(server.peak_resident()?));
        drop(reader);
        tokio::time::sleep(after).await;
        rested.0.push(mib(server.usage()?.resident));
        server.stop().await?;
        database.expect_clicks(done.clicks).await?;
    }
    database.stop().await?;
    let figure = |what: &str, value, most: f64| Figure {
        name: format!("memory of the server, {what}"),
        unit: "MiB",
        value,
        beside: None,
        target: Some(Target::ValueAtMost(most)),
    };
    Ok(vec![
        figure("idle", idle, IDLE),
        figure("largest under batched ingest", loaded, LOADED),
        figure(&format!("{} s after it", after.as_secs()), rested, LOADED),
    ])
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
