//! The rate of each token.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::harness::steps::{frame_by_hand, token};
use crate::harness::{Answer, Api, Database, Server, until};

async fn start(rate: &str) -> (Database, Server, Api) {
    let database = Database::create().await;
    let server = Server::start_with(&database, &[("PAGETIDE_RATE_LIMIT", rate)]).await;
    let api = server.api();
    api.book("b", json!({})).await;
    (database, server, api)
}

async fn statuses(api: &Api, requests: usize) -> Vec<u16> {
    let get = || async { api.get("/v1/books/b").await.status.as_u16() };
    join_all((0..requests).map(|_| get())).await
}

#[tokio::test]
async fn a_token_above_its_rate_is_told_when_to_come_back_and_the_others_go_on() {
    let (_database, _server, api) = start("20").await;
    let mut others = Vec::new();
    for _ in 0..2 {
        let new = token(&api, "b", "read").await;
        others.push(api.with_token(new["token"].as_str().unwrap()));
    }
    let began = std::time::Instant::now();
    let taken = statuses(&others[0], 200).await;
    let (ok, refused): (Vec<u16>, Vec<u16>) = taken.iter().partition(|status| **status == 200);
    let most = 21 + 20 * began.elapsed().as_millis() / 1000;
    assert!(ok.len() >= 20 && ok.len() as u128 <= most, "{}", ok.len());
    assert!(!refused.is_empty() && refused.iter().all(|status| *status == 429));

    let answer = until("one too many", async || {
        let answer = others[0].get("/v1/books/b").await;
        (answer.status == 429).then_some(answer)
    })
    .await;
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.problem(429), "rate_limited");
    assert_eq!(statuses(&others[1], 5).await, [200; 5]);
    // It holds for whatever is asked with the token, and it passes.
    until("its time has come", async || {
        let answer = others[0].get("/v1/books/b/snapshot").await;
        (answer.status == 200).then_some(())
    })
    .await;
    // The admin token of the configuration has a rate, too.
    let taken = statuses(&api, 200).await;
    assert!(taken.contains(&429) && taken.contains(&200));
}

#[tokio::test]
async fn clicks_with_a_key_are_requests_of_its_token_and_one_may_hold_many() {
    let (_database, _server, api) = start("2").await;
    let new = token(&api, "b", "write").await;
    let key = new["token"].as_str().unwrap();
    let clicks = json!(vec![json!({"page": "/a"}); 1000]).to_string();
    let send = || {
        let url = format!("{}/v1/books/b/clicks?key={key}", api.url);
        let request = api.http.post(url).header("content-type", "text/plain");
        Answer::of(
            request
                .header("origin", "https://any.example")
                .body(clicks.clone()),
        )
    };
    let answers = join_all((0..10).map(|_| send())).await;
    let taken = answers.iter().filter(|answer| answer.status == 200);
    assert!(taken.count() >= 2);
    let refused = answers
        .into_iter()
        .find(|answer| answer.status == 429)
        .unwrap();
    assert_eq!(
        refused.headers["access-control-allow-origin"], "*",
        "a page can read it"
    );
    assert_eq!(refused.problem(429), "rate_limited");
}

#[tokio::test]
async fn a_stream_is_one_request_however_much_it_says() {
    let (database, _server, api) = start("3").await;
    let new = token(&api, "b", "read").await;
    let reader = api.with_token(new["token"].as_str().unwrap());
    let mut events = reader.follow("b", "", None).await;
    events.expect("hello").await;
    for _ in 0..30 {
        frame_by_hand(&database, "note", "").await;
    }
    assert_eq!(events.through(30).await.len(), 30);
    // One that comes back too often would stop for good at a 429.
    let bye = until("one too many", async || {
        let request = reader.request(Method::GET, "/v1/books/b/events");
        let answer = request.header("last-event-id", "30").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut events = crate::harness::sse::Events::of(answer);
        let first = events.next().await.unwrap();
        (first.name == "bye").then_some(first)
    })
    .await;
    assert_eq!(bye.data, json!({"reason": "overloaded"}));
    assert!((1000..=3000).contains(&bye.retry_ms.unwrap()));
}
