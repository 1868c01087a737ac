//! Requests that are dropped where they wait, as a server does when the client goes away.

use std::pin::pin;
use std::str::FromStr;
use std::task::Poll;

use pagetide::db::{self, read_pool};
use sqlx::postgres::PgConnectOptions;

use crate::harness::Database;

/// Polls `future` at most `polls` times, and then drops it; gives whether it was done by then.
async fn dropped_after(polls: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        future.as_mut().poll(context).map(|_| true)
    })
    .await
}

/// A request that was dropped while it waited for `BEGIN` once gave its connection back inside the
/// transaction: whoever got it next read an old snapshot, and committed nothing.
#[tokio::test]
async fn a_request_that_is_dropped_leaves_no_transaction_behind() {
    let database = Database::create().await;
    let options = PgConnectOptions::from_str(&database.url()).unwrap();
    let pool = read_pool(&options, 1);
    let mut dropped = 0;
    for polls in 1..50 {
        for _ in 0..3 {
            let done = dropped_after(polls, db::begin(&pool, db::READ)).await;
            dropped += usize::from(!done);
            // It would fail in a transaction that is read only.
            let written = sqlx::query("CREATE TABLE IF NOT EXISTS t (i int)").execute(&pool);
            written.await.unwrap();
        }
    }
    assert!(dropped >= 3, "nothing was dropped where it waited");
}
