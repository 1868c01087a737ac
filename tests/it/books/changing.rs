//! Books are changed.

use serde_json::{Value, json};

use super::{bad_rollups, rollup};
use crate::harness::{start, until};
use crate::raw::fields;

#[tokio::test]
async fn patch_sets_what_is_there_and_leaves_the_rest() {
    let (_database, server) = start().await;
    let api = server.api();
    let new = json!({"title": "T", "origins": ["https://example.org"],
                     "settings": {"delay_ms": 1000, "lateness_ms": 5000, "base_path": "/x"}});
    let mut expected = api.book("b", new).await;
    let changes: [(&str, Value, &[&str]); 5] = [
        ("title", json!({"title": "U"}), &["title"]),
        (
            "delay",
            json!({"settings": {"delay_ms": 3000}}),
            &["settings", "delay_ms"],
        ),
        (
            "off",
            json!({"settings": {"max_future_ms": null}}),
            &["settings", "max_future_ms"],
        ),
        ("origins", json!({"origins": []}), &["origins"]),
        ("nothing", json!({}), &["title"]),
    ];
    for (what, patch, path) in changes {
        let book = api.patch("/v1/books/b", &patch).await.expect(200);
        if what != "nothing" {
            let of = |value: &Value| path.iter().fold(value.clone(), |v, p| v[p].clone());
            let pointer = format!("/{}", path.join("/"));
            *expected.pointer_mut(&pointer).unwrap() = of(&patch);
        }
        for field in [
            "id", "slug", "title", "settings", "rollups", "origins", "totals",
        ] {
            assert_eq!(book[field], expected[field], "{field} after {what}");
        }
        assert_eq!(api.get("/v1/books/b").await.expect(200), book);
    }
}

#[tokio::test]
async fn null_is_taken_only_where_it_means_off() {
    let (_database, server) = start().await;
    let api = server.api();
    let book = api.book("b", json!({})).await;
    let nulls = [
        json!({"title": null}),
        json!({"rollups": null}),
        json!({"origins": null}),
        json!({"settings": null}),
        json!({"settings": {"delay_ms": null}}),
        json!({"settings": {"lateness_ms": null}}),
        json!({"settings": {"buffer_frames": null}}),
        json!({"settings": {"canonical_pages": null}}),
        json!({"settings": {"base_path": null}}),
    ];
    for null in nulls {
        let answer = api.patch("/v1/books/b", &null).await;
        assert_eq!(answer.problem(422), "invalid", "{null}");
    }
    assert_eq!(api.get("/v1/books/b").await.expect(200), book);
    let off = json!({"settings": {"max_future_ms": null}});
    let book = api.patch("/v1/books/b", &off).await.expect(200);
    assert_eq!(book["settings"]["max_future_ms"], Value::Null);
}

#[tokio::test]
async fn unknown_fields_and_wrong_types_are_refused_by_name() {
    let (_database, server) = start().await;
    let api = server.api();
    let book = api.book("b", json!({})).await;
    let wrong = [
        ("titel", json!({"titel": "T"})),
        ("slug", json!({"slug": "new"})),
        ("delay", json!({"settings": {"delay": 1}})),
        ("string", json!({"title": 5})),
        ("i64", json!({"settings": {"delay_ms": "5"}})),
        ("i64", json!({"settings": {"delay_ms": 1.5}})),
        ("boolean", json!({"settings": {"canonical_pages": 1}})),
    ];
    for (word, patch) in wrong {
        let answer = api.patch("/v1/books/b", &patch).await;
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(word), "{patch}: {detail}");
        assert_eq!(answer.problem(422), "invalid", "{patch}");
    }
    assert_eq!(api.get("/v1/books/b").await.expect(200), book);
    let answer = api
        .post("/v1/books", &json!({"title": "T", "name": "x"}))
        .await;
    assert_eq!(answer.problem(422), "invalid");
}

#[tokio::test]
async fn the_future_is_bounded_by_delay_and_smallest_lateness() {
    let (_database, server) = start().await;
    let api = server.api();
    let strict = rollup(json!({"lateness_ms": 700}));
    let new = |ahead: Value| {
        json!({"rollups": [rollup(json!({"name": "other"})), strict],
               "settings": {"delay_ms": 300, "max_future_ms": ahead}})
    };
    let problem = api.put("/v1/books/b", &new(json!(1001))).await.expect(422);
    assert_eq!(fields(&problem), ["settings.max_future_ms"]);
    api.put("/v1/books/b", &new(json!(1000))).await.expect(201);
    let more = json!({"settings": {"max_future_ms": 1001}});
    let problem = api.patch("/v1/books/b", &more).await.expect(422);
    assert_eq!(fields(&problem), ["settings.max_future_ms"]);
    // The default is the bound, where that is less.
    let new = json!({"settings": {"delay_ms": 5, "lateness_ms": 10}});
    let book = api.book("c", new).await;
    assert_eq!(book["settings"]["max_future_ms"], 15);
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_change_is_told_at_once_and_nothing_is_changed() {
    let (_database, server) = start().await;
    let api = server.api();
    let book = api.book("b", json!({})).await;
    let patch = json!({
        "title": "x".repeat(201), "origins": ["ftp://example.org"],
        "rollups": [rollup(json!({"name": "?"}))],
        "settings": {"delay_ms": -1, "buffer_frames": 65_537, "base_path": "/a\u{7}"},
    });
    let problem = api.patch("/v1/books/b", &patch).await.expect(422);
    let mut wrong = fields(&problem);
    wrong.sort();
    let expected = [
        "origins",
        "rollups.name",
        "settings.base_path",
        "settings.buffer_frames",
        "settings.delay_ms",
        "title",
    ];
    assert_eq!(wrong, expected);
    assert_eq!(api.get("/v1/books/b").await.expect(200), book);
}

#[tokio::test]
async fn rollups_that_make_no_sense_are_refused_by_patch_and_put() {
    let (_database, server) = start().await;
    let api = server.api();
    let book = api.book("b", json!({})).await;
    for rollups in bad_rollups() {
        let patch = json!({"rollups": rollups});
        let answer = api.patch("/v1/books/b", &patch).await;
        assert_eq!(answer.problem(422), "invalid", "{patch}");
        assert_eq!(
            api.put("/v1/books/b", &patch).await.problem(422),
            "invalid",
            "{patch}"
        );
    }
    assert_eq!(api.get("/v1/books/b").await.expect(200), book);
}

#[tokio::test]
async fn rollups_are_changed_at_once_before_the_first_click_and_by_a_recount_after_it() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let names: Vec<Value> = (0..8)
        .map(|n| rollup(json!({"name": format!("r{n}")})))
        .collect();
    let book = api.patch("/v1/books/b", &json!({"rollups": names})).await;
    assert_eq!(book.expect(200)["rollups"], json!(names));
    api.clicks("b", json!({"page": "/a", "at": 1})).await;
    for n in 0..8 {
        assert_eq!(api.counts("b", &format!("r{n}")).await.len(), 1);
    }
    // The same ones again change nothing, and other settings are changed as before.
    let same = json!({"title": "T", "rollups": names});
    assert_eq!(
        api.patch("/v1/books/b", &same).await.expect(200)["title"],
        "T"
    );
    assert_eq!(
        api.get("/v1/books/b/runs").await.expect(200)["items"],
        json!([])
    );
    let one = json!({"title": "U", "rollups": [rollup(json!({"name": "one"}))]});
    let changed = api.put("/v1/books/b", &one).await.expect(200);
    assert_eq!(changed["title"], "U");
    let run = &api.get("/v1/books/b/runs").await.expect(200)["items"][0];
    assert_eq!(run["kind"], "recount");
    until("the new rollups count", || async {
        let book = api.get("/v1/books/b").await.expect(200);
        (book["rollups"] == one["rollups"]).then_some(())
    })
    .await;
    assert_eq!(api.counts("b", "one").await.len(), 1);
}

#[tokio::test]
async fn each_change_grows_the_revision_and_mints_a_status_frame() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let mut events = api.follow("b", "?last_event_id=earliest", None).await;
    let book = api
        .patch("/v1/books/b", &json!({"title": "T"}))
        .await
        .expect(200);
    assert_eq!(
        (&book["revision"], &book["position"]),
        (&json!(1), &json!(1))
    );
    let frames = events.through(1).await;
    let frame = frames.last().unwrap();
    assert_eq!(frame.name, "status");
    let said = (&frame.data["status"], &frame.data["reason"]);
    assert_eq!(said, (&json!("live"), &json!("settings")));
}

#[tokio::test]
async fn a_change_that_changes_nothing_mints_no_frame() {
    let (_database, server) = start().await;
    let api = server.api();
    let fields = json!({"title": "T", "settings": {"delay_ms": 1000}});
    api.book("b", fields.clone()).await;
    for _ in 0..3 {
        let same = api.put("/v1/books/b", &fields).await.expect(200);
        assert_eq!(
            (&same["position"], &same["revision"]),
            (&json!(0), &json!(0))
        );
    }
    let other = json!({"settings": {"delay_ms": 1001}});
    let changed = api.patch("/v1/books/b", &other).await.expect(200);
    assert_eq!(changed["position"], 1);
}
