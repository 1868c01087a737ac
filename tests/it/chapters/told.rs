//! Who follows a book is told of its chapters.

use serde_json::json;

use super::{book, chapter, click, put};
use crate::harness::start;

#[tokio::test]
async fn readers_of_the_stream_are_told_and_a_snapshot_has_them() {
    let (database, server) = start().await;
    let api = server.api();
    let id = book(&api, json!({})).await["id"].clone();
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let list = json!([chapter("a", &["/a/*"]), chapter("b", &[])]);
    put(&api, &list).await.expect(200);
    let frame = events.expect("chapter").await;
    assert_eq!(frame.position(), Some(1));
    let mut data = frame.data.clone();
    let at = data.as_object_mut().unwrap().remove("at");
    assert!(at.is_some());
    let expected = json!({"type": "chapter", "book": id, "position": 1, "revision": 1,
                          "structure_version": 1, "chapters": list});
    assert_eq!(data, expected);
    click(&api, 1, &["/a/b"]).await;
    let counts = events.expect("counts").await;
    assert_eq!(counts.data["structure_version"], 1);
    let panes = counts.data["panes"].as_array().unwrap();
    let pane = panes
        .iter()
        .find(|pane| pane["rollup"] == "chapters")
        .unwrap();
    assert_eq!(pane["values"], json!({"a": 1}));

    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(snapshot["chapters"], list);
    let place = (&snapshot["structure_version"], &snapshot["position"]);
    assert_eq!(place, (&json!(1), &json!(2)));
    let mut begun = api.follow("b", "?snapshot=1", None).await;
    begun.expect("hello").await;
    assert_eq!(begun.expect("snapshot").await.data["chapters"], list);
    put(&api, &json!([])).await.expect(200);
    assert_eq!(begun.expect("chapter").await.data["chapters"], json!([]));
    let snapshot = api.get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(snapshot["chapters"], json!([]));
    // One who comes back is told what he missed.
    let mut back = api.follow("b", "", Some("2")).await;
    back.expect("hello").await;
    assert_eq!(back.expect("chapter").await.data["structure_version"], 2);
    // And a replay of the log can read each of them.
    let logged = "SELECT count(*) FROM book_log WHERE kind = 'chapters'
                  AND jsonb_array_length(body->'chapters') = 4 - 2 * (body->>'version')::int";
    assert_eq!(database.number(logged).await, 2);
}

#[tokio::test]
async fn a_closed_book_gets_chapters_too() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    click(&api, 1, &["/a"]).await;
    api.post("/v1/books/b/close", &json!({})).await.expect(200);
    let list = json!([chapter("a", &["/a"])]);
    assert_eq!(put(&api, &list).await.expect(200), list);
    let closed = api.get("/v1/books/b").await.expect(200);
    assert_eq!(
        (&closed["status"], &closed["at_rest"]),
        (&json!("closed"), &json!(true))
    );
    assert_eq!(closed["structure_version"], 1);
    let position = closed["position"].as_i64().unwrap();
    let mut events = api.follow("b", "?last_event_id=earliest", None).await;
    let all = events.through(position).await;
    assert_eq!(all.last().unwrap().name, "chapter");
    events.expect("end").await;
}
