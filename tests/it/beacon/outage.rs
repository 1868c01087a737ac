//! The server goes and comes; readers go on reading.

use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::Stage;
use crate::harness::{Server, until};

/// The views that wait in the tab that is open.
const WAITING: &str = "return Object.values(sessionStorage).map(view => JSON.parse(view))
    .sort((a, b) => a.at - b.at).map(view => view.page)";

/// A view in the book's log.
struct Logged {
    page: String,
    at_ms: i64,
    source: Option<String>,
    referrer: Option<String>,
}

/// What the book's log holds, by time of event.
async fn log(stage: &Stage) -> Vec<Logged> {
    let mut conn = stage.database.connect().await;
    let rows = sqlx::query("SELECT page, at_ms, source, referrer FROM clicks ORDER BY at_ms")
        .fetch_all(&mut conn)
        .await
        .unwrap();
    let of = |row: PgRow| Logged {
        page: row.get(0),
        at_ms: row.get(1),
        source: row.get(2),
        referrer: row.get(3),
    };
    rows.into_iter().map(of).collect()
}

#[tokio::test]
async fn views_of_an_outage_arrive_each_once_and_with_their_own_times() {
    let mut stage = Stage::set().await;
    // Another page, another view; not another fragment or query.
    stage.visit("/ch01.html?utm_source=letter#top").await;
    stage
        .run(
            "history.pushState(null, '', '/ch02');
             history.replaceState(null, '', '/ch02?highlight=tide');
             location.hash = 'part';
             history.pushState(null, '', '/ch03');
             const back = new Promise(done => addEventListener('popstate', done, {once: true}));
             history.back();
             await back;",
        )
        .await;
    let expected = json!({"/ch01": 1, "/ch02": 2, "/ch03": 1});
    until("the views are counted", async || {
        (stage.pages().await == expected).then_some(())
    })
    .await;
    for view in log(&stage).await {
        let source = (view.page == "/ch01").then_some("letter");
        assert_eq!(view.source.as_deref(), source, "{}", view.page);
        assert_eq!(view.referrer, None, "{}", view.page);
    }
    until("nothing waits", async || {
        (stage.run(WAITING).await == json!([])).then_some(())
    })
    .await;

    stage.server.take().unwrap().kill().await;
    stage.run("history.pushState(null, '', '/ch04')").await;
    stage.run("history.pushState(null, '', '/ch05')").await;
    let command = async |path: &str| stage.browser.command(path, json!({})).await;
    command("refresh").await;
    stage.visit("/ch06.html").await;
    // Without the server the script itself is not there, unless the browser has kept it.
    assert_eq!(
        stage.run(WAITING).await,
        json!(["/ch04", "/ch05", "/ch05", "/ch06.html"])
    );
    let first = stage.browser.tab().await;
    let second = stage.browser.open_tab().await;
    stage.visit("/ch07").await;
    assert_eq!(
        stage.run(WAITING).await,
        json!(["/ch07"]),
        "another tab's views"
    );
    stage.run("history.pushState(null, '', '/ch08')").await;

    let server = Server::start(&stage.database).await;
    let back_ms = pagetide::time::Timestamp::now().millis();
    stage.door.lead_to(&server.url);
    stage.server = Some(server);
    for tab in [second, first] {
        stage.browser.switch_to(&tab).await;
        stage.run("dispatchEvent(new Event('online'))").await;
        until("nothing waits", async || {
            (stage.run(WAITING).await == json!([])).then_some(())
        })
        .await;
    }
    let expected = json!({"/ch01": 1, "/ch02": 2, "/ch03": 1, "/ch04": 1, "/ch05": 2, "/ch06": 1,
                          "/ch07": 1, "/ch08": 1});
    assert_eq!(stage.pages().await, expected);
    // At the times when they were read, not when they arrived.
    let seen = log(&stage).await;
    let before = seen.iter().filter(|view| view.at_ms < back_ms);
    assert_eq!(before.count(), 10);
    for read in [
        &["/ch04", "/ch05", "/ch05", "/ch06"][..],
        &["/ch07", "/ch08"],
    ] {
        let pages = seen.iter().map(|view| &*view.page);
        let pages: Vec<&str> = pages.filter(|page| read.contains(page)).collect();
        assert_eq!(pages, read, "in the order in which the tab read them");
    }
    let book = stage.api().get("/v1/books/b").await.expect(200);
    let counted = |name: &str| book["totals"][name].as_i64().unwrap();
    assert_eq!(counted("on_time") + counted("late"), 10, "{book}");
}

#[tokio::test]
async fn a_page_that_is_left_at_once_counts() {
    let stage = Stage::set().await;
    stage.visit("/warm").await;
    // Both are left before anything can have been answered, for a page that has no beacon.
    for path in ["/left-1", "/left-2"] {
        let leave = format!(
            "setTimeout(() => {{
                 history.pushState(null, '', '{path}');
                 history.pushState(null, '', '{path}/part');
                 location = 'about:blank';
             }})"
        );
        stage.run(&leave).await;
        until("the page is left", async || {
            (stage.run("return location.href").await == "about:blank").then_some(())
        })
        .await;
        let read = async || stage.pages().await;
        until("the views are counted", async || {
            let pages: Value = read().await;
            let counted = [path.to_owned(), format!("{path}/part")];
            counted.iter().all(|page| pages[page] == 1).then_some(())
        })
        .await;
        stage.visit("/warm").await;
    }
    // A tab that is closed as soon as the page is there.
    let first = stage.browser.tab().await;
    stage.browser.open_tab().await;
    stage.visit("/closed").await;
    stage.browser.close_tab(&first).await;
    until("the view is counted", async || {
        (stage.pages().await["/closed"] == 1).then_some(())
    })
    .await;
}
