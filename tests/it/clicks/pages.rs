//! Pages: made canonical, or kept as they were sent.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{book_of, post};
use crate::harness::start;

#[derive(Deserialize)]
struct Case {
    sent: String,
    base_path: String,
    canonical: String,
}

#[tokio::test]
async fn pages_are_counted_under_their_canonical_form() {
    let (_database, server) = start().await;
    let api = server.api();
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../golden/pages.json")).unwrap();
    let mut books: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in &cases {
        books.entry(&case.base_path).or_default().push(case);
    }
    assert!(books.len() > 1);
    for (place, (base_path, cases)) in books.into_iter().enumerate() {
        let slug = format!("b{place}");
        api.plain_book(&slug, 1, 0).await;
        let base = json!({"settings": {"base_path": base_path}});
        api.patch(&format!("/v1/books/{slug}"), &base)
            .await
            .expect(200);
        // A window of its own for each case.
        let clicks = cases.iter().enumerate();
        let clicks: Vec<Value> = clicks
            .map(|(at, case)| json!({"page": case.sent, "at": at}))
            .collect();
        assert_eq!(
            post(&api, &slug, json!(clicks)).await["on_time"],
            cases.len()
        );
        let counts = api.counts(&slug, "pages").await;
        assert_eq!(counts.len(), cases.len());
        for (count, case) in counts.iter().zip(cases) {
            assert_eq!(count["group"], case.canonical, "{:?} sent", case.sent);
        }
    }
}

#[tokio::test]
async fn a_book_that_wants_none_canonical_keeps_pages_as_they_were_sent() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1, 0).await;
    let off = json!({"settings": {"canonical_pages": false, "base_path": "/repo"}});
    api.patch("/v1/books/b", &off).await.expect(200);
    let sent = [
        "/repo//ch1/index.html?x=1#y",
        "https://example.org/a",
        "/ü ",
        "?",
        "/%e8",
    ];
    let clicks = sent.iter().enumerate();
    let clicks: Vec<Value> = clicks.map(|(at, p)| json!({"page": p, "at": at})).collect();
    post(&api, "b", json!(clicks)).await;
    let counts = api.counts("b", "pages").await;
    let groups: Vec<&str> = counts
        .iter()
        .map(|c| c["group"].as_str().unwrap())
        .collect();
    assert_eq!(groups, sent);
}

#[tokio::test]
async fn strange_texts_come_out_of_counts_snapshot_and_stream_as_they_went_in() {
    let (_database, server) = start().await;
    let api = server.api();
    book_of(
        &api,
        "b",
        &[("pages", "page", 1000, 0), ("visitors", "visitor", 1000, 0)],
    )
    .await;
    let off = json!({"settings": {"canonical_pages": false}});
    api.patch("/v1/books/b", &off).await.expect(200);
    let strange = [
        "\u{2028}line\u{2029}s",
        "\"quoted\" 'both' `ways` \\ back\\\\slash",
        "😀👩\u{200d}👩\u{200d}👧 e\u{301}",
        "data: x, event: y: :",
        "<script>alert(1)</script>&amp;",
        "\u{feff}\u{10ffff}\u{fffd}",
        " ",
        "%00%0A",
    ];
    let clicks = strange.map(|text| json!({"page": text, "visitor": text, "at": 1}));
    let mut events = api.follow("b", "?last_event_id=earliest", None).await;
    let taken = post(&api, "b", json!(clicks)).await;
    assert_eq!(taken["on_time"], strange.len(), "{taken}");
    let values: BTreeMap<&str, i64> = strange.into_iter().map(|text| (text, 1)).collect();
    let values = json!(values);

    let frames = events.through(taken["position"].as_i64().unwrap()).await;
    let panes = frames.last().unwrap().data["panes"].as_array().unwrap();
    assert_eq!(panes.len(), 2);
    for pane in panes {
        assert_eq!(pane["values"], values, "in the stream: {}", pane["rollup"]);
    }
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    let windows = snapshot["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 2);
    for window in windows {
        assert_eq!(window["values"], values, "in the snapshot: {window}");
    }
    for rollup in ["pages", "visitors"] {
        let counts = api.counts("b", rollup).await;
        let counted: BTreeMap<&str, &Value> = counts
            .iter()
            .map(|c| (c["group"].as_str().unwrap(), &c["value"]))
            .collect();
        assert_eq!(json!(counted), values, "in the counts: {rollup}");
    }
}
