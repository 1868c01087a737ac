//! Whose pages may read what.

use reqwest::Method;
use serde_json::json;

use super::{
    LISTED, OTHER, OURS, Readers, from, plain, preflight, secret, send_with_key, start_with,
};
use crate::harness::api::Answer;
use crate::harness::cluster::Cluster;
use crate::harness::{Database, Server, until};

#[tokio::test]
async fn an_origin_of_the_process_reads_everything_errors_too() {
    let (_database, server, api) = start_with(&[]).await;
    let big = "x".repeat(2 * 1024 * 1024);
    let json = "application/json";
    for (method, path, kind, body, status) in [
        (Method::GET, "/v1/books", "", "", 200),
        (Method::GET, "/v1/books/open", "", "", 200),
        (Method::GET, "/v1/books/open/snapshot", "", "", 200),
        (Method::GET, "/v1/tokens", "", "", 200),
        (Method::GET, "/readyz", "", "", 200),
        (Method::GET, "/problems/not_found", "", "", 200),
        (
            Method::POST,
            "/v1/books/open/clicks",
            json,
            r#"{"page": "/a"}"#,
            200,
        ),
        (Method::POST, "/v1/books/open/clicks", json, "{", 400),
        (
            Method::GET,
            "/v1/books/open/events?last_event_id=x",
            "",
            "",
            400,
        ),
        (Method::GET, "/v1/books/missing", "", "", 404),
        (Method::GET, "/nothing", "", "", 404),
        (Method::PUT, "/v1/books", json, "{}", 405),
        (Method::POST, "/v1/books/open/clicks", json, &*big, 413),
        (Method::POST, "/v1/books/open/clicks", "text/html", "", 415),
        (
            Method::PATCH,
            "/v1/books/open",
            json,
            r#"{"title": ""}"#,
            422,
        ),
    ] {
        let request = api.request(method.clone(), path).body(body.to_owned());
        let request = request.header("content-type", kind);
        let answer = Answer::of(from(request, OURS)).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        assert_eq!(
            Readers::of(&answer),
            Readers::origin(OURS),
            "{method} {path}"
        );
        let exposed = answer.headers["access-control-expose-headers"]
            .to_str()
            .unwrap();
        for name in ["retry-after", "x-request-id", "etag", "location"] {
            assert!(
                exposed.split(", ").any(|header| header == name),
                "{exposed}"
            );
        }
    }
    for path in ["/v1/books", "/v1/books/open", "/v1/books/open/events"] {
        let answer = Answer::of(from(plain(&api, Method::GET, path), OURS)).await;
        assert_eq!(Readers::of(&answer), Readers::origin(OURS));
        assert_eq!(answer.problem(401), "unauthorized");
    }
    let events = api.request(Method::GET, "/v1/books/open/events");
    let stream = from(events, OURS).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    assert_eq!(stream.headers()["access-control-allow-origin"], OURS);
    assert_eq!(stream.headers()["access-control-allow-credentials"], "true");
    drop(server);
}

#[tokio::test]
async fn a_request_that_names_no_origin_is_told_nothing_of_origins() {
    let (_database, _server, api) = start_with(&[]).await;
    for path in ["/v1/books", "/v1/books/listed", "/nothing"] {
        let answer = api.get(path).await;
        let mut names = answer
            .headers
            .keys()
            .map(reqwest::header::HeaderName::as_str);
        assert!(
            !names.any(|name| name.starts_with("access-control")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn an_origin_that_a_book_lists_reads_what_concerns_the_book_alone() {
    let (_database, _server, api) = start_with(&[]).await;
    let of = async |path: &str, origin: &str| {
        let answer = Answer::of(from(api.request(Method::GET, path), origin)).await;
        assert_eq!(answer.status, 200, "{path}");
        Readers::of(&answer)
    };
    for path in ["/v1/books/listed", "/v1/books/listed/snapshot"] {
        assert_eq!(of(path, LISTED).await, Readers::origin(LISTED), "{path}");
        assert_eq!(of(path, OTHER).await, Readers::Nobody, "{path}");
        assert_eq!(of(path, "null").await, Readers::Nobody, "{path}");
    }
    for path in ["/v1/books/open", "/v1/books", "/v1/tokens", "/healthz"] {
        assert_eq!(of(path, LISTED).await, Readers::Nobody, "{path}");
    }
    // A token that may do less than is asked knows of the book all the same.
    let reader = api.with_token(&secret(&api, "listed", "read").await);
    let close = reader.request(Method::POST, "/v1/books/listed/close");
    let answer = Answer::of(from(close, LISTED)).await;
    assert_eq!(Readers::of(&answer), Readers::origin(LISTED));
    assert_eq!(answer.problem(403), "forbidden");
}

#[tokio::test]
async fn a_change_of_the_list_holds_at_once_here_and_soon_elsewhere() {
    let (database, _server, api) = start_with(&[]).await;
    let other = Server::start(&database).await;
    let elsewhere = other.api();
    let readers = async |api: &crate::harness::Api, path: &str| {
        Readers::of(&Answer::of(from(api.request(Method::GET, path), OTHER)).await)
    };
    assert_eq!(readers(&api, "/v1/books/open").await, Readers::Nobody);
    assert_eq!(readers(&elsewhere, "/v1/books/open").await, Readers::Nobody);
    let asked = preflight(&api, OTHER, "PATCH", "/v1/books/open").await;
    assert_eq!(Readers::of(&asked), Readers::Nobody);
    let patch = json!({"origins": [OTHER]});
    api.patch("/v1/books/open", &patch).await.expect(200);
    assert_eq!(
        readers(&api, "/v1/books/open").await,
        Readers::origin(OTHER)
    );
    let asked = preflight(&api, OTHER, "PATCH", "/v1/books/open").await;
    assert_eq!(Readers::of(&asked), Readers::origin(OTHER));
    until("the other process knows it", async || {
        let now = readers(&elsewhere, "/v1/books/open").await;
        (now == Readers::origin(OTHER)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn clicks_with_a_key_come_from_anywhere_unless_the_book_lists_origins() {
    let (_database, _server, api) = start_with(&[]).await;
    let open = secret(&api, "open", "write").await;
    for (origin, readers) in [
        (OTHER, Readers::Anyone),
        ("null", Readers::Anyone),
        (LISTED, Readers::Anyone),
        (OURS, Readers::origin(OURS)),
    ] {
        let answer = send_with_key(&api, "open", &open, origin).await;
        assert_eq!(answer.status, 200, "{origin}: {}", answer.text);
        assert_eq!(Readers::of(&answer), readers, "{origin}");
    }

    let listed = secret(&api, "listed", "write").await;
    for origin in [
        OTHER,
        "null",
        "https://listed.example.evil.example",
        "http://listed.example",
    ] {
        let answer = send_with_key(&api, "listed", &listed, origin).await;
        assert_eq!(Readers::of(&answer), Readers::Nobody, "{origin}");
        assert_eq!(answer.problem(403), "origin_not_allowed", "{origin}");
    }
    for origin in [LISTED, OURS] {
        let answer = send_with_key(&api, "listed", &listed, origin).await;
        assert_eq!(answer.status, 200, "{origin}");
        assert_eq!(Readers::of(&answer), Readers::origin(origin));
    }
    // No page sends it, or a page that this server itself gave.
    for origin in ["", &*api.url] {
        let answer = send_with_key(&api, "listed", &listed, origin).await;
        assert_eq!(answer.status, 200, "{origin}");
    }
    let body = api.get("/v1/books/listed").await.expect(200);
    assert_eq!(
        body["totals"]["received"], 4,
        "what was refused left a trace"
    );

    // A token in a header is no key: it is sent by somebody who knows it.
    let path = "/v1/books/listed/clicks?key=none";
    let request = api.request(Method::POST, path).json(&json!({"page": "/a"}));
    let answer = Answer::of(from(request, OTHER)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(Readers::of(&answer), Readers::Nobody);
}

#[tokio::test]
async fn the_description_of_the_interface_is_read_by_anyone() {
    let (_database, _server, api) = start_with(&[]).await;
    for path in ["/openapi.json", "/openapi.yaml"] {
        let answer = Answer::of(from(plain(&api, Method::GET, path), OTHER)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(Readers::of(&answer), Readers::Anyone);
    }
}

#[tokio::test]
async fn a_preflight_allows_what_the_interface_takes() {
    let (_database, _server, api) = start_with(&[]).await;
    let answer = preflight(&api, OURS, "PUT", "/v1/books/open/chapters").await;
    assert_eq!(answer.status, 204);
    assert_eq!(Readers::of(&answer), Readers::origin(OURS));
    let list = |name: &str| {
        let list = answer.headers[name].to_str().unwrap().split(", ");
        list.map(str::to_owned).collect::<Vec<_>>()
    };
    let headers = list("access-control-allow-headers");
    for name in [
        "authorization",
        "content-type",
        "content-encoding",
        "last-event-id",
        "idempotency-key",
        "x-request-id",
        "if-match",
    ] {
        assert!(headers.iter().any(|header| header == name), "{headers:?}");
    }
    let methods = list("access-control-allow-methods");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        assert!(methods.iter().any(|m| m == method), "{methods:?}");
    }

    let refused = preflight(&api, OTHER, "PUT", "/v1/books/open/chapters").await;
    assert_eq!(Readers::of(&refused), Readers::Nobody);
    assert!(!refused.headers.contains_key("access-control-allow-methods"));
    // Without the headers of a preflight, it is a method like others.
    let options = plain(&api, Method::OPTIONS, "/v1/books/open");
    assert_eq!(
        Answer::of(from(options, OURS)).await.problem(405),
        "method_not_allowed"
    );
}

#[tokio::test]
async fn what_is_answered_while_postgres_is_away_can_be_read() {
    let cluster = Cluster::start();
    let database = Database::create_on(cluster.socket_url()).await;
    let env = [("PAGETIDE_ALLOWED_ORIGINS", OURS)];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.book("b", json!({"origins": [LISTED]})).await;
    // What the book lists is known from here on.
    api.get("/v1/books/b").await.expect(200);
    cluster.stop("fast");
    for origin in [OURS, LISTED] {
        let request = from(api.request(Method::GET, "/v1/books/b"), origin);
        let answer = Answer::of(request).await;
        assert_eq!(Readers::of(&answer), Readers::origin(origin));
        assert!(answer.headers.contains_key("retry-after"));
        assert_eq!(answer.problem(503), "unavailable");
    }
    cluster.resume();
}

#[tokio::test]
async fn an_origin_that_no_browser_sends_is_refused_at_the_start() {
    for wrong in [
        "*",
        "example.org",
        "https://Example.org",
        "https://a.example/",
    ] {
        let mut command = Server::command();
        command.env("DATABASE_URL", "postgres:///nothing");
        command.env("PAGETIDE_ALLOWED_ORIGINS", wrong);
        assert!(Server::try_spawn(command).await.is_err(), "{wrong}");
    }
}
