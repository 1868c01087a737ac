//! What a frame is: its bytes, its fields, and what its panes say.

use serde_json::{Value, json};

use crate::harness::raw::Raw;
use crate::harness::sse::Event;
use crate::harness::steps::{frames_of, pages, single_clicks};
use crate::harness::{self, Api};

const EVENTS: &str = "/v1/books/b/events";
const HOUR: i64 = 3_600_000;

/// `(pane, start in seconds, end in seconds, rollup, values)` of each pane, in the order sent.
fn panes(frame: &Event) -> Vec<(String, String, String, String, Value)> {
    let panes = frame.data["panes"].as_array().unwrap().iter();
    let text = |pane: &Value, name: &str| pane[name].as_str().unwrap().to_owned();
    let seconds = |pane: &Value, name: &str| text(pane, name)[17..19].to_owned();
    panes
        .map(|pane| {
            let rollup = text(pane, "rollup");
            let (start, end) = (seconds(pane, "start"), seconds(pane, "end"));
            (
                text(pane, "pane"),
                start,
                end,
                rollup,
                pane["values"].clone(),
            )
        })
        .collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn a_frame_is_one_write_whose_id_comes_last() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    let mut raw = Raw::get(&api, EVENTS, "").await;
    raw.head().await;
    let hello = raw.chunk().await.unwrap();
    single_clicks(&api, "b", 1).await;
    let counts = raw.chunk().await.unwrap();
    api.delete("/v1/books/b").await.expect(204);
    let end = raw.chunk().await.unwrap();
    assert_eq!(raw.chunk().await, None);
    for (chunk, fields) in [
        (&hello, &["event: hello", "retry: ", "data: {", "id: 0"][..]),
        (&counts, &["event: counts", "data: {", "id: 1"]),
        (&end, &["event: end", "data: {", "id: 1"]),
    ] {
        assert!(!chunk.contains('\r'), "{chunk:?}");
        let lines = chunk.strip_suffix("\n\n").unwrap();
        let lines: Vec<&str> = lines.split('\n').collect();
        assert_eq!(lines.len(), fields.len(), "{chunk}");
        for (line, field) in lines.iter().zip(fields) {
            assert!(line.starts_with(field), "{line} for {field}");
        }
    }
}

#[tokio::test]
async fn the_headers_let_nothing_on_the_way_keep_change_or_hold_the_stream() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    let mut raw = Raw::get(&api, EVENTS, "accept-encoding: gzip, br, zstd\r\n").await;
    let head = raw.head().await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    for line in [
        "content-type: text/event-stream; charset=utf-8",
        "cache-control: no-store, no-transform",
        "x-accel-buffering: no",
        "x-content-type-options: nosniff",
    ] {
        assert!(head.lines().any(|l| l == line), "{line} in {head}");
    }
    for absent in ["connection:", "content-encoding:", "content-length:"] {
        assert!(!head.lines().any(|l| l.starts_with(absent)), "{head}");
    }
    // Not compressed, whatever the header says.
    assert!(raw.chunk().await.unwrap().starts_with("event: hello\n"));

    let builder = reqwest::Client::builder().http2_prior_knowledge();
    let http2 = Api {
        http: builder.build().unwrap(),
        ..api
    };
    let mut events = http2.follow("b", "", None).await;
    for absent in ["connection", "transfer-encoding", "content-encoding"] {
        assert!(!events.headers.contains_key(absent), "{absent}");
    }
    assert_eq!(
        events.headers["content-type"],
        "text/event-stream; charset=utf-8"
    );
    assert_eq!(events.headers["cache-control"], "no-store, no-transform");
    events.expect("hello").await;
}

#[tokio::test]
async fn a_frame_says_when_and_on_which_state_of_the_book_it_was_minted() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let book = api.plain_book("b", 10_000, 0).await;
    let clicks = json!([{"page": "/a", "at": 1000}, {"page": "/b", "at": 2000}]);
    let frame = frames_of(&api, "b", clicks).await.remove(0);
    let now = api.get("/v1/books/b").await.expect(200);
    assert_eq!(frame.name, "counts");
    let fields = [
        "at",
        "book",
        "panes",
        "position",
        "revision",
        "structure_version",
        "totals",
        "type",
        "watermark",
    ];
    assert_eq!(keys(&frame.data), fields);
    assert_eq!(frame.data["type"], "counts");
    assert_eq!(frame.data["book"], book["id"]);
    for field in [
        "position",
        "revision",
        "structure_version",
        "watermark",
        "totals",
    ] {
        assert_eq!(frame.data[field], now[field], "{field}");
    }
    assert_eq!(frame.data["totals"]["received"], 2);
    assert!(frame.data["at"].as_str() > book["created_at"].as_str());
    let pane = &frame.data["panes"][0];
    assert_eq!(keys(pane), ["end", "pane", "rollup", "start", "values"]);
    assert_eq!(pane["rollup"], "pages");
    assert_eq!(pane["start"], "1970-01-01T00:00:00.000Z");
    assert_eq!(pane["end"], "1970-01-01T00:00:10.000Z");
    assert_eq!(pane["values"], json!({"/a": 1, "/b": 1}));
}

#[tokio::test]
async fn values_are_absolute_and_only_what_changed_is_told() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    let many: Vec<Value> = (0..500)
        .map(|i| json!({"page": format!("/p{i}"), "at": 1}))
        .collect();
    api.clicks("b", json!(many)).await;
    let frames = frames_of(&api, "b", json!({"page": "/p7", "at": 2})).await;
    assert_eq!(frames.len(), 1);
    let panes = frames[0].data["panes"].as_array().unwrap();
    assert_eq!(panes.len(), 1);
    assert_eq!(panes[0]["values"], json!({"/p7": 2}));
}

#[tokio::test]
async fn panes_are_late_then_on_time_then_early_each_by_start_end_and_rollup() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let rollup = |name: &str, size_ms: i64| {
        json!({"name": name, "group_by": "page", "aggregate": "count",
               "window": {"kind": "tumbling", "size_ms": size_ms}})
    };
    let rollups = [
        rollup("a", 10_000),
        rollup("b", 20_000),
        rollup("c", 20_000),
    ];
    let settings = json!({"delay_ms": 0, "lateness_ms": HOUR, "max_future_ms": null});
    api.book("b", json!({"rollups": rollups, "settings": settings}))
        .await;
    let at = |second: i64| json!({"page": "/x", "at": second * 1000});
    api.clicks("b", json!([at(5), at(15), at(25)])).await;

    let frames = frames_of(&api, "b", json!([at(26), at(16), at(6), at(45)])).await;
    assert_eq!(frames.len(), 1);
    let told = panes(&frames[0]);
    let told: Vec<_> = told
        .iter()
        .map(|(pane, start, end, rollup, values)| {
            format!("{pane} {start}-{end} {rollup} {}", values["/x"])
        })
        .collect();
    let expected = [
        "late 00-10 a 2",
        "late 00-20 b 4",
        "late 00-20 c 4",
        "late 10-20 a 2",
        "on_time 20-30 a 2",
        "on_time 20-40 b 2",
        "on_time 20-40 c 2",
        "early 40-50 a 1",
        "early 40-00 b 1",
        "early 40-00 c 1",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_window_fired_and_corrected_in_one_commit_is_on_time_with_the_last_value() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    let at = |second: i64| json!({"page": "/x", "at": second * 1000});
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let answer = api.clicks("b", json!([at(1), at(11), at(2)])).await;
    assert_eq!(
        answer["late"], 1,
        "the window had fired before its last click"
    );
    let frame = events.expect("counts").await;
    let told = panes(&frame);
    let told: Vec<_> = told
        .iter()
        .map(|p| (p.0.as_str(), p.1.as_str(), &p.4))
        .collect();
    let (two, one) = (json!({"/x": 2}), json!({"/x": 1}));
    assert_eq!(told, [("on_time", "00", &two), ("early", "10", &one)]);
}

#[tokio::test]
async fn what_is_stored_is_sent_byte_for_byte_live_and_replayed() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    let mut live = Raw::get(&api, EVENTS, "").await;
    live.head().await;
    live.chunk().await.unwrap();
    let pages = json!([{"page": "/ä b/\"q\"/é😀", "at": 1000}, {"page": "/c", "at": 12_000}]);
    api.clicks("b", pages).await;
    single_clicks(&api, "b", 2).await;
    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let mut conn = database.connect().await;
    let stored = "SELECT event, data, position FROM frames ORDER BY position";
    let stored: Vec<(String, String, i64)> =
        sqlx::query_as(stored).fetch_all(&mut conn).await.unwrap();
    assert!(stored.len() >= 5);
    let mut replayed = Raw::get(&api, EVENTS, "last-event-id: 0\r\n").await;
    replayed.head().await;
    replayed.chunk().await.unwrap();
    for (event, data, position) in stored {
        let frame = format!("event: {event}\ndata: {data}\nid: {position}\n\n");
        assert_eq!(live.chunk().await.unwrap(), frame);
        assert_eq!(replayed.chunk().await.unwrap(), frame);
    }
}

#[tokio::test]
async fn names_that_look_like_line_ends_stay_in_one_frame() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let rollups = json!([{"name": "pages", "group_by": "page", "aggregate": "count",
                          "window": {"kind": "tumbling", "size_ms": HOUR}}]);
    let settings = json!({"canonical_pages": false});
    api.book("b", json!({"rollups": rollups, "settings": settings}))
        .await;
    let names = [
        "a\u{2028}b",
        "c\u{2029}d",
        "\\n\\r",
        "\"data: x\"",
        "é😀",
        "id: 99",
    ];
    let clicks: Vec<Value> = names.iter().map(|name| json!({"page": name})).collect();
    let frames = frames_of(&api, "b", json!(clicks)).await;
    assert_eq!(frames.len(), 1);
    let mut told = pages(&frames);
    let mut names = names.map(str::to_owned);
    told.sort_unstable();
    names.sort_unstable();
    assert_eq!(told, names);
}

#[tokio::test]
async fn status_frames_tell_of_settings_close_and_reopen() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, HOUR).await;
    single_clicks(&api, "b", 1).await;
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let settings = json!({"settings": {"buffer_frames": 100}});
    api.patch("/v1/books/b", &settings).await.expect(200);
    let frame = events.expect("status").await;
    let fields = [
        "at",
        "book",
        "position",
        "reason",
        "revision",
        "status",
        "structure_version",
        "type",
    ];
    assert_eq!(keys(&frame.data), fields);
    assert_eq!(
        (&frame.data["status"], &frame.data["reason"]),
        (&json!("live"), &json!("settings"))
    );

    api.post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let fired = events.expect("counts").await;
    assert_eq!(
        fired.data["panes"][0]["pane"], "on_time",
        "every window fires"
    );
    assert_eq!(fired.data["watermark"], "9999-12-31T23:59:59.999Z");
    let closed = events.expect("status").await;
    assert_eq!(
        (&closed.data["status"], &closed.data["reason"]),
        (&json!("closed"), &json!("closed"))
    );
    assert!(closed.position() > fired.position());
    events.expect("end").await;

    api.post("/v1/books/b/reopen", &Value::Null)
        .await
        .expect(200);
    let mut events = api.follow("b", "", Some(&closed.id)).await;
    events.expect("hello").await;
    let frame = events.expect("status").await;
    assert_eq!(
        (&frame.data["status"], &frame.data["reason"]),
        (&json!("live"), &json!("reopened"))
    );
}

#[tokio::test]
async fn duplicates_alone_make_no_frame() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", HOUR, 0).await;
    let click = json!({"page": "/a", "at": 1, "id": "one"});
    api.clicks("b", click.clone()).await;
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let again = api.clicks("b", json!([click, click])).await;
    assert_eq!(
        (&again["duplicates"], &again["position"]),
        (&json!(2), &json!(1))
    );
    api.clicks("b", json!({"page": "/b", "at": 1})).await;
    let frame = events.expect("counts").await;
    assert_eq!(frame.data["panes"][0]["values"], json!({"/b": 1}));
    assert_eq!(frame.data["totals"]["duplicates"], 2);
}
