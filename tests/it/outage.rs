//! Postgres goes away and comes back; the server is killed. No acknowledged click is lost, and none
//! counts twice.

#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::cluster::Cluster;
use crate::harness::load::{Load, Written, click, counted, metric, stored, totals};
use crate::harness::{Answer, Api, Database, PATIENCE, Server, start, until};

/// Longest time that a client waits for a refusal while Postgres is away.
const QUICKLY: Duration = Duration::from_secs(5);

/// Shorter heartbeats, so that a test sees some.
const HEARTBEAT: [(&str, &str); 1] = [("PAGETIDE_HEARTBEAT_MS", "300")];

/// A post is refused; gives how long that took.
async fn refused(api: &Api, body: &Value) -> Duration {
    let began = Instant::now();
    let answer = api.post("/v1/books/b/clicks", body).await;
    let took = began.elapsed();
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(answer.problem(503), "unavailable");
    took
}

async fn ready(api: &Api) -> Answer {
    api.get("/readyz").await
}

/// Every click that was acknowledged is stored and counted, once; nothing else is.
async fn exactly_once(database: &Database, api: &Api, written: &Written) {
    let clicks = i64::try_from(written.acknowledged.len()).unwrap();
    println!(
        "{clicks} clicks acknowledged; {} posts failed, {} of them had been committed",
        written.failed, written.duplicates
    );
    assert_eq!(stored(database).await, written.acknowledged);
    assert_eq!(counted(api, "b").await, clicks);
    assert_eq!(totals(api, "b").await["on_time"], clicks);
}

/// Postgres is stopped, and started again, under an open stream.
async fn survives(cluster: &Cluster, url: String, mode: &str) {
    let database = Database::create_on(url).await;
    let server = Server::start_with(&database, &HEARTBEAT).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let first = click("/first").1;
    api.clicks("b", first.clone()).await;
    let mut stream = api.follow("b", "?heartbeat=event", None).await;
    stream.expect("hello").await;
    assert_eq!(ready(&api).await.status, 200);

    cluster.stop(mode);
    let second = click("/second").1;
    // Just after the loss, while the book is still remembered, and later.
    let stopped = Instant::now();
    let mut longest = Duration::ZERO;
    while stopped.elapsed() < Duration::from_secs(3) {
        longest = longest.max(refused(&api, &second).await);
    }
    println!("refused after {longest:?} at most");
    let readyz = ready(&api).await.expect(503);
    assert_eq!(readyz["status"], "not_ready");
    assert_eq!(readyz["checks"][0]["name"], "database");
    assert_eq!(readyz["checks"][0]["ok"], false);
    api.get("/healthz").await.expect(200);
    for _ in 0..5 {
        assert_eq!(stream.expect("heartbeat").await.data["position"], 1);
    }

    cluster.resume();
    let receipt = until("clicks are taken again", async || {
        let answer = api.post("/v1/books/b/clicks", &second).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(receipt["position"], 2);
    assert_eq!(api.clicks("b", first).await["duplicates"], 1);
    assert_eq!(api.clicks("b", second).await["duplicates"], 1);
    let events = stream.through(2).await;
    let names: Vec<&str> = events.iter().map(|e| e.name.as_str()).collect();
    assert!(!names.contains(&"resync_required"), "{names:?}");
    assert_eq!(events.last().unwrap().data["totals"]["on_time"], 2);
    assert_eq!(counted(&api, "b").await, 2);
    until("the process is ready again", async || {
        (ready(&api).await.status == 200).then_some(())
    })
    .await;
    assert!(server.terminate().await.success());
    assert!(longest < QUICKLY, "refused only after {longest:?}");
}

#[tokio::test]
async fn a_postgres_stopped_and_started_behind_a_socket_is_survived() {
    let cluster = Cluster::start();
    survives(&cluster, cluster.socket_url(), "fast").await;
}

#[tokio::test]
async fn a_postgres_stopped_and_started_behind_tcp_is_survived() {
    let cluster = Cluster::start();
    survives(&cluster, cluster.tcp_url(), "fast").await;
}

#[tokio::test]
async fn a_postgres_that_crashes_and_recovers_is_survived() {
    let cluster = Cluster::start();
    survives(&cluster, cluster.socket_url(), "immediate").await;
}

#[tokio::test]
async fn a_postgres_that_hangs_is_an_outage_too() {
    let cluster = Cluster::start();
    let database = Database::create_on(cluster.socket_url()).await;
    let server = Server::start(&database).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("/a").1).await;
    cluster.signal("STOP");
    let (_, body) = click("/b");
    let refusal = tokio::time::timeout(PATIENCE / 2, refused(&api, &body)).await;
    let readyz = ready(&api).await.status;
    cluster.signal("CONT");
    assert_eq!(readyz, 503);
    refusal.expect("a post was left without an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_killed_at_random_moments_lose_no_click_and_count_none_twice() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let load = Load::start(&api, "b", 16);
    let end = Instant::now() + Duration::from_secs(5);
    let mut killed = 0;
    while Instant::now() < end {
        killed += database
            .number(
                "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'pagetide'",
            )
            .await;
        // A random moment, not a wait.
        let pause = rand::random_range(5..120);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let written = load.finish().await;
    println!("{killed} backends killed");
    assert!(killed > 20, "{killed} backends killed");
    assert!(metric(&api, "pagetide_retries_total").await > 0.0);
    exactly_once(&database, &api, &written).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_crashes_under_load_loses_no_click_and_counts_none_twice() {
    let cluster = Cluster::start();
    let database = Database::create_on(cluster.socket_url()).await;
    let server = Server::start(&database).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let load = Load::start(&api, "b", 16);
    for _ in 0..3 {
        more_clicks(&load).await;
        cluster.stop("immediate");
        cluster.resume();
    }
    more_clicks(&load).await;
    let written = load.finish().await;
    // Where it recovers at once, a second try inside the server is all that is seen of a crash.
    let retries = metric(&api, "pagetide_retries_total").await;
    assert!(retries > 0.0, "the server did not notice");
    exactly_once(&database, &api, &written).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_loses_no_click_and_counts_none_twice() {
    let (database, mut server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let load = Load::start(&api, "b", 16);
    for _ in 0..5 {
        more_clicks(&load).await;
        server.signal("KILL");
        assert!(!server.ended().await.success());
        server = Server::start(&database).await;
        load.move_to(&server.url);
    }
    more_clicks(&load).await;
    let written = load.finish().await;
    assert!(written.failed > 0, "the load did not notice");
    exactly_once(&database, &server.api(), &written).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_reconnects_after_kills_sees_every_position_once() {
    let (database, mut server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let mut seen = Vec::new();
    let mut stream = api.follow("b", "", None).await;
    stream.expect("hello").await;
    let load = Load::start(&api, "b", 4);
    for _ in 0..4 {
        more_clicks(&load).await;
        server.signal("KILL");
        assert!(!server.ended().await.success());
        while let Some(event) = stream.next().await {
            seen.extend(event.position());
        }
        server = Server::start(&database).await;
        load.move_to(&server.url);
        let cursor = seen.last().copied().unwrap_or(0).to_string();
        stream = server.api().follow("b", "", Some(&cursor)).await;
    }
    let written = load.finish().await;
    let book = server.api().get("/v1/books/b").await.expect(200);
    let position = book["position"].as_i64().unwrap();
    if seen.last().is_none_or(|last| *last < position) {
        let rest = stream.through(position).await;
        assert!(rest.iter().all(|event| event.name != "resync_required"));
        seen.extend(rest.iter().filter_map(crate::harness::sse::Event::position));
    }
    assert_eq!(seen, (1..=position).collect::<Vec<_>>());
    exactly_once(&database, &server.api(), &written).await;
}

/// Waits until some more clicks are acknowledged.
async fn more_clicks(load: &Load) {
    let enough = load.acknowledged() + rand::random_range(50..150);
    until("more clicks are acknowledged", async || {
        (load.acknowledged() >= enough).then_some(())
    })
    .await;
}
