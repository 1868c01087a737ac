//! Clicks that were sent before are logged as if they were new, and found out by the primary key.

use std::sync::Arc;

use futures_util::future::join_all;
use pagetide::click::ClickId;
use pagetide::engine::Status;
use pagetide::ingest::commit::{Batch, Fate};
use pagetide::ingest::lane::Work;
use pagetide::ingest::retry::Retries;
use uuid::Uuid;

use super::{Runtime, click, id_of};
use crate::harness::start;

/// A click whose sender chose its id.
fn named(book: Uuid, id: &str, page: &str) -> Work {
    let mut click = click(page);
    click.id = ClickId::chosen(book, id);
    Work::Clicks(Arc::new(Batch {
        clicks: vec![click],
        ..Batch::default()
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_among_many_of_two_books_spoils_nothing() {
    let (database, server) = start().await;
    let api = server.api();
    let one = id_of(&api.plain_book("one", 60_000, 60_000).await);
    let other = id_of(&api.plain_book("other", 60_000, 60_000).await);
    // One lane, so that both books share its transactions.
    let runtime = Runtime::start(&database, 1, Retries::default());
    let lanes = &runtime.lanes;
    lanes.submit(one, named(one, "x", "/a")).await.unwrap();

    // The first round finds the lane unsuspecting, the second wary.
    for round in 0..2 {
        let fresh = (0..50).map(|n| {
            let book = if n % 2 == 0 { one } else { other };
            (book, named(book, &format!("{round}-{n}"), "/a"))
        });
        let mut sent: Vec<(Uuid, Work)> = fresh.collect();
        sent.insert(25, (one, named(one, "x", "/elsewhere")));
        let answers = sent
            .into_iter()
            .map(|(book, work)| lanes.submit(book, work));
        let fates: Vec<Fate> = join_all(answers)
            .await
            .into_iter()
            .flat_map(|receipt| receipt.unwrap().fates)
            .collect();
        let duplicate = Fate::Duplicate { differs: true };
        assert_eq!(fates[25], duplicate, "round {round}");
        let on_time = Fate::Judged {
            status: Status::OnTime,
            missed: Vec::new(),
        };
        let counted = fates.iter().filter(|fate| **fate == on_time).count();
        assert_eq!(counted, 50, "round {round}");
    }
    runtime.stop().await;
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 101);
    let duplicates = "SELECT duplicates FROM books WHERE slug = 'one'";
    assert_eq!(database.number(duplicates).await, 2);
}
