//! What answers tell browsers, so that nobody makes something else of them.

use reqwest::Method;
use serde_json::json;

use crate::harness::{Answer, Database, Server, start};

#[tokio::test]
async fn no_answer_is_sniffed_or_kept() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    for (method, path) in [
        (Method::GET, "/v1/books"),
        (Method::GET, "/v1/books/b"),
        (Method::GET, "/v1/books/b/snapshot"),
        (Method::GET, "/v1/books/b/counts?rollup=pages"),
        (Method::GET, "/v1/tokens"),
        (Method::GET, "/v1/books/missing"),
        (Method::GET, "/nothing"),
        (Method::PUT, "/v1/books"),
        (Method::POST, "/v1/books/b/clicks"),
        (Method::OPTIONS, "/v1/books/b"),
        (Method::GET, "/healthz"),
        (Method::GET, "/readyz"),
        (Method::GET, "/metrics"),
        (Method::GET, "/openapi.json"),
        (Method::GET, "/problems/not_found"),
        (Method::DELETE, "/v1/books/b"),
    ] {
        let answer = Answer::of(api.request(method.clone(), path)).await;
        assert_eq!(
            answer.headers["x-content-type-options"], "nosniff",
            "{method} {path}"
        );
        assert_eq!(
            answer.headers["cache-control"], "no-store",
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn pages_do_nothing_that_they_need_not_do() {
    let (_database, server) = start().await;
    for path in ["/problems/not_found", "/problems/rate_limited"] {
        let answer = server.api().get(path).await;
        assert_eq!(answer.status, 200);
        let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        for directive in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.split("; ").any(|part| part == directive), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
    }
}

#[tokio::test]
async fn the_dashboard_stands_in_frames_of_those_alone_who_are_listed() {
    let database = Database::create().await;
    let listed = "https://wall.example, http://127.0.0.1:8081";
    let server = Server::start_with(&database, &[("PAGETIDE_FRAME_ANCESTORS", listed)]).await;
    let unlisted = Server::start(&database).await;
    for path in ["/", "/new", "/books/b", "/share/b"] {
        for (server, ancestors) in [
            (&server, "https://wall.example http://127.0.0.1:8081"),
            (&unlisted, "'none'"),
        ] {
            let answer = server.api().get(path).await;
            assert_eq!(answer.status, 200, "{path}");
            let policy = answer.headers["content-security-policy"].to_str().unwrap();
            let wanted = format!("frame-ancestors {ancestors}");
            assert!(policy.split("; ").any(|part| part == wanted), "{policy}");
            assert!(policy.starts_with("default-src 'none'; "), "{policy}");
            let denied = answer.headers.contains_key("x-frame-options");
            assert_eq!(denied, ancestors == "'none'", "{path}");
        }
    }
    let other = server.api().get("/problems/not_found").await;
    assert_eq!(other.headers["x-frame-options"], "DENY");
}
