//! Books are closed, reopened and deleted.

use serde_json::{Value, json};

use crate::harness::{Api, PATIENCE, Server, start, until};

const END_OF_TIME: &str = "9999-12-31T23:59:59.999Z";

/// The states of all windows of `pages`, by start.
async fn states(api: &Api, book: &str) -> Vec<String> {
    let counts = api.counts(book, "pages").await;
    let state = |count: &Value| count["state"].as_str().unwrap().to_owned();
    counts.iter().map(state).collect()
}

#[tokio::test]
async fn closing_a_book_fires_every_window_and_brings_it_to_rest() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 10_000).await;
    let clicks = json!([{"page": "/a", "at": 500}, {"page": "/a", "at": 1500},
                        {"page": "/a", "at": 2500}]);
    api.clicks("b", clicks).await;
    assert_eq!(states(&api, "b").await, ["fired", "fired", "open"]);
    let mut events = api.follow("b", "", None).await;
    let book = api.post("/v1/books/b/close", &json!({})).await.expect(200);
    assert_eq!(book["status"], "closed");
    assert_eq!(book["watermark"], END_OF_TIME);
    assert_eq!(book["at_rest"], true);
    assert_eq!(states(&api, "b").await, ["closed", "closed", "closed"]);
    let mut frames = events.through(book["position"].as_i64().unwrap()).await;
    let status = frames.pop().unwrap();
    let said = (
        &status.data["type"],
        &status.data["status"],
        &status.data["reason"],
    );
    assert_eq!(said, (&json!("status"), &json!("closed"), &json!("closed")));
    let counts = frames.pop().unwrap();
    let panes = json!([{"rollup": "pages", "start": "1970-01-01T00:00:02.000Z", "pane": "on_time",
                        "end": "1970-01-01T00:00:03.000Z", "values": {"/a": 1}}]);
    assert_eq!(counts.data["panes"], panes);
}

#[tokio::test]
async fn a_closed_book_takes_no_clicks() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let book = api.post("/v1/books/b/close", &json!({})).await.expect(200);
    let path = "/v1/books/b/clicks";
    for clicks in [
        json!({"page": "/a", "at": 1}),
        json!([{"page": "/a"}, {"page": ""}]),
    ] {
        assert_eq!(api.post(path, &clicks).await.problem(409), "book_closed");
    }
    assert_eq!(api.get("/v1/books/b").await.expect(200), book);
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 0);
}

#[tokio::test]
async fn a_book_closed_twice_and_reopened_twice_changes_once() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    for deed in ["close", "reopen"] {
        let path = format!("/v1/books/b/{deed}");
        let first = api.post(&path, &json!({})).await.expect(200);
        let second = api.post(&path, &json!({})).await.expect(200);
        assert_eq!(first, second, "{deed}");
    }
}

#[tokio::test]
async fn a_reopened_book_goes_on_where_it_was_and_what_has_fired_stays_fired() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 10_000).await;
    api.clicks(
        "b",
        json!([{"page": "/a", "at": 500}, {"page": "/a", "at": 2500}]),
    )
    .await;
    let before = api.get("/v1/books/b").await.expect(200);
    api.post("/v1/books/b/close", &json!({})).await.expect(200);
    let book = api.post("/v1/books/b/reopen", &json!({})).await.expect(200);
    assert_eq!(book["status"], "live");
    assert_eq!(book["at_rest"], false);
    assert_eq!(book["watermark"], before["watermark"]);
    assert_eq!(book["watermark"], "1970-01-01T00:00:02.500Z");
    assert_eq!(states(&api, "b").await, ["fired", "fired"]);
    let taken = api.clicks("b", json!({"page": "/a", "at": 2600})).await;
    assert_eq!(taken["on_time"], 1);
    assert_eq!(states(&api, "b").await, ["fired", "fired"]);
    assert_eq!(api.counts("b", "pages").await[1]["value"], 2);
}

#[tokio::test]
async fn a_book_without_clicks_is_closed_and_reopened_to_no_watermark() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let book = api.post("/v1/books/b/close", &json!({})).await.expect(200);
    assert_eq!(book["watermark"], END_OF_TIME);
    let book = api.post("/v1/books/b/reopen", &json!({})).await.expect(200);
    assert_eq!(book["watermark"], Value::Null);
    let taken = api.clicks("b", json!({"page": "/a", "at": 1})).await;
    assert_eq!(taken["on_time"], 1);
}

#[tokio::test]
async fn close_and_reopen_need_no_body() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    for deed in ["close", "reopen"] {
        let path = format!("{}/v1/books/b/{deed}", server.url);
        let request = api.http.post(path).bearer_auth(&api.token);
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_deleted_book_is_gone_at_once_and_its_rows_in_the_end() {
    let (database, server) = start().await;
    let api = server.api();
    let kept = api.plain_book("kept", 1000, 0).await;
    let gone = api.plain_book("gone", 1000, 0).await;
    for slug in ["kept", "gone"] {
        api.clicks(
            slug,
            json!([{"page": "/a", "at": 1}, {"page": "/b", "at": 1}]),
        )
        .await;
        api.patch(&format!("/v1/books/{slug}"), &json!({"title": "T"}))
            .await
            .expect(200);
        let chapters = json!([{"id": "one", "title": "One", "pages": ["/*"]}]);
        api.put(&format!("/v1/books/{slug}/chapters"), &chapters)
            .await
            .expect(200);
    }
    let answer = api.delete("/v1/books/gone").await;
    assert!(answer.text.is_empty());
    answer.expect(204);
    let id = gone["id"].as_str().unwrap();
    for name in ["gone", id] {
        let path = format!("/v1/books/{name}");
        assert_eq!(api.get(&path).await.problem(404), "not_found");
        assert_eq!(api.delete(&path).await.problem(404), "not_found");
        let clicks = api
            .post(&format!("{path}/clicks"), &json!({"page": "/a"}))
            .await;
        assert_eq!(clicks.problem(404), "not_found");
        let counts = api.get(&format!("{path}/counts?rollup=pages")).await;
        assert_eq!(counts.problem(404), "not_found");
    }
    let list = api.get("/v1/books").await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);

    let tables = "SELECT count(*) FROM (SELECT id AS book_id FROM books
                      UNION ALL SELECT book_id FROM book_slugs UNION ALL SELECT book_id FROM clicks
                      UNION ALL SELECT book_id FROM windows UNION ALL SELECT book_id FROM frames
                      UNION ALL SELECT book_id FROM book_log
                      UNION ALL SELECT book_id FROM chapters) AS rows WHERE book_id = ";
    let rows = |id: &str| format!("{tables}'{id}'");
    until("its rows are removed", || async {
        (database.number(&rows(id)).await == 0).then_some(())
    })
    .await;
    let kept = kept["id"].as_str().unwrap();
    assert_eq!(database.number(&rows(kept)).await, 12);
    assert_eq!(api.counts("kept", "pages").await.len(), 2);
}

#[tokio::test]
async fn the_slug_of_a_deleted_book_is_free_again() {
    let (_database, server) = start().await;
    let api = server.api();
    let first = api.plain_book("b", 1000, 0).await;
    let click = json!({"page": "/a", "id": "x", "at": 1});
    api.clicks("b", click.clone()).await;
    api.delete("/v1/books/b").await.expect(204);
    let second = api.plain_book("b", 1000, 0).await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(api.get("/v1/books/b").await.expect(200), second);
    // Nothing of the old one is left in it.
    assert_eq!(api.counts("b", "pages").await, Vec::<Value>::new());
    assert_eq!(api.clicks("b", click).await["on_time"], 1);
}

/// A deed that is refused, or that finds the book as it wants it, on a book of its own.
const IDLE_DEEDS: [(&str, &str); 4] = [
    ("reopened", "POST /v1/books/reopened/reopen"),
    ("misfit", "PATCH /v1/books/misfit"),
    ("counted", "PUT /v1/books/counted"),
    ("closed", "POST /v1/books/closed/close"),
];

async fn idle_deed(api: &Api, (slug, deed): (&str, &str)) {
    api.plain_book(slug, 1000, 0).await;
    api.clicks(slug, json!({"page": "/a", "at": 1})).await;
    let (method, path) = deed.split_once(' ').unwrap();
    let body = match slug {
        "misfit" => json!({"title": ""}),
        "counted" => json!({"rollups": [super::rollup(json!({"name": "other"}))]}),
        _ => json!({}),
    };
    if slug == "closed" {
        api.post(path, &body).await.expect(200);
    }
    let request = api.request(method.parse().unwrap(), path).json(&body);
    let status = request.send().await.unwrap().status().as_u16();
    assert!([200, 409, 422].contains(&status), "{deed}: {status}");
}

#[tokio::test]
async fn a_deed_that_changes_nothing_does_not_keep_its_book_from_being_deleted() {
    let (_database, server) = start().await;
    let api = server.api();
    let mut stuck = Vec::new();
    for deed in IDLE_DEEDS {
        idle_deed(&api, deed).await;
        let path = format!("/v1/books/{}", deed.0);
        let request = api.request(reqwest::Method::DELETE, &path);
        match request.timeout(PATIENCE / 6).send().await {
            Ok(answer) => assert_eq!(answer.status(), 204, "{path}"),
            Err(error) => stuck.push((deed, error.is_timeout())),
        }
    }
    assert_eq!(stuck, []);
}

#[tokio::test]
async fn a_deed_that_changes_nothing_does_not_keep_other_processes_from_counting() {
    let (database, server) = start().await;
    let second = Server::start(&database).await;
    let other = second.api();
    let api = server.api();
    let mut stuck = Vec::new();
    for deed in IDLE_DEEDS.into_iter().filter(|deed| deed.0 != "closed") {
        idle_deed(&api, deed).await;
        let path = format!("/v1/books/{}/clicks", deed.0);
        let request = other.request(reqwest::Method::POST, &path);
        let request = request.json(&json!({"page": "/a", "at": 2}));
        match request.timeout(PATIENCE / 6).send().await {
            Ok(answer) => assert_eq!(answer.status(), 200, "{path}"),
            Err(error) => stuck.push((deed, error.is_timeout())),
        }
    }
    assert_eq!(stuck, []);
}
