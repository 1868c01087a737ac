use reqwest::header::{CONTENT_TYPE, USER_AGENT};
use serde_json::{Value, json};

use crate::harness::load::{counted, totals};
use crate::harness::steps::metric;
use crate::harness::{Answer, Api, start};

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const GOOGLEBOT: &str = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

async fn key(api: &Api, scopes: Value) -> String {
    let new = json!({"books": ["b"], "scopes": scopes});
    let token = api.post("/v1/tokens", &new).await.expect(201);
    token["token"].as_str().unwrap().to_owned()
}

/// As a page sends it: no header but what a browser sets.
async fn beacon(api: &Api, key: &str, agent: &str, click: &Value) -> Answer {
    let request = api
        .http
        .post(format!("{}/v1/books/b/clicks?key={key}", api.url));
    let request = request
        .header(USER_AGENT, agent)
        .header(CONTENT_TYPE, "text/plain;charset=UTF-8");
    Answer::of(request.body(click.to_string())).await
}

#[tokio::test]
async fn a_page_sends_clicks_with_its_key_alone() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let write = key(&api, json!(["write"])).await;
    let receipt = beacon(&api, &write, FIREFOX, &json!({"page": "/a", "age_ms": 10})).await;
    assert_eq!(receipt.expect(200)["on_time"], 1);
    // It stands in a public page: it may not move the book's time.
    let moved = beacon(&api, &write, FIREFOX, &json!({"page": "/a", "at": 1000})).await;
    assert_eq!(moved.json()["errors"][0]["code"], "at_not_allowed");
    assert_eq!(moved.problem(422), "all_rejected");
    // Nor give away more than to write.
    for scopes in [
        json!(["manage"]),
        json!(["read"]),
        json!(["write", "manage"]),
    ] {
        let other = key(&api, scopes).await;
        let answer = beacon(&api, &other, FIREFOX, &json!({"page": "/a"})).await;
        assert_eq!(answer.problem(401), "unauthorized");
    }
    for wrong in ["", "pt_x"] {
        let answer = beacon(&api, wrong, FIREFOX, &json!({"page": "/a"})).await;
        assert_eq!(answer.problem(401), "unauthorized");
    }
    // For clicks alone.
    for path in ["", "/counts", "/snapshot", "/events"] {
        let request = api
            .http
            .get(format!("{}/v1/books/b{path}?key={write}", api.url));
        let status = Answer::of(request).await.status.as_u16();
        assert!([400, 401].contains(&status), "{path}: {status}");
    }
    assert_eq!(counted(&api, "b").await, 1);
}

#[tokio::test]
async fn bots_that_use_the_key_are_filtered_and_told_so() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let write = key(&api, json!(["write"])).await;
    let two = json!([{"id": "x", "page": "/a"}, {"page": "/b"}, {"page": ""}]);
    let receipt = beacon(&api, &write, GOOGLEBOT, &two).await.expect(200);
    assert_eq!(
        (&receipt["received"], &receipt["filtered"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(
        (&receipt["on_time"], &receipt["rejected"]),
        (&json!(0), &json!(1))
    );
    let first = json!({"index": 0, "id": "x", "status": "filtered", "reason": "bot"});
    assert_eq!(receipt["exceptions"][0], first);
    assert_eq!(metric(&api, "pagetide_clicks_filtered_total").await, 2);
    let text = api.get("/metrics").await.text;
    assert!(
        text.contains("pagetide_clicks_filtered_total{reason=\"bot\"} 2"),
        "{text}"
    );
    let of_book = totals(&api, "b").await;
    assert_eq!(
        (&of_book["received"], &of_book["filtered"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 0);
    // A back end that sends a token means it.
    let request = api
        .http
        .post(format!("{}/v1/books/b/clicks", api.url))
        .bearer_auth(&write);
    let request = request
        .header(USER_AGENT, GOOGLEBOT)
        .json(&json!({"page": "/a"}));
    assert_eq!(Answer::of(request).await.expect(200)["on_time"], 1);
    // And a book may want them.
    let off = json!({"settings": {"filter_bots": false}});
    api.patch("/v1/books/b", &off).await.expect(200);
    let receipt = beacon(&api, &write, GOOGLEBOT, &json!({"page": "/a"})).await;
    assert_eq!(receipt.expect(200)["on_time"], 1);
}
