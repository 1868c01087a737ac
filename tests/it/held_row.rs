//! A book whose row somebody holds is the only one that waits.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::Connection;

use crate::harness::{Database, Server, until};

#[tokio::test]
async fn a_held_row_holds_up_its_own_book_alone() {
    let database = Database::create().await;
    // One lane, so that both books share its transactions.
    let server = Server::start_with(&database, &[("PAGETIDE_LANES", "1")]).await;
    let api = server.api();
    api.plain_book("held", 1000, 0).await;
    api.plain_book("free", 1000, 0).await;
    let mut holder = database.connect().await;
    let mut held = holder.begin().await.unwrap();
    sqlx::query("UPDATE books SET title = title WHERE slug = 'held'")
        .execute(&mut *held)
        .await
        .unwrap();
    let post = |book: &'static str| {
        let api = api.clone();
        tokio::spawn(async move {
            let path = format!("/v1/books/{book}/clicks");
            let began = Instant::now();
            let answer = api.post(&path, &json!({"page": "/a", "at": 1})).await;
            (answer.status.as_u16(), began.elapsed())
        })
    };
    let first = post("held");
    until("the first post waits for the row", || async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (database.number(waiting).await > 0).then_some(())
    })
    .await;
    // Behind it in the lane: both books, in one group.
    let others = [post("held"), post("free"), post("held"), post("free")];
    let mut answers = Vec::new();
    for other in others {
        answers.push(other.await.unwrap());
    }
    for (status, took) in [answers[1], answers[3]] {
        assert_eq!(status, 200, "{answers:?}");
        assert!(took < Duration::from_secs(20), "{answers:?}");
    }
    for (status, _) in [first.await.unwrap(), answers[0], answers[2]] {
        assert_eq!(status, 503, "{answers:?}");
    }
    held.rollback().await.unwrap();
    let free = api.get("/v1/books/free").await.expect(200);
    assert_eq!(free["totals"]["received"], 2);
    let held = api.get("/v1/books/held").await.expect(200);
    assert_eq!(
        held["totals"]["received"], 0,
        "what was refused was not counted"
    );
    api.clicks("held", json!({"page": "/a", "at": 1})).await;
}
