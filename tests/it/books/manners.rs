//! What holds for every answer.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use crate::harness::api::Answer;
use crate::harness::start;
use crate::raw::send;

#[tokio::test]
async fn an_unknown_path_is_404() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    for path in [
        "/v1",
        "/v1/nothing",
        "/v1/books/b/nothing",
        "/v2/books",
        "/v1/books/b/counts/x",
    ] {
        assert_eq!(api.get(path).await.problem(404), "not_found", "{path}");
    }
    for name in ["%ff", "%2e%2e", "b%2Fc"] {
        let answer = api.get(&format!("/v1/books/{name}")).await;
        assert_eq!(answer.problem(404), "not_found", "{name}");
    }
}

#[tokio::test]
async fn a_nul_byte_in_an_address_is_in_no_address() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    for path in ["/v1/books/b%00", "/v1/books/%00", "/v1/tokens/%00"] {
        let answer = api.delete(path).await;
        assert_eq!(answer.problem(404), "not_found", "{path}");
    }
}

#[tokio::test]
async fn a_nul_byte_in_a_query_is_no_fault_of_the_server() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let mut faults = Vec::new();
    for path in [
        "/v1/books/b/counts?rollup=pages&group=%00",
        "/v1/books/b/counts?rollup=%00",
        "/v1/books/b/snapshot?since=%00",
        "/v1/books/b/events?last_event_id=%00",
        "/v1/books?cursor=%00",
    ] {
        let status = api.get(path).await.status;
        if status.is_server_error() {
            faults.push((path, status));
        }
    }
    assert_eq!(faults, []);
}

#[tokio::test]
async fn a_nul_byte_in_the_name_of_a_tokens_book_is_refused() {
    let (_database, server) = start().await;
    let api = server.api();
    let token = json!({"books": ["b\u{0}"], "scopes": ["read"]});
    assert_eq!(api.post("/v1/tokens", &token).await.problem(422), "invalid");
}

#[tokio::test]
async fn a_wrong_method_is_405_with_those_that_are_allowed() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let cases = [
        (Method::DELETE, "/v1/books", &["GET", "POST"][..]),
        (
            Method::POST,
            "/v1/books/b",
            &["GET", "PUT", "PATCH", "DELETE"],
        ),
        (Method::GET, "/v1/books/b/close", &["POST"]),
        (Method::GET, "/v1/books/b/clicks", &["POST"]),
        (Method::POST, "/v1/books/b/counts", &["GET"]),
        (Method::POST, "/v1/books/b/events", &["GET"]),
        (Method::PUT, "/v1/tokens", &["GET", "POST"]),
        (Method::POST, "/healthz", &["GET"]),
        (Method::POST, "/openapi.json", &["GET"]),
        (Method::DELETE, "/problems/not_found", &["GET"]),
    ];
    for (method, path, expected) in cases {
        let answer = Answer::of(api.request(method, path)).await;
        let allow = answer.headers["allow"].to_str().unwrap().to_owned();
        let allowed: BTreeSet<&str> = allow.split(',').map(str::trim).collect();
        for method in expected {
            assert!(allowed.contains(method), "{path} allows {allow}");
        }
        assert_eq!(answer.problem(405), "method_not_allowed", "{path}");
    }
}

#[tokio::test]
async fn head_gets_no_body_over_either_protocol() {
    let (_database, server) = start().await;
    let api = server.api();
    let url = format!("{}/v1/books/b/clicks", server.url);
    assert_eq!(
        Answer::of(api.request(Method::HEAD, "/v1/books/b/clicks"))
            .await
            .status,
        405
    );
    for two in [false, true] {
        let mut client = reqwest::Client::builder();
        if two {
            client = client.http2_prior_knowledge();
        }
        let answer = client.build().unwrap().head(&url).send().await.unwrap();
        assert_eq!(answer.status(), 405);
        assert_eq!(answer.bytes().await.unwrap(), "");
    }
}

#[tokio::test]
async fn every_answer_carries_the_request_id_that_came_or_one_of_its_own() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let mut made = BTreeSet::new();
    let requests = [
        (Method::GET, "/v1/books/b", 200),
        (Method::GET, "/v1/nothing", 404),
        (Method::DELETE, "/v1/books", 405),
        (Method::POST, "/v1/books", 415),
        (Method::GET, "/healthz", 200),
        (Method::GET, "/problems/not_found", 200),
        (Method::GET, "/openapi.yaml", 200),
    ];
    for (method, path, status) in requests {
        let request = api.request(method.clone(), path);
        let answer = Answer::of(request.header("x-request-id", "mine-42")).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.headers["x-request-id"], "mine-42", "{path}");
        let answer = Answer::of(api.request(method, path)).await;
        let id = answer.headers["x-request-id"].to_str().unwrap();
        Uuid::parse_str(id).unwrap();
        made.insert(id.to_owned());
    }
    assert_eq!(made.len(), 7);
    let nobody = api.with_token("");
    let answer = Answer::of(nobody.request(Method::GET, "/v1/books")).await;
    assert_eq!(answer.status, 401);
    assert!(answer.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn bodies_that_are_no_json_or_too_large_or_of_another_type_are_told_apart() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let json = Some("application/json");
    let routes = [
        (Method::POST, "/v1/books"),
        (Method::PUT, "/v1/books/c"),
        (Method::PATCH, "/v1/books/b"),
        (Method::POST, "/v1/tokens"),
    ];
    for (method, path) in routes {
        for body in ["", "{", "nonsense"] {
            let answer = send(&api, (method.clone(), path), json, body).await;
            assert_eq!(answer.problem(400), "not_json", "{method} {path} {body}");
        }
        for body in ["5", "null", "\"x\"", "[1]"] {
            let answer = send(&api, (method.clone(), path), json, body).await;
            assert_eq!(answer.problem(422), "invalid", "{method} {path} {body}");
        }
        for kind in [
            None,
            Some("application/x-www-form-urlencoded"),
            Some("text/plain"),
        ] {
            let answer = send(&api, (method.clone(), path), kind, "{}").await;
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(
                detail.contains("Content-Type: application/json"),
                "{detail}"
            );
            assert_eq!(answer.problem(415), "unsupported_media_type");
        }
        let large = format!("{{\"title\": \"{}\"}}", "x".repeat(1024 * 1024));
        let answer = send(&api, (method.clone(), path), json, large).await;
        assert_eq!(answer.problem(413), "too_large", "{method} {path}");
    }
}

#[tokio::test]
async fn every_kind_of_problem_has_a_page() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    api.clicks("b", json!({"page": "/a", "at": 1})).await;
    api.plain_book("closed", 1000, 0).await;
    api.post("/v1/books/closed/close", &json!({}))
        .await
        .expect(200);
    let made = api
        .post("/v1/tokens", &json!({"books": ["b"], "scopes": ["read"]}))
        .await;
    let reader = api.with_token(made.expect(201)["token"].as_str().unwrap());
    let clicks = "/v1/books/b/clicks";
    let json_kind = Some("application/json");
    let many = json!(vec![json!({"page": "/a"}); 10_001]);
    let packed = api
        .request(Method::POST, "/v1/books/b/imports?format=ndjson")
        .header("content-encoding", "gzip")
        .body("no gzip");
    let key = api
        .request(Method::POST, clicks)
        .header("idempotency-key", "");
    let answers = [
        send(&api, (Method::POST, clicks), json_kind, "x").await,
        api.get("/v1/books?limit=0").await,
        api.get("/v1/books/b/events?last_event_id=x").await,
        Answer::of(key.json(&json!({"page": "/a"}))).await,
        api.with_token("wrong").get("/v1/books").await,
        reader.delete("/v1/books/b").await,
        api.get("/v1/nothing").await,
        api.delete("/v1/books").await,
        api.post("/v1/books/closed/clicks", &json!({"page": "/a"}))
            .await,
        api.post("/v1/books", &json!({"title": "b"})).await,
        Answer::of(packed).await,
        send(
            &api,
            (Method::POST, clicks),
            json_kind,
            " ".repeat(1024 * 1024 + 1),
        )
        .await,
        api.post(clicks, &many).await,
        send(&api, (Method::POST, clicks), None, "{}").await,
        api.post("/v1/books", &json!({"title": ""})).await,
        api.post(clicks, &json!({"page": ""})).await,
    ];
    let mut kinds = BTreeSet::new();
    for answer in answers {
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        let problem = answer.json();
        for text in ["title", "detail", "code"] {
            assert!(!problem[text].as_str().unwrap().is_empty(), "{problem}");
        }
        assert_eq!(problem["status"], answer.status.as_u16());
        kinds.insert(problem["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds.len(), 16, "{kinds:?}");
    for kind in kinds {
        let page = api
            .http
            .get(format!("{}{kind}", server.url))
            .send()
            .await
            .unwrap();
        assert_eq!(page.status(), 200, "{kind}");
        let html = page.headers()["content-type"].to_str().unwrap();
        assert!(html.starts_with("text/html"), "{kind}: {html}");
        let code = kind.rsplit('/').next().unwrap();
        assert!(page.text().await.unwrap().contains(code), "{kind}");
    }
    assert_eq!(api.get("/problems/none").await.problem(404), "not_found");
}
