//! A thousand clicks a request over a thousand books, beside `COPY` of the same clicks.

use std::sync::Arc;

use super::ingest_batched::{BATCH, CONNECTIONS};
use crate::Error;
use crate::context::Context;
use crate::load::closed::Load;
use crate::load::mix::Mix;
use crate::peers::copy;
use crate::report::{Figure, Target};
use crate::service::{Database, Server, counting_book};
use crate::turns::in_turns;

/// How many.
const BOOKS: usize = 1000;

pub(crate) async fn run(context: &Context) -> Result<Vec<Figure>, Error> {
    let database = Database::start(context).await?;
    let server = Server::start(&database, &[]).await?;
    let books: Vec<String> = (0..BOOKS).map(|number| format!("book-{number}")).collect();
    for book in &books {
        server.put_book(book, &counting_book()).await?;
    }
    let token = server.token("write").await?;
    let load = Load {
        address: server.address.clone(),
        connections: CONNECTIONS,
        mix: Arc::new(Mix::new(2, &token, &books, BATCH)),
    };
    let [ours, copied] = in_turns(context, async |time| {
        let done = load.run(time).await?;
        let copied = copy::clicks_a_second(context, &database, done.clicks).await?;
        Ok([done.rate(), copied])
    })
    .await?;
    server.stop().await?;
    database.stop().await?;
    Ok(vec![Figure {
        name: "ingest, 1,000 clicks a request, 1,000 books".to_owned(),
        unit: "clicks/s",
        value: ours,
        beside: Some(("COPY".to_owned(), copied)),
        target: Some(Target::RatioAtLeast(0.2)),
    }])
}
