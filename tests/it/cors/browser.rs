//! What pages can read and send, told by a real browser.

use serde_json::{Value, json};

use super::secret;
use crate::harness::browser::{Browser, site};
use crate::harness::{Api, Database, Server, until};

/// Two sites, of which the server allows the first, and the books `open`, which lists no origin, and
/// `listed`, which lists the first site's.
struct Stage {
    _database: Database,
    _server: Server,
    api: Api,
    browser: Browser,
    allowed: String,
    other: String,
}

impl Stage {
    async fn set() -> Self {
        let (allowed, other) = (site().await, site().await);
        let database = Database::create().await;
        let env = [("PAGETIDE_ALLOWED_ORIGINS", &*allowed)];
        let server = Server::start_with(&database, &env).await;
        let api = server.api();
        // It drives itself, and would be taken for the program that it is.
        let fields = json!({"settings": {"filter_bots": false}});
        api.book("open", fields).await;
        let fields = json!({"settings": {"filter_bots": false}, "origins": [allowed]});
        api.book("listed", fields).await;
        Self {
            _database: database,
            _server: server,
            api,
            browser: Browser::start().await,
            allowed,
            other,
        }
    }

    /// What `fetch` gives a page: status, text and the headers that it may see, or an error.
    async fn fetch(&self, path: &str, init: Value) -> Value {
        let script = "const [url, init] = arguments;
            const answer = await fetch(url, init);
            return {status: answer.status, text: await answer.text(),
                    headers: Object.fromEntries(answer.headers)};";
        let arguments = json!([format!("{}{path}", self.api.url), init]);
        self.browser.run(script, arguments).await
    }

    /// How many clicks of a book were received.
    async fn received(&self, book: &str) -> i64 {
        let body = self.api.get(&format!("/v1/books/{book}")).await.expect(200);
        body["totals"]["received"].as_i64().unwrap()
    }

    async fn waits_for(&self, book: &str, received: i64) {
        until("the clicks are there", async || {
            (self.received(book).await == received).then_some(())
        })
        .await;
    }
}

/// The page could not read an answer.
#[track_caller]
fn unreadable(answer: &Value) {
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("TypeError: Failed to fetch"), "{answer}");
}

#[track_caller]
fn read(answer: &Value, status: u16) -> Value {
    assert_eq!(answer["status"], status, "{answer}");
    serde_json::from_str(answer["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_reads_answers_and_others_do_not() {
    let stage = Stage::set().await;
    let bearer = format!("Bearer {}", stage.api.token);
    for credentials in ["omit", "include"] {
        let with_token = json!({"credentials": credentials, "headers": {"authorization": bearer}});
        let plain = json!({"credentials": credentials});
        let post = json!({
            "method": "POST", "credentials": credentials, "body": r#"{"page": "/a"}"#,
            "headers": {"authorization": bearer, "content-type": "application/json",
                        "idempotency-key": credentials, "x-request-id": "mine"},
        });
        let before = stage.received("open").await;

        stage.browser.visit(&stage.allowed).await;
        let answer = stage.fetch("/v1/books/open", with_token.clone()).await;
        assert_eq!(read(&answer, 200)["slug"], "open");
        assert!(answer["headers"]["x-request-id"].is_string(), "{answer}");
        let answer = stage.fetch("/v1/books/open", plain.clone()).await;
        assert_eq!(read(&answer, 401)["code"], "unauthorized");
        let answer = stage.fetch("/v1/books/missing", with_token.clone()).await;
        assert_eq!(read(&answer, 404)["code"], "not_found");
        let answer = stage.fetch("/v1/books/open/clicks", post.clone()).await;
        assert_eq!(read(&answer, 200)["on_time"], 1);
        assert_eq!(answer["headers"]["x-request-id"], "mine");
        assert_eq!(stage.received("open").await, before + 1);

        stage.browser.visit(&stage.other).await;
        unreadable(&stage.fetch("/v1/books/open", with_token).await);
        unreadable(&stage.fetch("/v1/books/open", plain).await);
        unreadable(&stage.fetch("/v1/books/open/clicks", post).await);
        assert_eq!(
            stage.received("open").await,
            before + 1,
            "the preflight let it through"
        );
        let answer = stage.fetch("/openapi.json", json!({})).await;
        assert_eq!(read(&answer, 200)["info"]["title"], "Pagetide");
    }
}

#[tokio::test]
async fn a_page_of_any_origin_sends_clicks_with_a_key() {
    let stage = Stage::set().await;
    let open = secret(&stage.api, "open", "write").await;
    let listed = secret(&stage.api, "listed", "write").await;
    let path = |book: &str, key: &str| format!("/v1/books/{book}/clicks?key={key}");
    let post = |credentials| {
        json!({"method": "POST", "credentials": credentials, "body": r#"{"page": "/a"}"#,
               "headers": {"content-type": "text/plain"}})
    };
    let json_post = json!({"method": "POST", "body": r#"{"page": "/a"}"#,
                           "credentials": "omit", "headers": {"content-type": "application/json"}});

    stage.browser.visit(&stage.other).await;
    let answer = stage.fetch(&path("open", &open), post("omit")).await;
    assert_eq!(read(&answer, 200)["on_time"], 1);
    let answer = stage.fetch(&path("open", &open), json_post.clone()).await;
    assert_eq!(read(&answer, 200)["on_time"], 1);
    let answer = stage.fetch(&path("open", "pt_wrong"), post("omit")).await;
    assert_eq!(read(&answer, 401)["code"], "unauthorized");
    // It is sent, and counts; with credentials its answer is for nobody.
    unreadable(&stage.fetch(&path("open", &open), post("include")).await);
    stage.waits_for("open", 3).await;
    let beacon = "const [url, body] = arguments;
        return navigator.sendBeacon(url, new Blob([body], {type: 'text/plain'}));";
    let url = |path: String| format!("{}{path}", stage.api.url);
    let click = r#"{"page": "/beacon"}"#;
    let sent = stage
        .browser
        .run(beacon, json!([url(path("open", &open)), click]))
        .await;
    assert_eq!(sent, true);
    stage.waits_for("open", 4).await;

    // Only to books that list no origins.
    unreadable(&stage.fetch(&path("listed", &listed), post("omit")).await);
    unreadable(
        &stage
            .fetch(&path("listed", &listed), json_post.clone())
            .await,
    );
    stage.browser.visit(&stage.allowed).await;
    let answer = stage.fetch(&path("listed", &listed), json_post).await;
    assert_eq!(read(&answer, 200)["on_time"], 1);
    let sent = stage
        .browser
        .run(beacon, json!([url(path("listed", &listed)), click]))
        .await;
    assert_eq!(sent, true);
    stage.waits_for("listed", 2).await;
}

#[tokio::test]
async fn an_event_source_with_credentials_follows_from_an_allowed_origin_alone() {
    let stage = Stage::set().await;
    let bearer = format!("Bearer {}", stage.api.token);
    stage.api.clicks("listed", json!({"page": "/a"})).await;
    let follow = "const [url] = arguments;
        return await new Promise(done => {
            const source = new EventSource(url, {withCredentials: true});
            const seen = [];
            source.addEventListener('hello', e => seen.push(JSON.parse(e.data).mode));
            source.addEventListener('counts', e => {
                source.close();
                done([...seen, e.lastEventId]);
            });
            source.onerror = () => { source.close(); done('refused'); };
        });";
    let url = format!(
        "{}/v1/books/listed/events?last_event_id=earliest",
        stage.api.url
    );
    stage.browser.visit(&stage.allowed).await;
    let nobody = stage.browser.run(follow, json!([url])).await;
    assert_eq!(nobody, "refused", "without credentials");
    for (origin, seen) in [
        (&stage.allowed, json!(["replay", "1"])),
        (&stage.other, json!("refused")),
    ] {
        stage.browser.visit(origin).await;
        stage
            .browser
            .send_always(json!({"authorization": bearer}))
            .await;
        let followed = stage.browser.run(follow, json!([url])).await;
        assert_eq!(followed, seen, "{origin}");
        stage.browser.send_always(json!({})).await;
    }

    // As clients do that are no EventSource.
    let resume = "const [url, headers] = arguments;
        const answer = await fetch(url, {headers});
        const {value} = await answer.body.getReader().read();
        return new TextDecoder().decode(value).split('\\n')[0];";
    let headers = json!({"authorization": bearer, "last-event-id": "0"});
    stage.browser.visit(&stage.allowed).await;
    let first = stage.browser.run(resume, json!([url, headers])).await;
    assert_eq!(first, "event: hello");
    stage.browser.visit(&stage.other).await;
    unreadable(&stage.browser.run(resume, json!([url, headers])).await);
}
