//! One click a request, beside a handler that parses the same request and answers, nothing else.

use std::sync::Arc;

use crate::Error;
use crate::context::Context;
use crate::load::closed::Load;
use crate::load::mix::Mix;
use crate::peers::own::{Peer, Role};
use crate::report::{Figure, Target};
use crate::service::{Database, Server, counting_book};
use crate::turns::in_turns;

/// How many connections, and what part of the handler's rate is to be reached with them.
const LOADS: [(usize, f64); 2] = [(64, 0.25), (256, 0.45)];

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    let server = Server::start(&database, &[]).await?;
    let peer = Peer::start(&Role::ParseOnly).await?;
    server.put_book("book", &counting_book()).await?;
    let token = server.token("write").await?;
    let mix = Arc::new(Mix::new(3, &token, &["book".to_owned()], 1));
    let mut figures = Vec::new();
    for (connections, least) in LOADS {
        let [ours, parsed] = in_turns(context, async |time| {
            let to = |address: &String| Load {
                address: address.clone(),
                connections,
                mix: Arc::clone(&mix),
            };
            let ours = to(&server.address).run(time).await?;
            database.expect_clicks(ours.clicks).await?;
            let parsed = to(&peer.address).run(time).await?;
            Ok([ours.rate(), parsed.rate()])
        })
        .await?;
        figures.push(Figure {
            name: format!("ingest, 1 click a request, {connections} connections"),
            unit: "clicks/s",
            value: ours,
            beside: Some(("parse and answer".to_owned(), parsed)),
            target: Some(Target::RatioAtLeast(least)),
        });
    }
    peer.stop().await?;
    server.stop().await?;
    database.stop().await?;
    Ok(figures)
}
