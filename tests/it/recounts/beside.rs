//! A book goes on taking clicks while it is counted again.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::{DAY_MS, begin, days_book, ended, fill, in_log, recount, shown, swept};
use crate::harness::steps::without_waiting_for_the_disk;
use crate::harness::{Api, Database, Server, until};

/// Stored before the recount begins.
const STORED: i64 = 150_000;

/// Clicks a request, and how often one is sent: a thousand a second.
const BATCH: usize = 50;
const EVERY: Duration = Duration::from_millis(50);

/// Sends clicks at a steady pace as long as it `goes_on`; a request that is not answered yet does not
/// keep the next from being sent. Their times are all over the days of the log.
async fn load(api: &Api, goes_on: &AtomicBool, acknowledged: &AtomicI64) {
    let mut turns = tokio::time::interval(EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = tokio::task::JoinSet::new();
    let mut number = 0;
    while goes_on.load(Ordering::SeqCst) {
        turns.tick().await;
        let clicks = (0..BATCH).map(|_| {
            number += 1;
            let at = number * 7_919_993 % (10 * DAY_MS);
            json!({"id": format!("live-{number}"), "page": format!("/p{}", number % 200), "at": at})
        });
        let (api, clicks) = (api.clone(), clicks.collect::<Value>());
        requests.spawn(async move { api.clicks("b", clicks).await });
    }
    for receipt in requests.join_all().await {
        assert_eq!(receipt["rejected"], 0, "{receipt}");
        assert_eq!(receipt["duplicates"], 0, "{receipt}");
        let received = receipt["received"].as_i64().unwrap();
        acknowledged.fetch_add(received, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clicks_a_second_go_on_and_each_counts_once() {
    let database = Database::create().await;
    without_waiting_for_the_disk(&database).await;
    let server = Server::start(&database).await;
    let api = server.api();
    days_book(&api, "b").await;
    fill(&database, "b", STORED).await;
    // What comes is late or too late, as the log's last day stands on the clock of the book.
    let last = json!({"id": "last", "page": "/p0", "at": 10 * DAY_MS - 1});
    api.clicks("b", last).await;

    let (goes_on, acknowledged) = (AtomicBool::new(true), AtomicI64::new(0));
    let logged = async || {
        let sql = "SELECT count(*) FROM clicks";
        database.number(sql).await - STORED - 1
    };
    let (mut at_begin, mut at_end, mut run) = (0, 0, Value::Null);
    let counting = async {
        until("clicks come", async || (logged().await > 500).then_some(())).await;
        at_begin = logged().await;
        let id = begin(&api, "b").await;
        run = ended(&api, "b", &id).await;
        at_end = logged().await;
        // And some after the swap.
        until("clicks go on", async || {
            (logged().await > at_end + 500).then_some(())
        })
        .await;
        goes_on.store(false, Ordering::SeqCst);
    };
    tokio::join!(load(&api, &goes_on, &acknowledged), counting);
    assert_eq!(run["state"], "done", "{run}");
    let acknowledged = acknowledged.load(Ordering::SeqCst);
    eprintln!("{acknowledged} clicks beside it, of them {at_begin} to {at_end} while it ran");
    assert!(
        at_end - at_begin > 100,
        "it was over too soon to show anything"
    );
    assert_eq!(logged().await, acknowledged);
    let processed = run["processed"].as_i64().unwrap();
    assert!(
        (STORED + 1 + at_begin..=STORED + 1 + at_end).contains(&processed),
        "{run}"
    );

    // After the swap some came too late for their windows, as ever. All others are there, once.
    let totals = crate::harness::load::totals(&api, "b").await;
    let log = in_log(&database, "b").await;
    let counted = shown(&api, "b").await;
    assert_eq!(log.values().sum::<i64>(), STORED + 1 + acknowledged);
    for (window, count) in &counted {
        assert!(count <= &log[window], "{window:?} has {count}");
    }
    eprintln!("{totals}");
    recount(&api, "b").await;
    assert_eq!(shown(&api, "b").await, log);
    swept(&database).await;
}

/// The same where nothing is too late: sums are equal with no second recount.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_during_a_recount_is_in_what_it_swaps_in() {
    let database = Database::create().await;
    without_waiting_for_the_disk(&database).await;
    let server = Server::start(&database).await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": DAY_MS}}],
        "settings": {"delay_ms": 0, "lateness_ms": 20 * DAY_MS, "max_future_ms": null,
                     "idle_timeout_ms": null},
    });
    api.book("b", fields).await;
    fill(&database, "b", STORED).await;
    let (goes_on, acknowledged) = (AtomicBool::new(true), AtomicI64::new(0));
    let counting = async {
        let id = begin(&api, "b").await;
        let run = ended(&api, "b", &id).await;
        goes_on.store(false, Ordering::SeqCst);
        run
    };
    let ((), run) = tokio::join!(load(&api, &goes_on, &acknowledged), counting);
    assert_eq!(run["state"], "done", "{run}");
    let acknowledged = acknowledged.load(Ordering::SeqCst);
    assert!(acknowledged > 500, "{acknowledged}");
    let log = in_log(&database, "b").await;
    assert_eq!(log.values().sum::<i64>(), STORED + acknowledged);
    assert_eq!(shown(&api, "b").await, log);
    let totals = crate::harness::load::totals(&api, "b").await;
    let taken = totals["on_time"].as_i64().unwrap() + totals["late"].as_i64().unwrap();
    assert_eq!(taken, acknowledged, "{totals}");
    swept(&database).await;
}
