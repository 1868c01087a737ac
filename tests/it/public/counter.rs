//! The numbers.

use std::sync::Arc;
use std::time::Duration;

use pagetide::counts::public::{FRESH_FOR, PublicCounts, PublicError};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgPool};
use tokio_util::task::TaskTracker;

use super::{ask, public, set_public};
use crate::harness::{Answer, Api, Database, Server, start, until};

/// A book with the usual rollups and a public counter.
async fn start_public() -> (Database, Server, Api) {
    let (database, server) = start().await;
    let api = server.api();
    let fields = json!({"settings": {"public_counter": true}});
    let book = api.book("b", fields).await;
    assert_eq!(book["settings"]["public_counter"], true);
    (database, server, api)
}

#[tokio::test]
async fn views_and_readers_are_those_that_were_counted() {
    let (_database, _server, api) = start_public().await;
    assert_eq!(
        public(&api, "").await,
        json!({"readers_now": 0, "views": 0})
    );
    let click = |page: &str, visitor: &str| json!({"page": page, "visitor": visitor});
    let clicks = json!([
        click("/a", "ann"),
        click("/a", "bob"),
        click("/a", "ann"),
        click("/b/index.html", "cleo"),
        click("", "nobody")
    ]);
    api.clicks("b", clicks).await;
    // For a minute what was read is given again.
    assert_eq!(public(&api, "").await["views"], 0);
    set_public(&api, "b", true).await;
    assert_eq!(
        public(&api, "").await,
        json!({"readers_now": 3, "views": 4})
    );
    // A page by whatever name; nobody counts its readers.
    for (page, canonical, views) in [
        ("/a", "/a", 3),
        ("/a.html%23part", "/a", 3),
        ("https://book.example/b/?x", "/b", 1),
        ("/missing", "/missing", 0),
    ] {
        let expected = json!({"page": canonical, "readers_now": null, "views": views});
        assert_eq!(public(&api, &format!("?page={page}")).await, expected);
    }
    // Who came longer ago than the last minutes reads no more.
    let before = json!([{"page": "/a", "visitor": "dora", "age_ms": 6 * 60_000}]);
    api.clicks("b", before).await;
    set_public(&api, "b", true).await;
    assert_eq!(
        public(&api, "").await,
        json!({"readers_now": 3, "views": 5})
    );
}

#[tokio::test]
async fn nothing_is_told_of_what_a_book_does_not_count() {
    let (_database, server) = start().await;
    let api = server.api();
    let sliding = json!({"kind": "sliding", "size_ms": 300_000, "slide_ms": 60_000});
    let tumbling = json!({"kind": "tumbling", "size_ms": 1000});
    let rollup = |name: &str, group_by: &str, aggregate: &str, window: &Value| json!({"name": name, "group_by": group_by, "aggregate": aggregate, "window": window});
    let fields = json!({
        "rollups": [rollup("sliding", "page", "count", &sliding),
                    rollup("readers", "page", "distinct", &sliding)],
        "settings": {"public_counter": true},
    });
    api.book("b", fields).await;
    api.clicks(
        "b",
        json!([{"page": "/a", "visitor": "v"}, {"page": "/a", "visitor": "w"}]),
    )
    .await;
    assert_eq!(
        public(&api, "").await,
        json!({"readers_now": null, "views": 2})
    );
    let of_page = json!({"page": "/a", "readers_now": 2, "views": null});
    assert_eq!(public(&api, "?page=/a").await, of_page);
    let fields = json!({"rollups": [rollup("pages", "page", "count", &tumbling)],
                        "settings": {"public_counter": true}});
    api.book("c", fields).await;
    let answer = ask(&api, "/v1/books/c/public?page=/a").await;
    assert_eq!(
        answer.expect(200),
        json!({"page": "/a", "readers_now": null, "views": 0})
    );
}

/// What is kept of closed windows from one reading to the next must never differ from what all of them
/// hold: through imports, the close, and the end of what is kept.
#[tokio::test]
async fn views_of_a_page_are_those_of_all_windows_whatever_happens_in_between() {
    let (database, server) = start().await;
    let api = server.api();
    // One that believes nothing for long, but keeps what it may.
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let kept = PublicCounts::new((pool.clone(), pool), TaskTracker::new(), Duration::ZERO);
    let fields = json!({
        "rollups": [{"name": "short", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": 500}},
                    {"name": "pages", "group_by": "page", "aggregate": "count", "lateness_ms": 3000,
                     "window": {"kind": "tumbling", "size_ms": 1000}}],
        "settings": {"delay_ms": 0, "lateness_ms": 1000, "max_future_ms": null,
                     "idle_timeout_ms": null, "public_counter": true},
    });
    api.book("b", fields).await;
    let check = async |what: &str| {
        let path = "/v1/books/b/counts?rollup=pages&merge=true&group=/a";
        let counts = api.get(path).await.expect(200);
        let views = counts["items"][0]["value"].as_i64().unwrap_or(0);
        let found = kept.of("b", Some("/a")).await.unwrap().unwrap();
        assert_eq!(found.views, Some(views), "{what}");
        let again = kept.of("b", Some("/a")).await.unwrap().unwrap();
        assert_eq!(again, found, "{what}, and nothing else");
    };
    let click = |at: i64| json!([{"page": "/a", "at": at}, {"page": "/b", "at": at}]);
    check("nothing").await;
    for at in [0, 100, 1200, 2500, 9000, 9900, 31_000] {
        api.clicks("b", click(at)).await;
        check(&format!("a click at {at}")).await;
    }
    // A window that is fired and takes late clicks still; then one in which nobody read the page.
    api.clicks("b", click(28_900)).await;
    check("a late click").await;
    api.clicks("b", json!({"page": "/b", "at": 50_000})).await;
    check("another page's click").await;
    api.post("/v1/books/b/close", &json!({})).await.expect(200);
    check("the close").await;
    api.post("/v1/books/b/reopen", &json!({})).await.expect(200);
    api.clicks("b", click(50_100)).await;
    check("a click after it was reopened").await;
    // An import reaches closed windows.
    let lines = "{\"page\":\"/a\",\"at\":100}\n{\"page\":\"/a\",\"at\":700}\n";
    let import = api.request(Method::POST, "/v1/books/b/imports?format=ndjson");
    let import = Answer::of(import.body(lines)).await;
    assert_eq!(import.expect(200)["state"], "done");
    check("an import").await;
    api.clicks("b", click(90_000)).await;
    check("a click after the import").await;
    // So does a recount, which brings in what was too late.
    let too_late = api.clicks("b", click(1100)).await;
    assert_eq!(too_late["dropped"], 2, "{too_late}");
    check("a click that is too late").await;
    let run = api
        .post("/v1/books/b/runs", &json!({"kind": "recount"}))
        .await;
    let run = run.expect(202)["id"].as_str().unwrap().to_owned();
    until("the recount is done", async || {
        let run = api
            .get(&format!("/v1/books/b/runs/{run}"))
            .await
            .expect(200);
        (run["state"] == "done").then_some(())
    })
    .await;
    check("a recount").await;
    let found = kept.of("b", Some("/a")).await.unwrap().unwrap();
    assert_eq!(found.views, Some(13));
}

/// Who asks and hangs up makes no room for another: the statement goes on. What it finds is remembered,
/// for each name that the page has.
#[tokio::test]
async fn a_reading_has_its_turn_to_its_end() {
    let (database, _server, api) = start_public().await;
    api.clicks("b", json!([{"page": "/a"}])).await;
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let tasks = TaskTracker::new();
    let counts = PublicCounts::new((pool.clone(), pool), tasks.clone(), FRESH_FOR);
    let counts = Arc::new(counts);
    let views = async |page: Option<&str>| {
        let found = counts.of("b", page).await?;
        Ok::<_, PublicError>(found.unwrap().views.unwrap())
    };
    assert_eq!(views(None).await.unwrap(), 1);
    let mut holder = database.connect().await;
    let mut held = holder.begin().await.unwrap();
    let lock = "LOCK TABLE windows IN ACCESS EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *held).await.unwrap();
    for (before, page) in ["/a", "/c"].into_iter().enumerate() {
        let of = Arc::clone(&counts);
        let asking = tokio::spawn(async move { of.of("b", Some(page)).await.map(drop) });
        until("the reading waits for the table", async || {
            let waiting = "SELECT count(*) FROM pg_stat_activity
                           WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let waiting = usize::try_from(database.number(waiting).await).unwrap();
            (waiting > before).then_some(())
        })
        .await;
        asking.abort();
    }
    let busy = views(Some("/d")).await;
    assert!(matches!(busy, Err(PublicError::Busy)), "{busy:?}");
    assert_eq!(views(None).await.unwrap(), 1, "a book waits for no page");
    held.rollback().await.unwrap();
    tasks.close();
    tasks.wait().await;
    api.clicks("b", json!([{"page": "/a"}])).await;
    for page in ["/a", "/a?1", "/a?2", "/x/../a.html#b"] {
        assert_eq!(views(Some(page)).await.unwrap(), 1, "{page}");
    }
    assert_eq!(views(Some("/d")).await.unwrap(), 0);
    // Another process makes the book private: what is read from then on says so.
    set_public(&api, "b", false).await;
    assert_eq!(counts.of("b", Some("/e")).await.unwrap(), None);
    assert_eq!(counts.of("b", None).await.unwrap(), None);
}

/// With more lateness, set by another process, windows that were closed take clicks again.
#[tokio::test]
async fn windows_that_are_open_again_are_read_again() {
    let (database, server) = start().await;
    let api = server.api();
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let kept = PublicCounts::new((pool.clone(), pool), TaskTracker::new(), Duration::ZERO);
    let fields = json!({
        "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": 1000}}],
        "settings": {"delay_ms": 0, "lateness_ms": 0, "max_future_ms": null,
                     "idle_timeout_ms": null, "public_counter": true},
    });
    api.book("b", fields).await;
    let views = async || kept.of("b", Some("/a")).await.unwrap().unwrap().views;
    let click = |at: i64| json!([{"page": "/a", "at": at}]);
    api.clicks("b", click(100)).await;
    api.clicks("b", click(5000)).await;
    assert_eq!(views().await, Some(2));
    let settings = json!({"settings": {"lateness_ms": 60_000}});
    api.patch("/v1/books/b", &settings).await.expect(200);
    api.clicks("b", click(200)).await;
    assert_eq!(views().await, Some(3));
}
