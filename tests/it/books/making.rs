//! Books are made, read and listed.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::bad_rollups;
use crate::harness::start;
use crate::raw::{fields, send};

#[tokio::test]
async fn a_book_is_made_of_its_title_alone() {
    let (_database, server) = start().await;
    let api = server.api();
    let answer = api
        .post("/v1/books", &json!({"title": "The Rust  Book, 2nd!"}))
        .await;
    let location = answer.headers["location"].to_str().unwrap().to_owned();
    let book = answer.expect(201);
    assert_eq!(
        location,
        format!("/v1/books/{}", book["id"].as_str().unwrap())
    );
    let id = Uuid::parse_str(book["id"].as_str().unwrap()).unwrap();
    assert_eq!(id.get_version_num(), 7);
    let nothing = json!({"received": 0, "on_time": 0, "late": 0, "dropped": 0, "duplicates": 0,
                         "filtered": 0, "rejected": 0});
    let expected = json!({
        "slug": "the-rust-book-2nd", "title": "The Rust  Book, 2nd!", "status": "live",
        "position": 0, "oldest": 1, "revision": 0, "watermark": null, "at_rest": false,
        "origins": [], "totals": nothing, "streams_open": 0,
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(book[field], *value, "{field}");
    }
    let settings = json!({"delay_ms": 2000, "lateness_ms": 60_000, "max_future_ms": 2000,
                          "buffer_frames": 512, "canonical_pages": true, "base_path": ""});
    for (field, value) in settings.as_object().unwrap() {
        assert_eq!(book["settings"][field], *value, "{field}");
    }
    let created = book["created_at"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.len() == 24, "{created}");
    assert_eq!(api.get(&location).await.expect(200), book);
}

#[tokio::test]
async fn a_book_is_read_by_id_and_by_slug() {
    let (_database, server) = start().await;
    let api = server.api();
    let new = json!({"title": "T", "slug": "my-book", "origins": ["https://example.org"]});
    let book = api.post("/v1/books", &new).await.expect(201);
    let id = book["id"].as_str().unwrap();
    for name in ["my-book", id, &id.to_uppercase()] {
        assert_eq!(
            api.get(&format!("/v1/books/{name}")).await.expect(200),
            book
        );
    }
    for name in ["my-book2", "MY-BOOK", &Uuid::now_v7().to_string()] {
        let answer = api.get(&format!("/v1/books/{name}")).await;
        assert_eq!(answer.problem(404), "not_found", "{name}");
    }
}

#[tokio::test]
async fn put_makes_a_book_and_then_sets_the_fields_given() {
    let (_database, server) = start().await;
    let api = server.api();
    let fields = json!({"origins": ["https://example.org"]});
    let answer = api.put("/v1/books/my-book", &fields).await;
    assert!(answer.headers.contains_key("location"));
    let made = answer.expect(201);
    assert_eq!(
        (&made["slug"], &made["title"]),
        (&json!("my-book"), &json!("my-book"))
    );
    let set = api.put("/v1/books/my-book", &json!({"title": "T"})).await;
    let set = set.expect(200);
    assert_eq!((&set["id"], &set["title"]), (&made["id"], &json!("T")));
    assert_eq!(set["origins"], made["origins"]);
    assert_eq!(api.get("/v1/books/my-book").await.expect(200), set);
}

#[tokio::test]
async fn a_slug_names_one_book() {
    let (_database, server) = start().await;
    let api = server.api();
    let first = api.book("taken", json!({"title": "First"})).await;
    let second = json!({"title": "Second", "slug": "taken"});
    let answer = api.post("/v1/books", &second).await;
    assert_eq!(answer.problem(409), "slug_taken");
    assert_eq!(api.get("/v1/books/taken").await.expect(200), first);
}

#[tokio::test]
async fn what_is_no_slug_is_refused() {
    let (_database, server) = start().await;
    let api = server.api();
    let uuid = Uuid::now_v7().to_string();
    let simple = Uuid::now_v7().simple().to_string();
    let long = "s".repeat(65);
    for slug in [
        "", "A", "a_b", "a b", "ä", "a/b", "a\u{0}", &long, &uuid, &simple,
    ] {
        let answer = api
            .post("/v1/books", &json!({"title": "T", "slug": slug}))
            .await;
        let problem = answer.json();
        assert_eq!(answer.problem(422), "invalid", "{slug:?}");
        assert_eq!(fields(&problem), ["slug"]);
    }
    for path in [format!("/v1/books/{uuid}"), "/v1/books/A".to_owned()] {
        assert_eq!(
            api.put(&path, &json!({})).await.problem(422),
            "invalid",
            "{path}"
        );
    }
    let longest = json!({"title": "T", "slug": "s".repeat(64)});
    api.post("/v1/books", &longest).await.expect(201);
}

#[tokio::test]
async fn the_list_of_books_goes_through_all_pages_oldest_first() {
    let (_database, server) = start().await;
    let api = server.api();
    let mut made = Vec::new();
    for n in 0..7 {
        made.push(api.book(&format!("b{n}"), json!({})).await);
    }
    assert_eq!(api.get("/v1/books").await.expect(200)["items"], json!(made));
    for limit in [1, 3, 7, 1000] {
        let mut listed: Vec<Value> = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/books?limit={limit}{cursor}");
            let page = api.get(&path).await.expect(200);
            let items = page["items"].as_array().unwrap();
            assert!(!items.is_empty() && items.len() <= limit);
            listed.extend(items.iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(listed, made, "{limit} at a time");
    }
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "cursor=x",
        "page=2",
    ] {
        let answer = api.get(&format!("/v1/books?{query}")).await;
        assert_eq!(answer.problem(400), "bad_query", "{query}");
    }
}

#[tokio::test]
async fn rollups_that_make_no_sense_make_no_book() {
    let (_database, server) = start().await;
    let api = server.api();
    for rollups in bad_rollups() {
        let answer = api
            .post("/v1/books", &json!({"title": "T", "rollups": rollups}))
            .await;
        let problem = answer.json();
        assert_eq!(answer.problem(422), "invalid", "{rollups}");
        assert!(!problem["errors"].as_array().unwrap().is_empty());
    }
    let list = api.get("/v1/books").await.expect(200);
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_new_book_is_told_at_once() {
    let (_database, server) = start().await;
    let api = server.api();
    let pages = json!({"name": "p", "group_by": "page", "aggregate": "count", "lateness_ms": -1,
                       "window": {"kind": "tumbling", "size_ms": 0}});
    let new = json!({
        "title": "", "slug": "A B", "rollups": [pages],
        "origins": ["https://example.org", "example.org", "https://example.org/path", "*"],
        "settings": {"delay_ms": -1, "lateness_ms": -1, "buffer_frames": 15, "max_future_ms": -1,
                     "base_path": "no-slash"},
    });
    let problem = api.post("/v1/books", &new).await.expect(422);
    let mut wrong = fields(&problem);
    wrong.sort();
    wrong.dedup();
    let expected = [
        "origins",
        "rollups.lateness_ms",
        "rollups.window.size_ms",
        "settings.base_path",
        "settings.buffer_frames",
        "settings.delay_ms",
        "settings.lateness_ms",
        "settings.max_future_ms",
        "slug",
        "title",
    ];
    assert_eq!(wrong, expected);
    let errors = problem["errors"].as_array().unwrap();
    let origins = errors.iter().filter(|e| e["field"] == "origins");
    let indexes: Vec<&Value> = origins.map(|e| &e["index"]).collect();
    assert_eq!(indexes, [1, 2, 3]);
}

#[tokio::test]
async fn control_characters_and_half_surrogates_are_refused_with_the_field_named() {
    let (_database, server) = start().await;
    let api = server.api();
    let texts = [r"\u0000", r"\n", r"\u0085", r"\ud800", r"\udc00 x"];
    for text in texts {
        for (field, body) in [
            ("title", format!(r#"{{"title": "T{text}"}}"#)),
            ("slug", format!(r#"{{"title": "T", "slug": "s{text}"}}"#)),
            (
                "origins",
                format!(r#"{{"title": "T", "origins": ["https://a{text}"]}}"#),
            ),
            (
                "settings.base_path",
                format!(r#"{{"title": "T", "settings": {{"base_path": "/{text}"}}}}"#),
            ),
        ] {
            let json = Some("application/json");
            let answer = send(&api, (Method::POST, "/v1/books"), json, body.clone()).await;
            let problem = answer.expect(422);
            assert_eq!(fields(&problem), [field], "{body}");
        }
    }
}

#[tokio::test]
async fn a_list_in_place_of_an_object_is_of_the_wrong_shape() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let answer = api.post("/v1/books", &json!(["T", "by-list"])).await;
    assert_eq!(answer.problem(422), "invalid");
    for list in [json!([]), json!(["Renamed"])] {
        let answer = api.patch("/v1/books/b", &list).await;
        assert_eq!(answer.problem(422), "invalid", "{list}");
    }
    assert_eq!(api.get("/v1/books/b").await.expect(200)["title"], "b");
}
