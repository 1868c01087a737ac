//! Clicks that come after the watermark.

use serde_json::{Value, json};

use super::{book_of, exceptions, post};
use crate::harness::start;

fn click(at: i64) -> Value {
    json!({"page": "/a", "at": at})
}

#[tokio::test]
async fn within_the_lateness_a_click_is_late_and_counts_and_after_it_is_dropped_and_kept() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 2000).await;
    // The watermark stands at 2,999: the first window has ended and still takes clicks.
    let taken = post(&api, "b", json!([click(0), click(2999), click(999)])).await;
    assert_eq!(exceptions(&taken), ["2 late -"]);
    // At 3,000 it does not any more.
    let taken = post(&api, "b", json!([click(3000), click(999), click(1000)])).await;
    assert_eq!(exceptions(&taken), ["1 dropped too_late", "2 late -"]);
    let counts = api.counts("b", "pages").await;
    let values: Vec<_> = counts.iter().map(|c| (&c["value"], &c["state"])).collect();
    let expected = [(2, "closed"), (1, "fired"), (1, "fired"), (1, "open")];
    let expected = expected.map(|(value, state)| (json!(value), json!(state)));
    assert_eq!(values, expected.each_ref().map(|(v, s)| (v, s)));
    let totals = &api.get("/v1/books/b").await.expect(200)["totals"];
    let as_told = json!({"received": 6, "on_time": 3, "late": 2, "dropped": 1, "duplicates": 0,
                         "filtered": 0, "rejected": 0});
    assert_eq!(*totals, as_told);
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 6);
}

#[tokio::test]
async fn a_click_too_late_for_some_windows_counts_in_the_others_and_those_missed_are_listed() {
    let (_database, server) = start().await;
    let api = server.api();
    let rollups = [
        ("strict", "page", 1000, 0),
        ("patient", "page", 1000, 60_000),
        ("half", "book", 2000, 0),
    ];
    book_of(&api, "late", &rollups).await;
    let taken = post(&api, "late", json!([click(5000), click(2500)])).await;
    assert_eq!(exceptions(&taken), ["1 late partly_too_late"]);
    let missed = json!([
        {"rollup": "strict", "start": "1970-01-01T00:00:02.000Z", "end": "1970-01-01T00:00:03.000Z"},
        {"rollup": "half", "start": "1970-01-01T00:00:02.000Z", "end": "1970-01-01T00:00:04.000Z"},
    ]);
    assert_eq!(taken["exceptions"][0]["windows"], missed);
    for (rollup, windows) in [("strict", 1), ("patient", 2), ("half", 1)] {
        assert_eq!(api.counts("late", rollup).await.len(), windows, "{rollup}");
    }

    let rollups = [("strict", "page", 1000, 0), ("hours", "page", 3_600_000, 0)];
    book_of(&api, "on-time", &rollups).await;
    let taken = post(&api, "on-time", json!([click(5000), click(2500)])).await;
    assert_eq!(exceptions(&taken), ["1 on_time partly_too_late"]);
    assert_eq!((&taken["on_time"], &taken["late"]), (&json!(2), &json!(0)));
    assert_eq!(api.counts("on-time", "hours").await[0]["value"], 2);
}

#[tokio::test]
async fn a_dropped_click_sent_again_is_a_duplicate() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let dropped = json!({"page": "/a", "at": 1, "id": "x"});
    let taken = post(&api, "b", json!([click(5000), dropped])).await;
    assert_eq!(exceptions(&taken), ["1 dropped too_late"]);
    let again = post(&api, "b", dropped.clone()).await;
    assert_eq!(exceptions(&again), ["0 duplicate -"]);
}

#[tokio::test]
async fn the_watermark_stays_the_delay_behind_the_newest_click_and_never_goes_back() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 60_000).await;
    let delay = json!({"settings": {"delay_ms": 1500}});
    api.patch("/v1/books/b", &delay).await.expect(200);
    let taken = post(&api, "b", click(10_000)).await;
    assert_eq!(taken["watermark"], "1970-01-01T00:00:08.500Z");
    let taken = post(&api, "b", json!([click(3000), click(9000)])).await;
    assert_eq!(taken["watermark"], "1970-01-01T00:00:08.500Z");
    assert_eq!(exceptions(&taken), ["0 late -"]);
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["watermark"], "1970-01-01T00:00:08.500Z");
}
