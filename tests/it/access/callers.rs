//! Who calls is told what it may do, and how long what it makes lasts.

use reqwest::Method;
use serde_json::{Value, json};

use super::sessions::{by_cookie, get_by_cookie, open, session};
use super::{secret, token};
use crate::harness::api::Answer;
use crate::harness::start;

#[tokio::test]
async fn who_calls_is_told_what_it_may_do() {
    let (_database, server) = start().await;
    let api = server.api();
    let book = api.plain_book("b", 1000, 0).await;
    let path = "/v1/sessions/current";
    let admin = api.get(path).await;
    assert_eq!(admin.headers["cache-control"], "no-store");
    let everything =
        json!({"expires_at": null, "admin": true, "books": ["*"], "scopes": ["admin"]});
    assert_eq!(admin.expect(200), everything);

    let new = json!({"books": ["b"], "scopes": ["read", "write"], "expires_in_ms": 60_000});
    let some = api.post("/v1/tokens", &new).await.expect(201);
    let by_token = api.with_token(secret(&some));
    let expected = json!({"expires_at": some["expires_at"], "admin": false,
                          "books": [book["id"]], "scopes": ["read", "write"]});
    assert_eq!(by_token.get(path).await.expect(200), expected);
    let opened = open(&by_token, json!({"ttl_ms": 30_000})).await;
    let mut of_session = expected.clone();
    of_session["expires_at"] = opened["expires_at"].clone();
    let told = get_by_cookie(&api, session(&opened), path).await;
    assert_eq!(told.expect(200), of_session);
    let everywhere = token(&api, &["*"], &["manage"]).await;
    let told = api.with_token(secret(&everywhere)).get(path).await;
    assert_eq!(told.expect(200)["books"], json!(["*"]));
    let nobody = Answer::of(api.http.get(format!("{}{path}", api.url))).await;
    assert_eq!(nobody.problem(401), "unauthorized");
}

#[tokio::test]
async fn a_session_makes_nothing_that_changes_things_after_its_end() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let manager = token(&api, &["b"], &["manage"]).await;
    let opened = open(&api.with_token(secret(&manager)), json!({"ttl_ms": 60_000})).await;
    let made = async |session: &str, scopes: &[&str]| {
        let new = json!({"books": ["b"], "scopes": scopes});
        let post = by_cookie(&api, session, Method::POST, "/v1/tokens").json(&new);
        Answer::of(post).await.expect(201)["expires_at"].clone()
    };
    let own = session(&opened);
    for scopes in [&["manage"][..], &["read", "manage"]] {
        assert_eq!(made(own, scopes).await, opened["expires_at"], "{scopes:?}");
    }
    // But the key that a book's pages carry, or a link to its dashboard, is made in a browser and
    // stays: for as long as the token that stands behind the session.
    for scopes in [&["write"][..], &["read"], &["read", "write"]] {
        assert_eq!(made(own, scopes).await, Value::Null, "{scopes:?}");
    }
    let new = json!({"books": ["b"], "scopes": ["manage"], "expires_in_ms": 120_000});
    let brief = api.post("/v1/tokens", &new).await.expect(201);
    let of_brief = json!({"ttl_ms": 60_000});
    let of_brief = open(&api.with_token(secret(&brief)), of_brief).await;
    let own = session(&of_brief);
    assert_eq!(made(own, &["write"]).await, brief["expires_at"]);
    assert_eq!(made(own, &["manage"]).await, of_brief["expires_at"]);
    // Nor does it open another of itself: that would have no end.
    let post = by_cookie(&api, session(&opened), Method::POST, "/v1/sessions").json(&json!({}));
    assert_eq!(Answer::of(post).await.problem(401), "unauthorized");
    // And it is no token.
    let as_token = api.with_token(session(&opened)).get("/v1/books/b").await;
    assert_eq!(as_token.problem(401), "unauthorized");
}
