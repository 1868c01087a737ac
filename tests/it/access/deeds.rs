//! What each token may do.

use reqwest::Method;
use serde_json::{Value, json};

use super::{id, secret, token};
use crate::harness::api::Answer;
use crate::harness::{PATIENCE, start};
use crate::raw::substance;

#[tokio::test]
async fn without_a_token_the_answer_is_401_and_says_how_to_send_one() {
    let (_database, server) = start().await;
    server.api().book("b", json!({})).await;
    let http = server.api().http;
    for authorization in [None, Some("Basic YTpi"), Some("Bearer"), Some("")] {
        let mut request = http.get(format!("{}/v1/books/b", server.url));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let answer = Answer::of(request).await;
        let challenge = answer.headers["www-authenticate"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(challenge.starts_with("Bearer "), "{challenge}");
        assert!(
            !challenge.contains("error"),
            "{authorization:?}: {challenge}"
        );
        assert_eq!(answer.problem(401), "unauthorized", "{authorization:?}");
    }
}

#[tokio::test]
async fn with_a_wrong_token_the_answer_is_401_invalid_token() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let good = token(&api, &["b"], &["read"]).await;
    let cut = &secret(&good)[..45];
    let unknown = format!("pt_{}", "A".repeat(43));
    for wrong in ["nonsense", &unknown, cut, "pt_", &"x".repeat(5000)] {
        let answer = api.with_token(wrong).get("/v1/books/b").await;
        let challenge = answer.headers["www-authenticate"].to_str().unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert_eq!(answer.problem(401), "unauthorized");
    }
}

#[tokio::test]
async fn the_scheme_is_read_in_capital_and_small_letters() {
    let (_database, server) = start().await;
    let api = server.api();
    for scheme in ["bearer", "BEARER"] {
        let header = format!("{scheme} {}", api.token);
        let request = api.http.get(format!("{}/v1/books", server.url));
        let answer = Answer::of(request.header("authorization", header)).await;
        assert_eq!(answer.status, 200, "{scheme}");
    }
}

#[tokio::test]
async fn some_addresses_are_open_to_everyone() {
    let (_database, server) = start().await;
    let http = server.api().http;
    for path in [
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/openapi.yaml",
        "/problems/not_found",
    ] {
        let answer = Answer::of(http.get(format!("{}{path}", server.url))).await;
        assert_eq!(answer.status, 200, "{path}");
    }
}

/// What each deed answers to: nobody, then tokens that give read, write and manage for the book,
/// admin, and everything for another book.
const DEEDS: &[(&str, &str, &str, [u16; 6])] = &[
    ("GET", "/v1/books", "", [401, 200, 200, 200, 200, 200]),
    (
        "POST",
        "/v1/books",
        r#"{"title": "N"}"#,
        [401, 403, 403, 403, 201, 403],
    ),
    ("GET", "/v1/books/b", "", [401, 200, 403, 200, 200, 404]),
    ("PUT", "/v1/books/b", "{}", [401, 403, 403, 200, 200, 404]),
    ("PUT", "/v1/books/c", "{}", [401, 404, 404, 404, 201, 404]),
    ("PATCH", "/v1/books/b", "{}", [401, 403, 403, 200, 200, 404]),
    (
        "POST",
        "/v1/books/b/clicks",
        r#"{"page": "/a"}"#,
        [401, 403, 200, 200, 200, 404],
    ),
    (
        "GET",
        "/v1/books/b/counts?rollup=pages",
        "",
        [401, 200, 403, 200, 200, 404],
    ),
    (
        "GET",
        "/v1/books/b/snapshot",
        "",
        [401, 200, 403, 200, 200, 404],
    ),
    (
        "GET",
        "/v1/books/b/events",
        "",
        [401, 200, 403, 200, 200, 404],
    ),
    (
        "GET",
        "/v1/books/b/chapters",
        "",
        [401, 200, 403, 200, 200, 404],
    ),
    (
        "PUT",
        "/v1/books/b/chapters",
        "[]",
        [401, 403, 403, 200, 200, 404],
    ),
    (
        "POST",
        "/v1/books/b/close",
        "",
        [401, 403, 403, 200, 200, 404],
    ),
    (
        "POST",
        "/v1/books/b/reopen",
        "",
        [401, 403, 403, 200, 200, 404],
    ),
    ("GET", "/v1/tokens", "", [401, 403, 403, 200, 200, 200]),
    (
        "POST",
        "/v1/tokens",
        r#"{"books": ["b"], "scopes": ["read"]}"#,
        [401, 403, 403, 201, 201, 422],
    ),
    (
        "POST",
        "/v1/tokens",
        r#"{"books": ["b"], "scopes": ["manage"]}"#,
        [401, 403, 403, 201, 201, 422],
    ),
    (
        "POST",
        "/v1/tokens",
        r#"{"books": ["*"], "scopes": ["read"]}"#,
        [401, 403, 403, 403, 201, 403],
    ),
    (
        "POST",
        "/v1/tokens",
        r#"{"scopes": ["admin"]}"#,
        [401, 403, 403, 403, 201, 403],
    ),
    (
        "POST",
        "/v1/tokens",
        r#"{"books": ["b"], "scopes": ["read", "admin"]}"#,
        [401, 422, 422, 422, 422, 422],
    ),
    (
        "DELETE",
        "/v1/tokens/{fresh}",
        "",
        [401, 404, 404, 204, 204, 404],
    ),
    ("GET", "/metrics", "", [401, 403, 403, 403, 200, 403]),
    (
        "DELETE",
        "/v1/books/gone",
        "",
        [401, 403, 403, 403, 204, 404],
    ),
];

#[tokio::test]
async fn each_deed_needs_its_scope() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    api.plain_book("other", 1000, 0).await;
    api.plain_book("gone", 1000, 0).await;
    let mut callers = vec![("nobody", None)];
    for (name, books, scopes) in [
        ("read", &["b", "gone"][..], &["read"][..]),
        ("write", &["b", "gone"], &["write"]),
        ("manage", &["b", "gone"], &["manage"]),
        ("admin", &[], &["admin"]),
        ("of another book", &["other"], &["manage", "write", "read"]),
    ] {
        let made = token(&api, books, scopes).await;
        callers.push((name, Some(secret(&made).to_owned())));
    }
    for (method, path, body, expected) in DEEDS {
        for ((name, bearer), expected) in callers.iter().zip(expected) {
            let method: Method = method.parse().unwrap();
            let fresh = token(&api, &["b"], &["read"]).await;
            let path = path.replace("{fresh}", id(&fresh));
            let mut request = api
                .http
                .request(method.clone(), format!("{}{path}", server.url));
            if let Some(bearer) = bearer {
                request = request.bearer_auth(bearer);
            }
            if !body.is_empty() {
                request = request
                    .header("content-type", "application/json")
                    .body(*body);
            }
            // The head alone: a stream has no end.
            let response = request.timeout(PATIENCE).send().await.unwrap();
            let status = response.status().as_u16();
            assert_eq!(status, *expected, "{method} {path} {body} by {name}");
            if status >= 400 {
                let kind = &response.headers()["content-type"];
                assert_eq!(
                    kind, "application/problem+json",
                    "{method} {path} by {name}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_hidden_book_answers_exactly_as_one_that_does_not_exist() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("mine", 1000, 0).await;
    let hidden = api.plain_book("hidden", 1000, 0).await;
    let hidden_id = id(&hidden);
    let missing_id = uuid::Uuid::now_v7().to_string();
    let clicks = json!({"page": "/a"});
    let deeds = [
        (Method::GET, "", Value::Null),
        (Method::PUT, "", json!({"title": "T"})),
        (Method::PUT, "", json!({"title": 5})),
        (Method::PATCH, "", json!({"title": "T"})),
        (Method::PATCH, "", json!({"rollups": []})),
        (Method::DELETE, "", Value::Null),
        (Method::POST, "/clicks", clicks),
        (Method::POST, "/clicks", json!([])),
        (Method::GET, "/counts?rollup=pages", Value::Null),
        (Method::GET, "/counts?rollup=none&from=x", Value::Null),
        (Method::GET, "/snapshot", Value::Null),
        (Method::GET, "/snapshot?since=x", Value::Null),
        (Method::GET, "/events", Value::Null),
        (Method::GET, "/events?last_event_id=x", Value::Null),
        (Method::GET, "/chapters", Value::Null),
        (Method::PUT, "/chapters", json!([])),
        (Method::PUT, "/chapters", json!({})),
        (Method::POST, "/close", Value::Null),
        (Method::POST, "/reopen", Value::Null),
        (Method::GET, "/nothing", Value::Null),
        (Method::DELETE, "/clicks", Value::Null),
    ];
    for scopes in [&["read"][..], &["write"], &["manage"]] {
        let made = token(&api, &["mine"], scopes).await;
        let stranger = api.with_token(secret(&made));
        for (method, tail, body) in &deeds {
            let ask = async |name: &str| {
                let mut request =
                    stranger.request(method.clone(), &format!("/v1/books/{name}{tail}"));
                if !body.is_null() {
                    request = request.json(body);
                }
                substance(&Answer::of(request).await)
            };
            let expected = ask("missing").await;
            assert!(expected.0 >= 400, "{method} {tail}");
            for name in ["hidden", hidden_id, &missing_id] {
                assert_eq!(
                    ask(name).await,
                    expected,
                    "{method} {tail} {body} on {name}"
                );
            }
        }
        let list = stranger.get("/v1/books").await.expect(200);
        let slugs = list["items"].as_array().unwrap().iter().map(|b| &b["slug"]);
        assert_eq!(slugs.collect::<Vec<_>>(), ["mine"]);
    }
    assert_eq!(api.get("/v1/books/hidden").await.expect(200), hidden);
}
