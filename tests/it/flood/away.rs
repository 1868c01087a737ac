//! A database that is away: what fits into the spool waits, and the rest is told to come back.

use std::time::Instant;

use serde_json::json;

use super::{Flood, POSTS, body, grown, memory, two_books};
use crate::harness::load::totals;
use crate::harness::raw::Raw;
use crate::harness::{Database, Server};
use crate::spooled::{Folder, away, back, drained};

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_while_the_database_is_away_fills_the_spool_and_not_the_memory() {
    let database = Database::create().await;
    let folder = Folder::new();
    let bounds = [
        ("PAGETIDE_SPOOL_MAX_BYTES", "30000000"),
        ("PAGETIDE_LANES", "2"),
    ];
    let server = Server::start_with_spool(&database, folder.path(), &bounds).await;
    let api = server.api();
    two_books(&api).await;
    let mut stuck = Raw::get_narrow(&api, "/v1/books/b/events", "").await;
    stuck.head().await;
    let (body, clicks) = body(1000);
    away(&database).await;
    let before = memory(&server, "VmRSS:");
    let began = Instant::now();
    let flood = Flood::start(&api, 16, &body);
    let told = flood.finish().await;
    eprintln!(
        "{POSTS} posts of {clicks} clicks in {:.1?}: {:?}",
        began.elapsed(),
        told.answers
    );
    let most = grown(&server, before);
    assert!(told.count(202, "") > 15, "{:?}", told.answers);
    assert!(told.count(503, "spool_full") > 50, "{:?}", told.answers);

    back(&database).await;
    let began = Instant::now();
    drained(&api).await;
    eprintln!("drained in {:.1?}", began.elapsed());
    let at_last = grown(&server, before);
    // What was acknowledged is counted, and nothing else.
    let counted = totals(&api, "b").await["on_time"].as_u64().unwrap();
    assert_eq!(counted, told.acknowledged as u64);
    api.clicks("b", json!({"page": "/a", "at": 1000})).await;
    // Of 16 bodies that arrive or wait to be read, 16 to 32 MB; their clicks, copied and as lines,
    // until they are on disk: 4 MB each, of one reader at a time and what the disk is behind it. The
    // segment that is tried again and again, 8 MiB as lines and somewhat more as clicks: 20 MB.
    assert!(most < 90, "{most} MB");
    // And 5,000 of its clicks on their way into the database, as clicks, columns and a message.
    assert!(at_last < 130, "{at_last} MB");
}
