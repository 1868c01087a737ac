#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::time::Instant;

use pagetide::click::{Click, ClickId};
use pagetide::ingest::spooled::SpooledClick;
use pagetide::time::Timestamp;
use uuid::Uuid;

use super::{Folder, drained, server};
use crate::harness::load::{counted, totals};
use crate::harness::steps::{execute, metric};
use crate::harness::{start, until};

fn spooled(book: &serde_json::Value, page: &str) -> SpooledClick {
    let at = Timestamp::from_millis(1000).unwrap();
    SpooledClick {
        book: book["id"].as_str().unwrap().parse().unwrap(),
        click: Click {
            id: ClickId {
                uuid: Uuid::new_v4(),
                sent: None,
                fresh: false,
            },
            at,
            received_at: Timestamp::now(),
            page: page.to_owned(),
            visitor: None,
            referrer: None,
            source: None,
            value: None,
        },
    }
}

#[tokio::test]
async fn a_segment_that_is_refused_is_passed_over_and_follows_later() {
    let (database, other) = start().await;
    let api = other.api();
    let well = api.plain_book("well", 60_000, 60_000).await;
    let odd = api.plain_book("odd", 60_000, 60_000).await;
    let broken = "UPDATE books SET rollups = '[]' WHERE slug = 'odd'";
    let rollups = "SELECT rollups FROM books WHERE slug = 'well'";
    let mended = format!("UPDATE books SET rollups = ({rollups}) WHERE slug = 'odd'");
    execute(&database, broken).await;
    let folder = Folder::new();
    folder.write_segment(10, &[spooled(&odd, "/10"), spooled(&well, "/10")]);
    folder.write_segment(310, &[spooled(&well, "/310")]);
    folder.write_segment(610, &[spooled(&well, "/610")]);
    let server = server(&database, &folder).await;
    let api = server.api();
    until("the others are delivered", async || {
        (counted(&api, "well").await == 3).then_some(())
    })
    .await;
    until("they are removed", async || {
        (folder.segments().len() == 1).then_some(())
    })
    .await;
    let left = folder.segments();
    assert!(left[0].to_str().unwrap().contains("0010-"), "{left:?}");
    assert_eq!(metric(&api, "pagetide_spool_segments_kept_total").await, 1);
    // What is left of it holds nobody up.
    api.clicks("well", super::click("new", "/a")).await;
    execute(&database, &mended).await;
    drained(&api).await;
    assert_eq!(counted(&api, "odd").await, 1);
    assert!(folder.segments().is_empty());
    // What was committed before was not delivered again.
    assert_eq!(totals(&api, "well").await["received"], 4);
}

#[tokio::test]
async fn three_thousand_segments_are_drained_in_linear_time() {
    const SEGMENTS: u64 = 3000;
    let (database, other) = start().await;
    let book = other.api().plain_book("b", 60_000, 60_000).await;
    let folder = Folder::new();
    for window in 0..SEGMENTS {
        folder.write_segment(window * 10_000, &[spooled(&book, "/a")]);
    }
    let began = Instant::now();
    let server = server(&database, &folder).await;
    let api = server.api();
    let mut half = None;
    for part in 1..=10 {
        until("another 300 are drained", async || {
            let drained = metric(&api, "pagetide_drained_clicks_total").await;
            (drained >= part * 300).then_some(())
        })
        .await;
        if part == 5 {
            half = Some(began.elapsed());
        }
    }
    drained(&api).await;
    let took = began.elapsed();
    let first = half.unwrap();
    println!("half of {SEGMENTS} segments in {first:?}, all in {took:?}");
    assert_eq!(counted(&api, "b").await, 3000);
    assert!(
        took < first * 4,
        "{first:?} for the first half, {took:?} for all"
    );
}
