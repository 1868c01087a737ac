//! Settings of a book with clicks: they hold from the next click.

use serde_json::{Value, json};

use super::idleness::{book, fires};
use super::{by_page, counted, ms, tumbling};
use crate::harness::{Api, Database, Server, start, until};

async fn set(api: &Api, settings: Value) {
    let patch = json!({"settings": settings});
    api.patch("/v1/books/b", &patch).await.expect(200);
}

/// Posts a click at `at` and gives its status and the watermark after it.
async fn click(api: &Api, at: i64) -> (&'static str, i64) {
    let taken = api.clicks("b", json!({"page": "/a", "at": at})).await;
    let statuses = ["on_time", "late", "dropped"].into_iter();
    let mut statuses = statuses.filter(|status| taken[status] == 1);
    (statuses.next().unwrap(), ms(&taken["watermark"]))
}

fn plain() -> Value {
    json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": null, "max_future_ms": null})
}

#[tokio::test]
async fn the_lateness_may_change_and_a_closed_window_takes_clicks_again() {
    let database = Database::create().await;
    let servers = [
        Server::start(&database).await,
        Server::start(&database).await,
    ];
    let [api, other] = [servers[0].api(), servers[1].api()];
    let strict = json!({"name": "strict", "group_by": "page", "aggregate": "count",
                        "window": tumbling(10), "lateness_ms": 0});
    let rollups = [by_page("pages", tumbling(10)), strict];
    let fields = json!({"rollups": rollups, "settings": plain()});
    api.book("b", fields).await;
    assert_eq!(click(&api, 5).await, ("on_time", 5));
    assert_eq!(click(&other, 25).await, ("on_time", 25));
    assert_eq!(click(&api, 6).await, ("dropped", 25));
    let first = async |rollup: &str| {
        let windows = counted(&api, "b", rollup).await;
        let (key, (value, state)) = windows.into_iter().next().unwrap();
        assert_eq!(key.1, 0);
        (value.as_i64().unwrap(), state)
    };
    assert_eq!(first("pages").await, (1, "closed".to_owned()));
    set(&api, json!({"lateness_ms": 1000})).await;
    assert_eq!(first("pages").await, (1, "fired".to_owned()));
    // The process that did not change it counts by it as well.
    assert_eq!(click(&other, 7).await, ("late", 25));
    assert_eq!(first("pages").await, (2, "fired".to_owned()));
    assert_eq!(first("strict").await, (1, "closed".to_owned()));
    set(&other, json!({"lateness_ms": 0})).await;
    assert_eq!(click(&api, 8).await, ("dropped", 25));
    // What a process knows of a book is current to a second.
    until("the first one shows it", async || {
        (first("pages").await == (2, "closed".to_owned())).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_delay_may_change_and_the_watermark_is_that_far_behind_the_newest_click() {
    let (_database, server) = start().await;
    let api = server.api();
    let mut settings = plain();
    settings["lateness_ms"] = json!(1_000_000);
    book(&api, "b", 10, settings).await;
    assert_eq!(click(&api, 1000).await, ("on_time", 1000));
    set(&api, json!({"delay_ms": 400})).await;
    // It never goes back.
    assert_eq!(click(&api, 1200).await, ("on_time", 1000));
    assert_eq!(click(&api, 1500).await, ("on_time", 1100));
    set(&api, json!({"delay_ms": 100})).await;
    // Judged against the watermark before it; the newest click is still that at 1500.
    assert_eq!(click(&api, 1300).await, ("on_time", 1400));
    assert_eq!(click(&api, 1310).await, ("late", 1400));
    let windows = counted(&api, "b", "pages").await;
    let open = windows.iter().filter(|(_, (_, state))| state == "open");
    assert!(open.eq([windows.last_key_value().unwrap()]), "{windows:?}");
}

#[tokio::test]
async fn idleness_may_be_turned_on_and_off() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, "b", 10, plain()).await;
    let mut events = api.follow("b", "", None).await;
    click(&api, 1000).await;
    set(&api, json!({"idle_timeout_ms": 50})).await;
    click(&api, 1001).await;
    let fired = fires(&mut events).await;
    assert_eq!(fired["panes"][0]["values"], json!({"/a": 2}));
    set(&api, json!({"idle_timeout_ms": null})).await;
    let (status, watermark) = click(&api, 100_000).await;
    assert_eq!((status, watermark), ("on_time", 100_000));
    let clock = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": 50});
    book(&api, "clock", 1, clock).await;
    let mut events = api.follow("clock", "", None).await;
    for _ in 0..2 {
        api.clicks("clock", json!({"page": "/a"})).await;
        fires(&mut events).await;
    }
    let shown = api.get("/v1/books/b").await.expect(200);
    assert_eq!(ms(&shown["watermark"]), 100_000);
}
