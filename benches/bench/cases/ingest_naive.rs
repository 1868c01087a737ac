//! One click a request into one book, beside a transaction for each.

use std::sync::Arc;

use crate::Error;
use crate::context::Context;
use crate::load::closed::Load;
use crate::load::mix::Mix;
use crate::peers::own::{Peer, Role};
use crate::report::{Figure, Target};
use crate::service::{Database, Server, counting_book};
use crate::turns::in_turns;

/// Connections that send.
const CONNECTIONS: usize = 64;

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    let server = Server::start(&database, &[]).await?;
    let role = Role::Naive {
        database: database.url()?,
    };
    let peer = Peer::start(&role).await?;
    server.put_book("book", &counting_book()).await?;
    let token = server.token("write").await?;
    let mix = Arc::new(Mix::new(4, &token, &["book".to_owned()], 1));
    let to = |address: &String| Load {
        address: address.clone(),
        connections: CONNECTIONS,
        mix: Arc::clone(&mix),
    };
    let (to_ours, to_peer) = (to(&server.address), to(&peer.address));
    let [ours, naive] = in_turns(context, async |time| {
        let ours = to_ours.run(time).await?;
        database.expect_clicks(ours.clicks).await?;
        let naive = to_peer.run(time).await?;
        Ok([ours.rate(), naive.rate()])
    })
    .await?;
    peer.stop().await?;
    server.stop().await?;
    database.stop().await?;
    Ok(vec![Figure {
        name: "ingest, 1 click a request, 64 connections".to_owned(),
        unit: "clicks/s",
        value: ours,
        beside: Some(("a transaction each".to_owned(), naive)),
        target: Some(Target::RatioAtLeast(10.0)),
    }])
}
