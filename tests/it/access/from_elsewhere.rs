//! Sessions of browsers that come by a proxy that speaks TLS, or from pages that may call.

use reqwest::Method;
use serde_json::json;

use super::sessions::{by_cookie, open, session};
use crate::harness::api::Answer;
use crate::harness::{Database, Server, start};

#[tokio::test]
async fn behind_a_proxy_that_speaks_tls_the_cookie_is_for_tls_alone() {
    let (_database, server) = start().await;
    let api = server.api();
    // This machine is trusted, for only it can connect.
    for (scheme, secure) in [("https", true), ("http", false)] {
        let request = api.request(Method::POST, "/v1/sessions").json(&json!({}));
        let request = request.header("x-forwarded-for", "192.0.2.1");
        let answer = Answer::of(request.header("x-forwarded-proto", scheme)).await;
        let cookie = answer.headers["set-cookie"].to_str().unwrap().to_owned();
        assert_eq!(cookie.ends_with("; Secure"), secure, "{cookie}");
        let opened = answer.expect(201);
        let end = by_cookie(
            &api,
            session(&opened),
            Method::DELETE,
            "/v1/sessions/current",
        );
        let ended = Answer::of(end.header("x-forwarded-proto", scheme)).await;
        assert_eq!(ended.status, 204);
        let cleared = ended.headers["set-cookie"].to_str().unwrap();
        assert_eq!(cleared.ends_with("; Secure"), secure, "{cleared}");
    }
}

#[tokio::test]
async fn a_page_of_an_origin_of_the_process_may_use_the_cookie() {
    let database = Database::create().await;
    let allowed = [("PAGETIDE_ALLOWED_ORIGINS", "https://docs.example")];
    let server = Server::start_with(&database, &allowed).await;
    let api = server.api();
    // An origin that a book lists may read with it, and change nothing.
    let fields = json!({"title": "B", "origins": ["https://book.example"]});
    api.book("b", fields).await;
    let opened = open(&api, json!({})).await;
    let ask = async |method: Method, origin: &str| {
        let request = by_cookie(&api, session(&opened), method, "/v1/books/b");
        let request = request.header("origin", origin);
        Answer::of(request.json(&json!({"title": "T"}))).await
    };
    for (origin, patched) in [("https://docs.example", 200), ("https://book.example", 403)] {
        let answer = ask(Method::PATCH, origin).await;
        assert_eq!(answer.status, patched, "{origin}");
        assert_eq!(answer.headers["access-control-allow-origin"], origin);
        assert_eq!(answer.headers["access-control-allow-credentials"], "true");
        assert_eq!(ask(Method::GET, origin).await.status, 200);
    }
}
