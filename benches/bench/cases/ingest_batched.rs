//! A thousand clicks a request into one book, beside `COPY` of the same clicks into the same table.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::Error;
use crate::context::Context;
use crate::load::closed::Load;
use crate::load::follower::Follower;
use crate::load::mix::Mix;
use crate::peers::copy;
use crate::report::{Figure, Target};
use crate::service::{Database, Server, counting_book};
use crate::turns::in_turns;

/// Clicks in a request.
pub(super) const BATCH: usize = 1000;

/// Connections that send.
pub(super) const CONNECTIONS: usize = 8;

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    let server = Server::start(&database, &[]).await?;
    let by_default = json!({"title": "Bench"});
    let mut figures = Vec::new();
    for (slug, book, suffix, target) in [
        (
            "counting",
            counting_book(),
            "",
            Some(Target::RatioAtLeast(0.4)),
        ),
        ("default", by_default, ", default rollups", None),
    ] {
        server.put_book(slug, &book).await?;
        let turn = async |time| measured(context, &database, &server, slug, time).await;
        let [ours, copied, of_server, of_postgres] = in_turns(context, turn).await?;
        let cost = |whose: &str, value| Figure {
            name: format!("processor time of {whose}{suffix}"),
            unit: "µs/click",
            value,
            beside: None,
            target: None,
        };
        figures.push(Figure {
            name: format!("ingest, 1,000 clicks a request{suffix}"),
            unit: "clicks/s",
            value: ours,
            beside: Some(("COPY".to_owned(), copied)),
            target,
        });
        figures.push(cost("the server", of_server));
        figures.push(cost("Postgres", of_postgres));
    }
    server.stop().await?;
    database.stop().await?;
    Ok(figures)
}

/// Clicks a second into a book with a reader; what `COPY` does of the same; and microseconds of
/// processors for each click, of the server and of Postgres.
async fn measured(
    context: &Context,
    database: &Database,
    server: &Server,
    slug: &str,
    time: Duration,
) -> Result<[f64; 4], Error> {
    let token = server.token("write").await?;
    let load = Load {
        address: server.address.clone(),
        connections: CONNECTIONS,
        mix: Arc::new(Mix::new(1, &token, &[slug.to_owned()], BATCH)),
    };
    let mut reader = Follower::start(server, slug).await?;
    let before = [server.usage()?, database.usage()?];
    let done = load.run(time).await?;
    let after = [server.usage()?, database.usage()?];
    reader.through(server.position(slug).await?).await?;
    let copied = copy::clicks_a_second(context, database, done.clicks).await?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let a_click = |which: usize| {
        let busy = after[which].busy.saturating_sub(before[which].busy);
        busy.as_secs_f64() * 1e6 / done.clicks as f64
    };
    Ok([done.rate(), copied, a_click(0), a_click(1)])
}
