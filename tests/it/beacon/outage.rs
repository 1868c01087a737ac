//! The server goes and comes; readers go on reading.

use serde_json::{Value, json};
use sqlx::Row;

use super::Stage;
use crate::harness::{Server, until};

/// The views that wait in the tab that is open.
const WAITING: &str = "return Object.values(sessionStorage).map(view => JSON.parse(view))
    .sort((a, b) => a.at - b.at).map(view => view.page)";

/// What a book's log holds: page, source and referrer, by time of event.
async fn log(stage: &Stage) -> Vec<(String, Option<String>, Option<String>)> {
    let mut conn = stage.database.connect().await;
    let rows = sqlx::query("SELECT page, source, referrer FROM clicks ORDER BY at_ms")
        .fetch_all(&mut conn)
        .await
        .unwrap();
    let of = |row: sqlx::postgres::PgRow| (row.get(0), row.get(1), row.get(2));
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
    let seen = log(&stage).await;
    assert_eq!(
        seen[0],
        ("/ch01".to_owned(), Some("letter".to_owned()), None)
    );
    assert!(
        seen[1..].iter().all(|(_, source, _)| source.is_none()),
        "{seen:?}"
    );
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
    let pages: Vec<String> = log(&stage)
        .await
        .into_iter()
        .map(|(page, ..)| page)
        .collect();
    // Of what was sent at once the way to the server is longer than the time in between.
    let read = ["/ch04", "/ch05", "/ch05", "/ch06", "/ch07", "/ch08"];
    assert_eq!(pages[4..], read, "in the order in which they were read");
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
