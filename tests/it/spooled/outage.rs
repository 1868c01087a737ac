#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Folder, click, drained, server, spool};
use crate::harness::cluster::Cluster;
use crate::harness::load::{counted, stored, totals};
use crate::harness::steps::metric;
use crate::harness::{Api, Database, until};

/// What a writer did: the ids that were acknowledged, and how often each status came.
#[derive(Default)]
struct Written {
    acknowledged: HashSet<Uuid>,
    statuses: BTreeMap<u16, usize>,
    slowest: Duration,
}

/// Posts one click after the other; each has a number, so that their order can be seen.
async fn write(api: Api, writer: usize, last: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> Written {
    let mut written = Written::default();
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let id = Uuid::new_v4();
        let page = format!("/{writer}");
        let click = json!({"id": id, "page": page, "at": 1000, "value": number});
        let began = Instant::now();
        let answer = api.post("/v1/books/b/clicks", &click).await;
        written.slowest = written.slowest.max(began.elapsed());
        let status = answer.status.as_u16();
        *written.statuses.entry(status).or_default() += 1;
        last.store(u64::from(status), Ordering::SeqCst);
        if [200, 202].contains(&status) {
            written.acknowledged.insert(id);
        }
    }
    written
}

async fn ready(api: &Api, status: u16) -> Value {
    until("readiness is what it should be", async || {
        let answer = api.get("/readyz").await;
        (answer.status == status).then(|| answer.json())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_stopped_under_load_costs_no_click_and_no_refusal() {
    let seconds = std::env::var("PAGETIDE_OUTAGE_SECONDS").unwrap_or_default();
    let outage = Duration::from_secs(u64::from_str(&seconds).unwrap_or(6));
    let (cluster, folder) = (Cluster::start(), Folder::new());
    let database = Database::create_on(cluster.socket_url()).await;
    let server = server(&database, &folder).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let last = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        writers.spawn(write(
            api.clone(),
            writer,
            Arc::clone(&last),
            Arc::clone(&stop),
        ));
    }
    let comes = async |status: u64| {
        until("the answers change", async || {
            (last.load(Ordering::SeqCst) == status).then_some(())
        })
        .await;
    };
    comes(200).await;
    cluster.stop("fast");
    comes(202).await;
    let red = ready(&api, 503).await;
    assert_eq!(red["checks"][0]["ok"], false, "{red}");
    // An outage takes its time; this is its length, not a wait for something.
    tokio::time::sleep(outage).await;
    assert_eq!(last.load(Ordering::SeqCst), 202);
    assert!(!folder.segments().is_empty());
    cluster.resume();
    // The book comes out of the spool though its writers go on.
    comes(200).await;
    ready(&api, 200).await;
    stop.store(true, Ordering::SeqCst);
    let mut all = Written::default();
    for written in writers.join_all().await {
        all.acknowledged.extend(written.acknowledged);
        all.slowest = all.slowest.max(written.slowest);
        for (status, posts) in written.statuses {
            *all.statuses.entry(status).or_default() += posts;
        }
    }
    drained(&api).await;
    println!("{outage:?}: {:?}, slowest {:?}", all.statuses, all.slowest);
    let statuses: Vec<u16> = all.statuses.keys().copied().collect();
    assert_eq!(statuses, [200, 202]);
    let clicks = i64::try_from(all.acknowledged.len()).unwrap();
    assert_eq!(stored(&database).await, all.acknowledged);
    assert_eq!(counted(&api, "b").await, clicks);
    assert_eq!(totals(&api, "b").await["on_time"], clicks);
    let spooled = metric(&api, "pagetide_spooled_clicks_total").await;
    assert_eq!(spooled, i64::try_from(all.statuses[&202]).unwrap());
    assert!(metric(&api, "pagetide_drained_clicks_total").await >= spooled);
    assert_eq!(metric(&api, "pagetide_spool_bytes").await, 0);
    assert_eq!(folder.segments(), Vec::<std::path::PathBuf>::new());
    // Each writer's clicks stand in the log in the order in which they were sent.
    let out_of_order = "SELECT count(*) FROM (
            SELECT value_micros < lag(value_micros) OVER (PARTITION BY page ORDER BY seq) AS back
            FROM clicks) c WHERE back";
    assert_eq!(database.number(out_of_order).await, 0);
}

#[tokio::test]
async fn a_server_killed_while_clicks_wait_has_them_counted_by_the_next() {
    let (cluster, folder) = (Cluster::start(), Folder::new());
    let database = Database::create_on(cluster.socket_url()).await;
    let first = server(&database, &folder).await;
    let api = first.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("before", "/a")).await;
    cluster.stop("immediate");
    let mut sent = HashSet::from(["before".to_owned()]);
    for n in 0..50 {
        let id = format!("spooled-{n}");
        let receipt = spool(&api, "b", &click(&id, "/a")).await;
        assert_eq!(
            receipt,
            json!({"received": 1, "spooled": 1, "filtered": 0, "rejected": 0,
                                   "exceptions": []})
        );
        sent.insert(id);
    }
    // Sent again, whatever waits, it counts once.
    spool(
        &api,
        "b",
        &json!([click("spooled-7", "/a"), click("before", "/a")]),
    )
    .await;
    first.kill().await;
    cluster.resume();
    let next = server(&database, &folder).await;
    let api = next.api();
    drained(&api).await;
    let clicks = i64::try_from(sent.len()).unwrap();
    assert_eq!(counted(&api, "b").await, clicks);
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, clicks);
    assert_eq!(totals(&api, "b").await["duplicates"], 2);
    assert_eq!(api.clicks("b", click("after", "/a")).await["on_time"], 1);
}

#[tokio::test]
async fn what_cannot_be_checked_is_not_acknowledged() {
    let (cluster, folder) = (Cluster::start(), Folder::new());
    let database = Database::create_on(cluster.socket_url()).await;
    let server = server(&database, &folder).await;
    let api = server.api();
    api.plain_book("known", 60_000, 60_000).await;
    api.plain_book("unknown", 60_000, 60_000).await;
    let new = json!({"books": ["known"], "scopes": ["write"]});
    let token = async || {
        let token = api.post("/v1/tokens", &new).await.expect(201);
        api.with_token(token["token"].as_str().unwrap())
    };
    let (used, unused) = (token().await, token().await);
    used.clicks("known", click("a", "/a")).await;
    cluster.stop("fast");
    let path = "/v1/books/known/clicks";
    spool(&used, "known", &click("b", "/a")).await;
    // The book was made here, and is not remembered: nobody has asked for it yet.
    for (api, path) in [(&unused, path), (&api, "/v1/books/unknown/clicks")] {
        let answer = api.post(path, &click("c", "/a")).await;
        assert!(answer.headers.contains_key("retry-after"));
        assert_eq!(answer.problem(503), "unavailable", "{path}");
    }
    // What is no click needs no database.
    let nothing = used.post(path, &json!({"page": ""})).await;
    assert_eq!(nothing.problem(422), "all_rejected");
    let part = json!([click("d", "/a"), {"page": ""}]);
    let receipt = spool(&used, "known", &part).await;
    assert_eq!(
        (&receipt["spooled"], &receipt["rejected"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(receipt["exceptions"][0]["reason"], "page_empty");
    cluster.resume();
    drained(&api).await;
    assert_eq!(counted(&api, "known").await, 3);
}
