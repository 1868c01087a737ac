//! What a book keeps no longer goes, and nothing else; and nobody who writes or reads it is the worse
//! for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pagetide::book::retention::{Taken, limited, take};
use serde_json::{Value, json};
use sqlx::Connection;

use crate::harness::load::{hold, totals, views};
use crate::harness::steps::{execute, metric, without_waiting_for_the_disk};
use crate::harness::{Api, Database, Server, until};

const DAY_MS: i64 = 24 * 3_600_000;

/// A server that sweeps all the time.
async fn start() -> (Database, Server) {
    let database = Database::create().await;
    without_waiting_for_the_disk(&database).await;
    let server = Server::start_with(&database, &[("PAGETIDE_RETENTION_EVERY_MS", "20")]).await;
    (database, server)
}

/// A book whose clicks of any time count.
async fn book(api: &Api, slug: &str, click_days: Value, count_days: Value) {
    let window = json!({"kind": "tumbling", "size_ms": 1000});
    let fields = json!({
        "rollups": [
            {"name": "pages", "group_by": "page", "aggregate": "count", "window": window},
            {"name": "visits", "group_by": "page", "aggregate": "count",
             "window": {"kind": "session", "gap_ms": 1000}}],
        "settings": {"delay_ms": 0, "lateness_ms": 3_600_000, "max_future_ms": null,
                     "idle_timeout_ms": null, "click_retention_days": click_days,
                     "count_retention_days": count_days},
    });
    api.book(slug, fields).await;
}

/// Makes what there is of a book as old as so many days ago.
async fn age(database: &Database, slug: &str, days: i64) {
    let sql = format!(
        "UPDATE clicks SET received_ms = received_ms - {0}
         WHERE book_id = (SELECT id FROM books WHERE slug = '{slug}');
         UPDATE windows SET changed_ms = changed_ms - {0}
         WHERE book_id = (SELECT id FROM books WHERE slug = '{slug}');
         UPDATE books SET revision = revision WHERE slug = '{slug}'",
        days * DAY_MS
    );
    execute(database, &sql).await;
}

/// How many rows a book has in a table.
async fn rows(database: &Database, table: &str, slug: &str) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM {table} WHERE book_id = (SELECT id FROM books WHERE slug = '{slug}')"
    );
    database.number(&sql).await
}

async fn until_rows(database: &Database, table: &str, slug: &str, expected: i64) {
    let what = format!("{expected} {table} of {slug}");
    until(&what, async || {
        (rows(database, table, slug).await == expected).then_some(())
    })
    .await;
}

/// Waits until a sweep that began after this has been past `slug`: the books are swept in the order in
/// which they were made, and what is old of the last one, which it must have found, goes.
async fn until_swept_past(database: &Database, api: &Api, slug: &str) {
    let after = format!("after-{slug}");
    book(api, &after, json!(1), json!(null)).await;
    api.clicks(&after, json!({"page": "/p", "at": 1000})).await;
    age(database, &after, 2).await;
    until_rows(database, "clicks", &after, 0).await;
}

#[tokio::test]
async fn old_clicks_go_and_new_ones_stay() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, "b", json!(30), json!(null)).await;
    let old = json!([{"id": "a", "page": "/a", "at": 5000}, {"id": "b", "page": "/b", "at": 9000},
                     {"id": "00000000-0000-0000-0000-000000000000", "page": "/c", "at": 1000}]);
    api.clicks("b", old).await;
    age(&database, "b", 29).await;
    until_swept_past(&database, &api, "b").await;
    assert_eq!(rows(&database, "clicks", "b").await, 3);
    age(&database, "b", 2).await;
    // What happened long ago and was received now is new.
    api.clicks("b", json!({"id": "new", "page": "/a", "at": 5000}))
        .await;
    until_rows(&database, "clicks", "b", 1).await;
    // Counts are kept, and so is what the book says of its clicks.
    assert_eq!(
        views(&api, "b").await,
        BTreeMap::from([("/a", 2), ("/b", 1), ("/c", 1)].map(|(p, n)| (p.to_owned(), n)))
    );
    assert_eq!(totals(&api, "b").await["received"], 4);
    let went = "SELECT clicks_removed_to_ms FROM books WHERE slug = 'b'";
    assert_eq!(database.number(went).await, 9000);
    // What went later and was earlier does not take that back.
    age(&database, "b", 31).await;
    until_rows(&database, "clicks", "b", 0).await;
    assert_eq!(database.number(went).await, 9000);
    // A click that has gone is forgotten.
    let again = api
        .clicks("b", json!({"id": "b", "page": "/b", "at": 9000}))
        .await;
    assert_eq!(
        (&again["duplicates"], &again["on_time"]),
        (&json!(0), &json!(1))
    );
    // Four of this book, and the one by which it was seen that a sweep was past it.
    let removed = metric(&api, "pagetide_retention_clicks_removed_total").await;
    assert_eq!(removed, 4 + 1);
}

#[tokio::test]
async fn counts_go_when_their_end_and_their_last_change_are_old() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, "b", json!(null), json!(2)).await;
    let now = pagetide::time::Timestamp::now().millis();
    let recent = now - DAY_MS;
    api.clicks(
        "b",
        json!([{"page": "/old", "at": 1000}, {"page": "/kept", "at": 5000},
               {"page": "/recent", "at": recent}]),
    )
    .await;
    // One of them was changed since, whatever its time of event.
    let old = format!(
        "UPDATE windows
         SET changed_ms = changed_ms - CASE group_key WHEN '/kept' THEN 1 ELSE 3 END * {DAY_MS}"
    );
    execute(&database, &old).await;
    // A window and a session of `/old`.
    until_rows(&database, "windows", "b", 4).await;
    until_swept_past(&database, &api, "b").await;
    for rollup in ["pages", "visits"] {
        let counts = api.counts("b", rollup).await;
        let groups: Vec<&Value> = counts.iter().map(|item| &item["group"]).collect();
        assert_eq!(groups, ["/kept", "/recent"], "{rollup}");
    }
    assert_eq!(rows(&database, "clicks", "b").await, 3);
    assert_eq!(
        metric(&api, "pagetide_retention_windows_removed_total").await,
        2
    );
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    let shown = snapshot["windows"].to_string();
    assert!(
        !shown.contains("/old") && shown.contains("/kept"),
        "{shown}"
    );
}

#[tokio::test]
async fn nobody_goes_on_from_counts_that_have_gone() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, "b", json!(null), json!(1)).await;
    // Alone and again and again, so that the lane knows the window by heart.
    for expected in 1..=5 {
        api.clicks("b", json!({"page": "/p", "at": 1000})).await;
        assert_eq!(views(&api, "b").await["/p"], expected);
    }
    let mut events = api.follow("b", "?snapshot=1", None).await;
    events.expect("hello").await;
    let shown = events.expect("snapshot").await.data;
    assert_eq!(shown["windows"][0]["values"], json!({"/p": 5}));
    // Without a word to the lane: it is the removal that must tell it.
    let old = format!(
        "UPDATE windows SET changed_ms = changed_ms - {}",
        2 * DAY_MS
    );
    execute(&database, &old).await;
    until_rows(&database, "windows", "b", 0).await;
    let counted = api.clicks("b", json!({"page": "/p", "at": 1000})).await;
    assert_eq!(views(&api, "b").await["/p"], 1);
    assert_eq!(
        events.expect("counts").await.data["panes"][0]["values"],
        json!({"/p": 1})
    );
    // What a snapshot shows has changed with each removal, so its revision has.
    let before = shown["revision"].as_i64().unwrap();
    assert!(
        counted["revision"].as_i64().unwrap() > before + 1,
        "{counted}"
    );
    let mut begun = api.follow("b", "?snapshot=1", None).await;
    begun.expect("hello").await;
    let shown = begun.expect("snapshot").await.data;
    assert_eq!(shown["windows"][0]["values"], json!({"/p": 1}));
}

/// As many old clicks, and windows of as many pages, as a book would gather.
async fn fill(database: &Database, slug: &str, rows: i64) {
    let sql = format!(
        "INSERT INTO clicks (book_id, click_id, seq, at_ms, received_ms, page)
         SELECT b.id, gen_random_uuid(), -n, n, n, '/old/' || n
         FROM books b, generate_series(1, {rows}) n WHERE b.slug = '{slug}';
         INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired, weight,
                              state, changed_ms)
         SELECT b.id, b.generation, 0, 1000 * (n % 100), 1000 * (n % 100 + 1), '/old/' || n, true, 1,
                w.state, n
         FROM books b, generate_series(1, {rows}) n,
              LATERAL (SELECT state FROM windows WHERE rollup = 0 AND n > 0 LIMIT 1) w
         WHERE b.slug = '{slug}'"
    );
    execute(database, &sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_under_load_loses_nothing_and_nobody_waits_for_long() {
    const ROWS: i64 = 30_000;
    let (database, server) = start().await;
    let api = server.api();
    book(&api, "b", json!(1), json!(1)).await;
    api.clicks("b", json!({"page": "/0", "at": 1000})).await;
    fill(&database, "b", ROWS).await;
    let done = AtomicBool::new(false);
    let writers = (0..8).map(|number| {
        let (api, done) = (api.clone(), &done);
        async move {
            let page = format!("/{number}");
            let (mut clicks, mut slowest) = (0, Duration::ZERO);
            while !done.load(Ordering::SeqCst) {
                let began = Instant::now();
                // An answer other than 200 fails the test.
                let answer = api.clicks("b", json!({"page": page, "at": 1000})).await;
                slowest = slowest.max(began.elapsed());
                assert_eq!(answer["on_time"], 1, "{answer}");
                clicks += 1;
            }
            (page, clicks, slowest)
        }
    });
    let swept = async {
        let old = "SELECT count(*) FROM clicks WHERE seq < 0";
        until("the old clicks go", async || {
            (database.number(old).await == 0).then_some(())
        })
        .await;
        let old = "SELECT count(*) FROM windows WHERE group_key LIKE '/old/%'";
        until("the old counts go", async || {
            (database.number(old).await == 0).then_some(())
        })
        .await;
        done.store(true, Ordering::SeqCst);
    };
    let (written, ()) = tokio::join!(join_all(writers), swept);
    let slowest = written.iter().map(|(_, _, slowest)| *slowest).max();
    let mut expected: BTreeMap<String, i64> = written
        .into_iter()
        .map(|(page, clicks, _)| (page, clicks))
        .collect();
    *expected.get_mut("/0").unwrap() += 1;
    let clicks: i64 = expected.values().sum();
    eprintln!("{clicks} clicks meanwhile, the slowest took {slowest:?}");
    assert!(clicks > 100, "{clicks} clicks are no load");
    assert_eq!(views(&api, "b").await, expected);
    assert_eq!(rows(&database, "clicks", "b").await, clicks);
    assert_eq!(totals(&api, "b").await["received"], clicks);
    // Far less than what a transaction waits for a row at most, after which it is tried again.
    assert!(slowest < Some(Duration::from_secs(1)), "{slowest:?}");
    assert_eq!(metric(&api, "pagetide_retries_total").await, 0);
    let removed = metric(&api, "pagetide_retention_clicks_removed_total").await;
    assert_eq!(removed, ROWS);
    let removed = metric(&api, "pagetide_retention_windows_removed_total").await;
    assert_eq!(removed, ROWS);
}

#[tokio::test]
async fn a_book_that_somebody_holds_does_not_hold_up_the_others() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, "b", json!(1), json!(null)).await;
    api.clicks("b", json!({"page": "/p", "at": 1000})).await;
    let mut holder = hold(&database, "b").await;
    let old = format!(
        "UPDATE clicks SET received_ms = received_ms - {}",
        2 * DAY_MS
    );
    execute(&database, &old).await;
    until_swept_past(&database, &api, "b").await;
    assert_eq!(rows(&database, "clicks", "b").await, 1);
    // Nobody stood in line for the row.
    assert_eq!(crate::harness::load::waiting(&database).await, 0);
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .unwrap();
    until_rows(&database, "clicks", "b", 0).await;
}

#[tokio::test]
async fn a_book_at_which_a_run_is_at_work_is_left_alone() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, "b", json!(1), json!(1)).await;
    api.clicks("b", json!({"page": "/p", "at": 1000})).await;
    let run = "UPDATE books SET live_run = gen_random_uuid() WHERE slug = 'b'";
    execute(&database, run).await;
    age(&database, "b", 2).await;
    until_swept_past(&database, &api, "b").await;
    assert_eq!(rows(&database, "clicks", "b").await, 1);
    assert_eq!(rows(&database, "windows", "b").await, 2);
    execute(&database, "UPDATE books SET live_run = NULL").await;
    until_rows(&database, "clicks", "b", 0).await;
    until_rows(&database, "windows", "b", 0).await;
}

/// Whether a step may be taken is judged under the row's lock, whatever was found before.
#[tokio::test]
async fn what_changed_since_a_book_was_found_is_seen() {
    let database = Database::create().await;
    let server = Server::start(&database).await;
    let api = server.api();
    book(&api, "b", json!(1), json!(null)).await;
    let mut conn = database.connect().await;
    let found = limited(&mut conn).await.unwrap().pop().unwrap();
    let mut taken = async || {
        let mut tx = conn.begin().await.unwrap();
        let taken = take(&mut tx, &found).await.unwrap();
        tx.rollback().await.unwrap();
        taken
    };
    assert_eq!(taken().await, Taken::Free);
    let mut holder = hold(&database, "b").await;
    assert_eq!(taken().await, Taken::Held);
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .unwrap();
    for (change, back) in [
        ("live_run = gen_random_uuid()", "live_run = NULL"),
        ("generation = 1", "generation = 0"),
        (
            "settings = settings || '{\"click_retention_days\": null}'",
            "settings = settings || '{\"click_retention_days\": 1}'",
        ),
    ] {
        execute(&database, &format!("UPDATE books SET {change}")).await;
        assert_eq!(taken().await, Taken::Changed, "{change}");
        execute(&database, &format!("UPDATE books SET {back}")).await;
        assert_eq!(taken().await, Taken::Free, "{back}");
    }
    execute(&database, "UPDATE books SET deleted = true").await;
    assert_eq!(taken().await, Taken::Held);
}

#[tokio::test]
async fn without_the_settings_everything_is_kept_and_they_are_checked() {
    let (database, server) = start().await;
    let api = server.api();
    let made = api.plain_book("b", 1000, 0).await;
    assert_eq!(made["settings"]["click_retention_days"], json!(null));
    assert_eq!(made["settings"]["count_retention_days"], json!(null));
    api.clicks("b", json!({"page": "/p", "at": 1000})).await;
    age(&database, "b", 40_000).await;
    until_swept_past(&database, &api, "b").await;
    assert_eq!(rows(&database, "clicks", "b").await, 1);
    assert_eq!(rows(&database, "windows", "b").await, 1);

    let set = async |name: &str, days: Value| {
        let patch = json!({"settings": {name: days}});
        api.patch("/v1/books/b", &patch).await
    };
    for name in ["click_retention_days", "count_retention_days"] {
        for days in [json!(0), json!(-1), json!(36_501)] {
            let answer = set(name, days).await;
            let error = answer.json()["errors"][0].clone();
            assert_eq!(error["field"], format!("settings.{name}"));
            assert_eq!(error["code"], "out_of_range");
            assert_eq!(answer.problem(422), "invalid");
        }
        for days in [json!(1.5), json!("1")] {
            assert_eq!(set(name, days).await.problem(422), "invalid");
        }
        let answer = set(name, json!(36_500)).await.expect(200);
        assert_eq!(answer["settings"][name], 36_500);
        let answer = set(name, json!(null)).await.expect(200);
        assert_eq!(answer["settings"][name], json!(null));
    }
}
