//! Salts: one a day for all processes, and none of yesterday's is left.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures_util::future::join_all;
use pagetide::time::Timestamp;
use pagetide::visitor::{Reader, Visitors};
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use super::{key, send, view};
use crate::harness::steps::execute;
use crate::harness::{Database, Server, start, until};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

const SALTS: &str = "SELECT count(*) FROM visitor_salts";

fn reader() -> Reader<'static> {
    Reader {
        book: Uuid::from_u128(1),
        address: IpAddr::from([192, 0, 2, 1]),
        user_agent: b"Firefox",
    }
}

/// At `ms` after the begin of a day.
fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(20_000 * DAY_MS + ms).unwrap()
}

/// As a process of its own would have them.
async fn visitors(database: &Database) -> Visitors {
    Visitors::new(PgPool::connect(&database.url()).await.unwrap())
}

#[tokio::test]
async fn names_change_at_midnight_and_yesterdays_cannot_be_made_again() {
    let (database, _server) = start().await;
    let (one, other) = (visitors(&database).await, visitors(&database).await);
    let name = async |visitors: &Visitors, ms: i64| visitors.name(reader(), at(ms)).await.unwrap();
    let first = name(&one, 0).await;
    assert_eq!(name(&one, DAY_MS - 1).await, first);
    assert_eq!(name(&other, DAY_MS - 1).await, first);
    let second = name(&one, DAY_MS).await;
    assert_ne!(second, first);
    assert_eq!(name(&other, 2 * DAY_MS - 1).await, second);
    // A click of the day before that is still on its way, and a process whose clock is slow.
    one.forget(at(DAY_MS + HOUR_MS / 2)).await.unwrap();
    assert_eq!(name(&one, DAY_MS - 1).await, first);
    assert_eq!(database.number(SALTS).await, 2);

    for visitors in [&one, &other] {
        visitors.forget(at(DAY_MS + 2 * HOUR_MS)).await.unwrap();
    }
    assert_eq!(database.number(SALTS).await, 1);
    assert_eq!(
        name(&one, DAY_MS + 2 * HOUR_MS).await,
        second,
        "today's stays"
    );
    assert_ne!(
        name(&one, DAY_MS - 1).await,
        first,
        "yesterday's was remembered"
    );
}

#[tokio::test]
async fn whoever_comes_first_makes_the_salt_and_all_others_take_it() {
    let (database, _server) = start().await;
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(visitors(&database).await);
    }
    for day in 0..5 {
        let names = processes
            .iter()
            .flat_map(|visitors| (0..25).map(move |_| visitors.name(reader(), at(day * DAY_MS))));
        let names: BTreeSet<Option<String>> = join_all(names).await.into_iter().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names.first().unwrap().is_some());
    }
    assert_eq!(database.number(SALTS).await, 5);
}

#[tokio::test]
async fn salts_that_are_over_go_though_no_click_comes() {
    let (database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let key = key(&api, "b").await;
    send(
        view(&api, "b", &key, "192.0.2.1"),
        &json!({"page": "/a"}),
        200,
    )
    .await;
    drop(server);
    let old = "INSERT INTO visitor_salts SELECT day - d, salt
               FROM visitor_salts, generate_series(2, 9) d";
    execute(&database, old).await;
    assert_eq!(database.number(SALTS).await, 9);
    let _server = Server::start(&database).await;
    until("the old ones are gone", async || {
        (database.number(SALTS).await == 1).then_some(())
    })
    .await;
}
