//! The list of chapters: replaced, read, and for whom.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{PATH, book, by_chapter, chapter, click, counts, etag, get_if, put, put_if, read};
use crate::harness::start;
use crate::harness::steps::token;

#[tokio::test]
async fn the_list_is_replaced_whole_and_its_tag_is_its_version() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    assert_eq!(read(&api).await, (json!([]), "\"0\"".to_owned()));
    let sent = json!([
        chapter("two", &["/ch02/*"]),
        chapter("one", &["/ch01", "/intro"])
    ]);
    let answer = put(&api, &sent).await;
    assert_eq!(etag(&answer), "\"1\"");
    assert_eq!(answer.headers["cache-control"], "no-cache");
    assert_eq!(answer.expect(200), sent);
    assert_eq!(read(&api).await, (sent, "\"1\"".to_owned()));
    let other = json!([{"id": "é", "title": "Ü".repeat(200), "pages": []}]);
    put(&api, &other).await.expect(200);
    assert_eq!(read(&api).await, (other, "\"2\"".to_owned()));
    put(&api, &json!([])).await.expect(200);
    assert_eq!(read(&api).await, (json!([]), "\"3\"".to_owned()));
}

#[tokio::test]
async fn pages_are_made_canonical_as_those_of_clicks_are() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({"base_path": "/docs"})).await;
    let sent = json!([
        chapter(
            "a",
            &[
                "https://example.org/docs/ch01.html?x=1#y",
                "/docs/ch01/",
                "/docs//p/%7Eé"
            ]
        ),
        chapter("b", &["/docs/ch02/*", "/docs/ch02/index.html"]),
    ]);
    let named = json!([
        chapter("a", &["/ch01", "/p/~%C3%A9"]),
        chapter("b", &["/ch02/*", "/ch02"]),
    ]);
    assert_eq!(put(&api, &sent).await.expect(200), named);
    assert_eq!(read(&api).await.0, named);
    click(
        &api,
        1,
        &[
            "/docs/ch01.html",
            "/docs/p/~é",
            "/docs/ch02/x.html",
            "/docs/ch02/",
        ],
    )
    .await;
    assert_eq!(by_chapter(&api).await, counts(&[(1, "a", 2), (1, "b", 2)]));
}

#[tokio::test]
async fn pages_of_a_book_that_keeps_them_as_sent_are_kept_too() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({"canonical_pages": false})).await;
    let sent = json!([
        chapter("a", &["/ch01/", "https://example.org/*"]),
        chapter("b", &["/ch01", "/ch02/*"]),
    ]);
    assert_eq!(put(&api, &sent).await.expect(200), sent);
    let pages = [
        "/ch01/",
        "https://example.org/x?y",
        "/ch01",
        "/ch02/",
        "/ch02",
        "/CH01",
    ];
    click(&api, 1, &pages).await;
    let expected = [(1, "", 2), (1, "a", 2), (1, "b", 2)];
    assert_eq!(by_chapter(&api).await, counts(&expected));
}

#[tokio::test]
async fn a_change_that_changes_nothing_leaves_the_version_and_mints_no_frame() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    // There were none before either.
    assert_eq!(etag(&put(&api, &json!([])).await), "\"0\"");
    put(&api, &json!([chapter("a", &["/a", "/b"])]))
        .await
        .expect(200);
    let before = api.get("/v1/books/b").await.expect(200);
    assert_eq!(
        (
            &before["position"],
            &before["revision"],
            &before["structure_version"]
        ),
        (&json!(1), &json!(1), &json!(1))
    );
    // The same page once more is the same list.
    for pages in [&["/a", "/b"][..], &["/a.html", "/b/", "/a"]] {
        let answer = put(&api, &json!([chapter("a", pages)])).await;
        assert_eq!(etag(&answer), "\"1\"");
        assert_eq!(answer.expect(200), json!([chapter("a", &["/a", "/b"])]));
    }
    assert_eq!(api.get("/v1/books/b").await.expect(200), before);
    // Their order is part of it.
    put(&api, &json!([chapter("a", &["/b", "/a"])]))
        .await
        .expect(200);
    assert_eq!(read(&api).await.1, "\"2\"");
}

#[tokio::test]
async fn if_match_keeps_one_change_from_undoing_another() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let list = |n: i64| json!([chapter(&n.to_string(), &["/a"])]);
    put_if(&api, "if-match", "\"0\"", &list(1))
        .await
        .expect(200);
    let answer = put_if(&api, "if-match", "\"0\"", &list(2)).await;
    assert_eq!(answer.problem(412), "precondition_failed");
    // The list that is there already, for a version that is not.
    let answer = put_if(&api, "if-match", "\"0\"", &list(1)).await;
    assert_eq!(answer.problem(412), "precondition_failed");
    for other in ["\"2\"", "W/\"1\"", "\"01\"", "\"\"", "\"a\", \"b\"", ","] {
        let answer = put_if(&api, "if-match", other, &list(2)).await;
        assert_eq!(answer.problem(412), "precondition_failed", "{other}");
    }
    assert_eq!(read(&api).await, (list(1), "\"1\"".to_owned()));
    for (version, fitting) in [(2, "*"), (3, "\"x,y\", W/\"9\", \"2\""), (4, " \"3\" ")] {
        let answer = put_if(&api, "if-match", fitting, &list(version)).await;
        assert_eq!(etag(&answer), format!("\"{version}\""), "{fitting}");
    }
    for malformed in ["4", "\"4", "*, \"4\"", "w/\"4\""] {
        let answer = put_if(&api, "if-match", malformed, &list(5)).await;
        assert_eq!(answer.problem(400), "bad_header", "{malformed}");
    }
    for (taken, tags) in [(false, "*"), (false, "W/\"4\""), (true, "\"3\", \"5\"")] {
        let answer = put_if(&api, "if-none-match", tags, &list(5)).await;
        let expected = if taken { 200 } else { 412 };
        assert_eq!(answer.status, expected, "{tags}");
    }
    // What makes no sense is refused whatever the version is.
    let wrong = put_if(&api, "if-match", "\"1\"", &json!([chapter("", &[])])).await;
    assert_eq!(wrong.problem(422), "invalid");
}

#[tokio::test]
async fn of_many_changes_for_one_version_one_is_made() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let changes = (0..20).map(|n: i64| {
        let api = api.clone();
        async move {
            let list = json!([chapter(&n.to_string(), &["/a"])]);
            let answer = put_if(&api, "if-match", "\"0\"", &list).await;
            (answer.status == 200).then_some(list)
        }
    });
    let made = futures_util::future::join_all(changes).await;
    let made: Vec<Value> = made.into_iter().flatten().collect();
    assert_eq!(made.len(), 1);
    assert_eq!(read(&api).await, (made[0].clone(), "\"1\"".to_owned()));
}

#[tokio::test]
async fn who_knows_the_list_already_is_told_so() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    put(&api, &json!([chapter("a", &["/a"])])).await.expect(200);
    for known in ["\"1\"", "W/\"1\"", "\"0\", \"1\"", "*"] {
        let answer = get_if(&api, "if-none-match", known).await;
        assert_eq!(answer.status, StatusCode::NOT_MODIFIED, "{known}");
        assert_eq!(etag(&answer), "\"1\"");
        assert_eq!(answer.text, "");
    }
    for other in ["\"0\"", "\"2\", \"1 \""] {
        let answer = get_if(&api, "if-none-match", other).await;
        assert_eq!(answer.status, 200, "{other}");
    }
    get_if(&api, "if-match", "\"1\"").await.expect(200);
    let other = get_if(&api, "if-match", "\"2\"").await;
    assert_eq!(other.problem(412), "precondition_failed");
}

#[tokio::test]
async fn readers_may_see_chapters_and_managers_may_change_them() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    api.plain_book("other", 1000, 0).await;
    let list = json!([chapter("a", &["/a"])]);
    let scopes = [
        ("read", 200, 403),
        ("write", 403, 403),
        ("manage", 200, 200),
    ];
    for (scope, may_get, may_put) in scopes {
        let made = token(&api, "b", scope).await;
        let caller = api.with_token(made["token"].as_str().unwrap());
        assert_eq!(put(&caller, &list).await.status, may_put, "{scope}");
        assert_eq!(caller.get(PATH).await.status, may_get, "{scope}");
        for book in ["other", "none"] {
            let path = format!("/v1/books/{book}/chapters");
            assert_eq!(caller.put(&path, &list).await.problem(404), "not_found");
            assert_eq!(caller.get(&path).await.problem(404), "not_found");
        }
    }
    let nobody = api.with_token("");
    assert_eq!(nobody.get(PATH).await.problem(401), "unauthorized");
    assert_eq!(put(&nobody, &list).await.problem(401), "unauthorized");
}
