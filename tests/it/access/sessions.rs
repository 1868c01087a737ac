//! Sessions: opened with a token, shown as a cookie or in the address, and ended with it.

use chrono::{DateTime, Utc};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{id, secret, token};
use crate::harness::api::Answer;
use crate::harness::{Api, Database, Server, start, until};
use crate::raw::fields;

/// Opens a session and gives its answer.
pub(super) async fn open(api: &Api, fields: Value) -> Value {
    api.post("/v1/sessions", &fields).await.expect(201)
}

pub(super) fn session(opened: &Value) -> &str {
    opened["session"].as_str().unwrap()
}

/// A request with no credentials but the cookie.
pub(super) fn by_cookie(api: &Api, session: &str, method: Method, path: &str) -> RequestBuilder {
    let request = api.http.request(method, format!("{}{path}", api.url));
    request.header(
        "cookie",
        format!("theme=dark; pagetide_session={session}; a=b"),
    )
}

pub(super) async fn get_by_cookie(api: &Api, session: &str, path: &str) -> Answer {
    Answer::of(by_cookie(api, session, Method::GET, path)).await
}

fn ms(time: &Value) -> i64 {
    let time = DateTime::parse_from_rfc3339(time.as_str().unwrap()).unwrap();
    time.timestamp_millis()
}

#[tokio::test]
async fn a_session_is_a_cookie_that_no_script_and_no_other_site_gets() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let before = Utc::now().timestamp_millis();
    let answer = api.post("/v1/sessions", &json!({})).await;
    let after = Utc::now().timestamp_millis();
    let cookie = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    assert_eq!(answer.headers["cache-control"], "no-store");
    let opened = answer.expect(201);
    let own = session(&opened);
    assert!(own.starts_with("ps_") && own.len() == 46, "{own}");
    let twelve_hours = 12 * 3_600_000;
    assert!((before + twelve_hours..=after + twelve_hours).contains(&ms(&opened["expires_at"])));
    let expected = format!("pagetide_session={own}; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax");
    assert_eq!(cookie, expected);
    assert_eq!(opened.as_object().unwrap().len(), 2);

    get_by_cookie(&api, own, "/v1/books/b").await.expect(200);
    let patch = by_cookie(&api, own, Method::PATCH, "/v1/books/b").json(&json!({"title": "T"}));
    assert_eq!(Answer::of(patch).await.expect(200)["title"], "T");
    let click = json!({"page": "/a", "at": 1});
    let post = by_cookie(&api, own, Method::POST, "/v1/books/b/clicks").json(&click);
    assert_eq!(Answer::of(post).await.expect(200)["on_time"], 1);
    assert_eq!(get_by_cookie(&api, own, "/metrics").await.status, 200);

    let quiet = api.post("/v1/sessions", &json!({"cookie": false})).await;
    assert!(!quiet.headers.contains_key("set-cookie"));
    let quiet = quiet.expect(201);
    get_by_cookie(&api, session(&quiet), "/v1/books/b")
        .await
        .expect(200);
}

#[tokio::test]
async fn how_long_a_session_lasts_is_said_and_bounded() {
    let (_database, server) = start().await;
    let api = server.api();
    let thirty_days = 30 * 24 * 3_600_000_i64;
    for ttl_ms in [0, -1, thirty_days + 1, i64::MAX] {
        let problem = api.post("/v1/sessions", &json!({"ttl_ms": ttl_ms})).await;
        assert_eq!(fields(&problem.expect(422)), ["ttl_ms"], "{ttl_ms}");
    }
    for wrong in [json!({"ttl_ms": "1"}), json!({"ttl": 1}), json!([1, true])] {
        let problem = api.post("/v1/sessions", &wrong).await;
        assert_eq!(problem.problem(422), "invalid", "{wrong}");
    }
    let before = Utc::now().timestamp_millis();
    let answer = api
        .post("/v1/sessions", &json!({"ttl_ms": thirty_days}))
        .await;
    let cookie = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("; Max-Age=2592000;"), "{cookie}");
    let ends = ms(&answer.expect(201)["expires_at"]);
    assert!(ends >= before + thirty_days && ends <= before + thirty_days + 60_000);

    let short = open(&api, json!({"ttl_ms": 700})).await;
    let ends = ms(&short["expires_at"]);
    get_by_cookie(&api, session(&short), "/v1/books")
        .await
        .expect(200);
    until("the session expires", || async {
        let answer = get_by_cookie(&api, session(&short), "/v1/books").await;
        (answer.status == 401).then_some(())
    })
    .await;
    assert!(Utc::now().timestamp_millis() >= ends);
}

#[tokio::test]
async fn a_session_gives_what_its_token_gives_and_no_longer() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("mine", 1000, 0).await;
    api.plain_book("other", 1000, 0).await;
    let new = json!({"books": ["mine"], "scopes": ["read"], "expires_in_ms": 60_000});
    let reader = api.post("/v1/tokens", &new).await.expect(201);
    let opened = open(&api.with_token(secret(&reader)), json!({})).await;
    // It would last for twelve hours, its token for a minute.
    assert_eq!(opened["expires_at"], reader["expires_at"]);
    let own = session(&opened);
    get_by_cookie(&api, own, "/v1/books/mine").await.expect(200);
    let hidden = get_by_cookie(&api, own, "/v1/books/other").await;
    assert_eq!(hidden.problem(404), "not_found");
    let patch = by_cookie(&api, own, Method::PATCH, "/v1/books/mine").json(&json!({}));
    assert_eq!(Answer::of(patch).await.problem(403), "forbidden");
    let metrics = get_by_cookie(&api, own, "/metrics").await;
    assert_eq!(metrics.problem(403), "forbidden");
}

#[tokio::test]
async fn a_deleted_session_holds_nowhere_after_a_second() {
    let (database, server) = start().await;
    let other = Server::start(&database).await;
    let (here, there) = (server.api(), other.api());
    let opened = open(&here, json!({})).await;
    let kept = open(&here, json!({})).await;
    for api in [&here, &there] {
        get_by_cookie(api, session(&opened), "/v1/books")
            .await
            .expect(200);
    }
    let path = "/v1/sessions/current";
    let by_token = here.delete(path).await;
    assert_eq!(by_token.problem(404), "not_found");
    let answer = Answer::of(by_cookie(&here, session(&opened), Method::DELETE, path)).await;
    assert_eq!(
        answer.headers["set-cookie"],
        "pagetide_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
    );
    answer.expect(204);
    let ended = get_by_cookie(&here, session(&opened), "/v1/books").await;
    assert_eq!(ended.problem(401), "unauthorized");
    until("the other process forgets it too", || async {
        let answer = get_by_cookie(&there, session(&opened), "/v1/books").await;
        (answer.status == 401).then_some(())
    })
    .await;
    let again = Answer::of(by_cookie(&here, session(&opened), Method::DELETE, path)).await;
    assert_eq!(again.problem(401), "unauthorized");
    for api in [&here, &there] {
        get_by_cookie(api, session(&kept), "/v1/books")
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn revoking_a_token_ends_its_sessions() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let reader = token(&api, &["b"], &["read"]).await;
    let opened = open(&api.with_token(secret(&reader)), json!({})).await;
    get_by_cookie(&api, session(&opened), "/v1/books/b")
        .await
        .expect(200);
    let revoke = format!("/v1/tokens/{}", id(&reader));
    api.delete(&revoke).await.expect(204);
    let ended = get_by_cookie(&api, session(&opened), "/v1/books/b").await;
    assert_eq!(ended.problem(401), "unauthorized");
    assert_eq!(database.number("SELECT count(*) FROM sessions").await, 0);
}

#[tokio::test]
async fn a_session_of_the_configured_admin_token_ends_when_another_is_configured() {
    let database = Database::create().await;
    let started =
        async |admin: &str| Server::start_with(&database, &[("PAGETIDE_ADMIN_TOKEN", admin)]).await;
    let one = "the-first-admin-token-of-all";
    let first = started(one).await;
    let opened = open(&Api::new(&first.url, one), json!({})).await;
    // Another process with the same token takes it, before and after a restart.
    let twin = started(one).await;
    for server in [&first, &twin] {
        let api = Api::new(&server.url, one);
        get_by_cookie(&api, session(&opened), "/v1/books")
            .await
            .expect(200);
    }
    assert!(first.terminate().await.success());
    let other = started("another-admin-token-than-that").await;
    let ended = get_by_cookie(&other.api(), session(&opened), "/v1/books").await;
    assert_eq!(ended.problem(401), "unauthorized");
    let back = started(one).await;
    get_by_cookie(&back.api(), session(&opened), "/v1/books")
        .await
        .expect(200);
    // What the database holds of it does not tell which token it was.
    let hash = "SELECT count(*) FROM sessions
                WHERE admin_seal = sha256('the-first-admin-token-of-all')";
    assert_eq!(database.number(hash).await, 0);
}

#[tokio::test]
async fn expired_sessions_are_removed() {
    let database = Database::create().await;
    let server = Server::start(&database).await;
    open(&server.api(), json!({"ttl_ms": 1})).await;
    open(&server.api(), json!({})).await;
    assert!(server.terminate().await.success());
    // More than are removed at once.
    let sql =
        "INSERT INTO sessions SELECT gen_random_uuid(), sha256(i::text::bytea), NULL, '\\x00', 0, 1
               FROM generate_series(1, 2500) i";
    crate::harness::steps::execute(&database, sql).await;
    let _server = Server::start(&database).await;
    until("what has expired is gone", || async {
        let left = database.number("SELECT count(*) FROM sessions").await;
        (left == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_address_takes_a_session_where_an_event_source_goes_and_nowhere_else() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let opened = open(&api, json!({})).await;
    let own = session(&opened);
    let ask = async |method: Method, path: &str| {
        let request = api.http.request(method, format!("{}{path}", api.url));
        let response = request.json(&json!({})).send().await.unwrap();
        response.status().as_u16()
    };
    for path in ["/counts?rollup=pages&", "/snapshot?", "/events?"] {
        let path = format!("/v1/books/b{path}session=");
        assert_eq!(
            ask(Method::GET, &format!("{path}{own}")).await,
            200,
            "{path}"
        );
        for wrong in ["", "ps_x", &own.replace("ps_", "pt_"), &api.token] {
            let status = ask(Method::GET, &format!("{path}{wrong}")).await;
            assert_eq!(status, 401, "{path}{wrong}");
        }
    }
    for (method, path) in [
        (Method::GET, "/v1/books/b"),
        (Method::GET, "/v1/books/b/chapters"),
        (Method::POST, "/v1/books/b/clicks"),
        (Method::POST, "/v1/books/b/close"),
        (Method::DELETE, "/v1/books/b"),
        (Method::DELETE, "/v1/sessions/current"),
        (Method::GET, "/metrics"),
    ] {
        let status = ask(method.clone(), &format!("{path}?session={own}")).await;
        assert_eq!(status, 401, "{method} {path}");
    }
}

#[tokio::test]
async fn the_header_comes_before_the_cookie_and_the_cookie_before_the_address() {
    let (_database, server) = start().await;
    let api = server.api();
    for name in ["one", "two", "three"] {
        api.plain_book(name, 1000, 0).await;
    }
    let mut readers = Vec::new();
    for name in ["one", "two", "three"] {
        readers.push(token(&api, &[name], &["read"]).await);
    }
    let by = |place: usize| api.with_token(secret(&readers[place]));
    let two = open(&by(1), json!({})).await;
    let three = open(&by(2), json!({})).await;
    // Which of the books each of them may see.
    let seen = async |header: Option<&str>, cookie: Option<&str>, address: Option<&str>| {
        let mut statuses = Vec::new();
        for name in ["one", "two", "three"] {
            let address = address.map(|session| format!("?session={session}"));
            let address = address.unwrap_or_default();
            let url = format!("{}/v1/books/{name}/snapshot{address}", api.url);
            let mut request = api.http.get(url);
            if let Some(header) = header {
                request = request.bearer_auth(header);
            }
            if let Some(cookie) = cookie {
                request = request.header("cookie", format!("pagetide_session={cookie}"));
            }
            statuses.push(request.send().await.unwrap().status().as_u16());
        }
        statuses
    };
    let header = Some(secret(&readers[0]));
    let (cookie, address) = (Some(session(&two)), Some(session(&three)));
    assert_eq!(seen(header, cookie, address).await, [200, 404, 404]);
    assert_eq!(seen(None, cookie, address).await, [404, 200, 404]);
    assert_eq!(seen(None, None, address).await, [404, 404, 200]);
    // A header that does not hold is not passed over; a cookie that does not hold is, for a browser
    // sends it unasked.
    assert_eq!(seen(Some("wrong"), cookie, address).await, [401; 3]);
    assert_eq!(seen(None, Some("wrong"), address).await, [404, 404, 200]);
    assert_eq!(seen(None, Some("wrong"), None).await, [401; 3]);
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing_with_the_cookie() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let opened = open(&api, json!({})).await;
    let own = session(&opened);
    let patch = json!({"title": "T"});
    let ask = async |method: Method, path: &str, origin: &str| {
        let request = by_cookie(&api, own, method, path).header("origin", origin);
        Answer::of(request.json(&patch)).await
    };
    let foreign = ["https://evil.example", "null", "http://127.0.0.1:1"];
    for origin in foreign {
        for (method, path) in [
            (Method::PATCH, "/v1/books/b"),
            (Method::PUT, "/v1/books/b"),
            (Method::POST, "/v1/books"),
            (Method::POST, "/v1/books/b/close"),
            (Method::POST, "/v1/books/b/clicks"),
            (Method::POST, "/v1/tokens"),
            (Method::DELETE, "/v1/books/b"),
            (Method::DELETE, "/v1/sessions/current"),
        ] {
            let answer = ask(method, path, origin).await;
            assert_eq!(answer.problem(403), "forbidden", "{path} {origin}");
        }
        ask(Method::GET, "/v1/books/b", origin).await.expect(200);
    }
    assert_ne!(api.get("/v1/books/b").await.expect(200)["title"], "T");
    // Our own pages, under the name by which the browser asked.
    ask(Method::PATCH, "/v1/books/b", &api.url)
        .await
        .expect(200);
    // A token is not sent by a browser unasked, wherever the request comes from.
    let request = api.request(Method::PATCH, "/v1/books/b");
    let request = request.header("cookie", format!("pagetide_session={own}"));
    let request = request.header("origin", foreign[0]).json(&patch);
    Answer::of(request).await.expect(200);
}

#[tokio::test]
async fn a_key_in_the_address_is_what_it_is_whoever_is_logged_in() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let writer = token(&api, &["b"], &["write"]).await;
    let opened = open(&api, json!({})).await;
    let path = format!("/v1/books/b/clicks?key={}", secret(&writer));
    let post = async |origin: &str| {
        let request = by_cookie(&api, session(&opened), Method::POST, &path);
        let request = request.header("origin", origin);
        Answer::of(request.json(&json!({"page": "/a", "at": 1}))).await
    };
    // With a key no `at` is taken, which with the session alone would be.
    for origin in [&api.url, "https://docs.example"] {
        let problem = post(origin).await.expect(422);
        assert_eq!(problem["errors"][0]["code"], "at_not_allowed", "{problem}");
    }
}
