//! `/client.js` in a page of somebody else's: ten lines follow a book.

use serde_json::{Value, json};

use crate::harness::browser::{Browser, site};
use crate::harness::steps::{Known, token};
use crate::harness::{Database, Server, until};

/// What the page's script knows: the connection, and the values of all windows.
async fn known(browser: &Browser) -> Value {
    let script = "const windows = [];
        for (const {name, windows: of} of window.book.state?.rollups.values() ?? []) {
            for (const {start, end, fired, values} of of.values()) {
                windows.push({rollup: name, start: new Date(start).toISOString(),
                              end: new Date(end).toISOString(), values: Object.fromEntries(values)});
            }
        }
        return {connection: window.book.connection.state, position: window.book.state?.position, windows};";
    browser.run(script, json!([])).await
}

#[tokio::test]
async fn a_page_of_another_origin_follows_a_book_in_ten_lines() {
    let origin = site().await;
    let database = Database::create().await;
    let server = Server::start(&database).await;
    let api = server.api();
    let rollups = json!([
        {"name": "live", "group_by": "page", "aggregate": "count",
         "window": {"kind": "tumbling", "size_ms": 10_000}},
        {"name": "visits", "group_by": "visitor", "aggregate": "count",
         "window": {"kind": "session", "gap_ms": 5000}},
    ]);
    let settings = json!({"buffer_frames": 16, "max_future_ms": null, "idle_timeout_ms": null});
    let fields = json!({"origins": [origin], "rollups": rollups, "settings": settings});
    api.book("b", fields).await;
    let click = |page: &str, at: i64| json!({"page": page, "at": at, "visitor": "v"});
    api.clicks("b", json!([click("/a", 0), click("/b", 4000)]))
        .await;
    let reader = token(&api, "b", "read").await;

    let browser = Browser::start().await;
    browser.visit(&origin).await;
    let follow = "const [url, token] = arguments;
        const {Book} = await import(`${url}/client.js`);
        window.book = new Book({book: 'b', token});
        window.book.start();";
    let begun = browser.run(follow, json!([server.url, reader["token"]]));
    assert_eq!(begun.await, Value::Null);

    // A session that grows, one that joins two, windows that fire and are corrected.
    let mut position = 0;
    for at in [20_000, 12_000, 9000, 30_000, 25_000, 16_000, 1000] {
        let answer = api.clicks("b", click("/c", at)).await;
        position = answer["position"].as_i64().unwrap();
    }
    let shown = until("the page has come to the newest frame", || async {
        let known = known(&browser).await;
        (known["position"].as_i64() >= Some(position)).then_some(known)
    })
    .await;
    assert_eq!(shown["connection"], "live");
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(Known::of_snapshot(&shown), Known::of_snapshot(&snapshot));

    // Its token is taken back.
    let revoke = format!("/v1/tokens/{}", reader["id"].as_str().unwrap());
    api.delete(&revoke).await.expect(204);
    until("the page is told", || async {
        (known(&browser).await["connection"] == "denied").then_some(())
    })
    .await;
}
