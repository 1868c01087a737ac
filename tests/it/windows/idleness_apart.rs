//! What does not move a book's watermark, and what a log of the steps is worth.

use serde_json::{Value, json};
use sqlx::Row;

use super::idleness::{book, fires, show, steps};
use super::{Shown, by_page, counted, ms, now_ms, session, tumbling};
use crate::harness::steps::execute;
use crate::harness::{Database, Server, start, until};

#[tokio::test]
async fn nothing_but_its_own_idleness_moves_a_book() {
    let database = Database::create().await;
    let server = Server::start(&database).await;
    let api = server.api();
    let settings = |idle: Value| json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": idle});
    let still = [
        ("off", json!(null)),
        ("long", json!(3_600_000)),
        ("closed", json!(null)),
        ("no-clicks", json!(1)),
    ];
    for (slug, idle) in &still {
        book(&api, slug, 1000, settings(idle.clone())).await;
        if *slug != "no-clicks" {
            let clicks = json!([{"page": "/a", "at": 1000}, {"page": "/a", "at": 5500}]);
            assert_eq!(api.clicks(slug, clicks).await["on_time"], 2);
        }
    }
    api.post("/v1/books/closed/close", &Value::Null)
        .await
        .expect(200);
    let soon = json!({"settings": {"idle_timeout_ms": 1}});
    api.patch("/v1/books/closed", &soon).await.expect(200);
    book(&api, "busy", 1, settings(json!(1))).await;
    let mut before = Vec::new();
    for (slug, _) in &still {
        let shown = show(&api, slug).await;
        before.push((shown, counted(&api, slug, "pages").await));
    }
    assert_eq!(ms(&before[0].0["watermark"]), 5500);
    assert_eq!(before[3].0["watermark"], Value::Null);

    // Before the crash and after it, another book has clicks and becomes idle.
    let mut server = server;
    for crash in [false, true] {
        if crash {
            server.signal("KILL");
            server.ended().await;
            server = Server::start(&database).await;
        }
        let api = server.api();
        let mut busy = api.follow("busy", "", None).await;
        for _ in 0..2 {
            api.clicks("busy", json!({"page": "/a"})).await;
            fires(&mut busy).await;
        }
        for ((slug, _), (shown, windows)) in still.iter().zip(&before) {
            assert_eq!(show(&api, slug).await, *shown, "{slug}");
            assert_eq!(counted(&api, slug, "pages").await, *windows, "{slug}");
            assert_eq!(steps(&database, slug).await, [], "{slug}");
        }
    }
}

#[tokio::test]
async fn a_restart_does_not_wind_the_idle_clock_up_again() {
    const HOUR: i64 = 3_600_000;
    let (database, server) = start().await;
    let api = server.api();
    let settings = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": HOUR - 60_000,
                          "max_future_ms": null});
    book(&api, "b", 1000, settings).await;
    let at = now_ms() - 10 * HOUR;
    api.clicks("b", json!({"page": "/a", "at": at})).await;
    server.signal("KILL");
    server.ended().await;
    // As if it had been down for an hour.
    let ago = format!("UPDATE books SET last_received_ms = last_received_ms - {HOUR}");
    execute(&database, &ago).await;
    let server = Server::start(&database).await;
    let api = server.api();
    let mut events = api.follow("b", "", Some("1")).await;
    let fired = fires(&mut events).await;
    let received = database.number("SELECT last_received_ms FROM books").await;
    let idle = ms(&fired["at"]) - received;
    assert!(idle >= HOUR, "{fired}");
    assert_eq!(ms(&fired["watermark"]), at + idle);
}

/// Where a book's watermark stands, from its log alone: clicks and whatever else is written there,
/// by sequence. At each click it must be the one that the click was judged against.
async fn replayed(database: &Database, slug: &str, delay_ms: i64) -> Option<i64> {
    let sql = "SELECT l.kind, l.at_ms, l.watermark_before_ms, l.body
               FROM (SELECT book_id, seq, 'click' AS kind, at_ms, watermark_before_ms,
                            'null'::jsonb AS body FROM clicks
                     UNION ALL
                     SELECT book_id, seq, kind, NULL, NULL, body FROM book_log) l
               JOIN books b ON b.id = l.book_id
               WHERE b.slug = $1 ORDER BY l.seq";
    let rows = sqlx::query(sql).bind(slug);
    let rows = rows.fetch_all(&mut database.connect().await).await.unwrap();
    let (mut delay_ms, mut newest, mut watermark, mut before_close) = (delay_ms, None, None, None);
    let mut kinds = Vec::new();
    for row in rows {
        let (kind, at): (String, Option<i64>) = (row.get(0), row.get(1));
        let body: Value = row.get(3);
        match &*kind {
            "click" => {
                assert_eq!(row.get::<Option<i64>, _>(2), watermark, "before {at:?}");
                newest = newest.max(at);
                watermark = watermark.max(newest.map(|newest| newest - delay_ms));
            }
            "idle" => {
                let to = body["watermark_ms"].as_i64();
                assert!(to > watermark, "a step that is none: {to:?}");
                watermark = to;
            }
            "settings" => delay_ms = body["settings"]["delay_ms"].as_i64().unwrap(),
            "closed" => {
                before_close = watermark;
                watermark = Some(253_402_300_799_999);
            }
            "reopened" => watermark = before_close,
            other => panic!("what is {other}?"),
        }
        kinds.push(kind);
    }
    for kind in ["click", "idle", "settings", "closed", "reopened"] {
        assert!(kinds.iter().any(|k| k == kind), "no {kind} in {kinds:?}");
    }
    watermark
}

#[tokio::test]
async fn the_log_by_itself_gives_the_watermark() {
    let (database, server) = start().await;
    let api = server.api();
    let settings = json!({"delay_ms": 200, "lateness_ms": 86_400_000, "idle_timeout_ms": 300,
                          "max_future_ms": null});
    book(&api, "b", 100, settings).await;
    let old = now_ms() - 60_000;
    let post = async |offsets: &[i64]| {
        let clicks = offsets.iter().map(|o| json!({"page": "/a", "at": old + o}));
        api.clicks("b", clicks.collect()).await
    };
    // The newest window is open after a click, and nothing closes within a day.
    let all_fires = async || {
        until("the last window fires by itself", async || {
            let open = database.number("SELECT count(*) FROM windows WHERE NOT fired");
            (open.await == 0).then_some(())
        })
        .await;
    };
    post(&[0, 150, -300, 40]).await;
    all_fires().await;
    post(&[10_000, 5000, 9990]).await;
    for delay_ms in [5000, 0] {
        let set = json!({"settings": {"delay_ms": delay_ms}});
        api.patch("/v1/books/b", &set).await.expect(200);
        // Older than the newest, which counts all the same.
        post(&[9000, 9500]).await;
    }
    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    api.post("/v1/books/b/reopen", &Value::Null)
        .await
        .expect(200);
    post(&[12_000, 11_000]).await;
    all_fires().await;
    let stored = database.number("SELECT watermark_ms FROM books").await;
    assert_eq!(replayed(&database, "b", 200).await, Some(stored));
}

#[tokio::test]
async fn what_fired_at_a_close_stays_fired_when_the_book_is_reopened() {
    let (_database, server) = start().await;
    let api = server.api();
    let rollups = [
        by_page("pages", tumbling(10)),
        by_page("visits", session(10)),
    ];
    let settings = json!({"delay_ms": 0, "lateness_ms": 1000, "idle_timeout_ms": null,
                          "max_future_ms": null});
    let fields = json!({"rollups": rollups, "settings": settings});
    api.book("b", fields).await;
    let mut shown = Shown::default();
    let mut position = 0;
    let post = async |at: i64| {
        let taken = api.clicks("b", json!({"page": "/a", "at": at})).await;
        assert_eq!(taken["dropped"], 0, "{taken}");
    };
    post(1003).await;
    for round in 0..2 {
        let before = show(&api, "b").await["watermark"].clone();
        let closed = api.post("/v1/books/b/close", &Value::Null).await;
        assert_eq!(closed.expect(200)["watermark"], "9999-12-31T23:59:59.999Z");
        let click = json!({"page": "/a", "at": 1004});
        let refused = api.post("/v1/books/b/clicks", &click).await;
        assert_eq!(refused.problem(409), "book_closed");
        let reopened = api.post("/v1/books/b/reopen", &Value::Null).await;
        assert_eq!(reopened.expect(200)["watermark"], before);
        // Into the window that fired; joining the session that fired; and anew.
        post(1007 + round).await;
        post(1001).await;
        post(1020 + 20 * round).await;
        let cursor = position.to_string();
        let mut events = api.follow("b", "", Some(&cursor)).await;
        position = show(&api, "b").await["position"].as_i64().unwrap();
        // That nothing fires twice is checked where the frames are read.
        let emissions = shown.learn_all(&events.through(position).await);
        let of = |rollup: &str| -> Vec<&str> {
            let all = emissions.iter().filter(|e| e.key.0 == rollup);
            all.map(|e| &*e.pane).collect()
        };
        assert_eq!(of("pages"), ["on_time", "late", "late"], "round {round}");
        assert_eq!(of("visits"), ["on_time", "late", "late"], "round {round}");
        shown
            .equals_counts_and_snapshot(&api, "b", &["pages", "visits"])
            .await;
    }
}

/// Event time does not go on with the clock while a sender is catching up, nor from before a
/// reopening, which would take away the watermark that it has brought back.
#[tokio::test]
async fn known_clicks_and_a_reopening_are_no_idleness() {
    let (database, server) = start().await;
    let api = server.api();
    let settings = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": null});
    book(&api, "b", 1000, settings).await;
    let click = json!({"id": "known", "page": "/a", "at": 1000});
    api.clicks("b", click.clone()).await;
    let received = "SELECT last_received_ms FROM books";
    let long_ago = "UPDATE books SET last_received_ms = 1";
    execute(&database, long_ago).await;
    let began = now_ms();
    assert_eq!(api.clicks("b", click).await["duplicates"], 1);
    assert!(database.number(received).await >= began);
    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    execute(&database, long_ago).await;
    let book = api
        .post("/v1/books/b/reopen", &Value::Null)
        .await
        .expect(200);
    assert_eq!(ms(&book["watermark"]), 1000);
    assert!(database.number(received).await >= began);
}
