//! What answers say of origins tells nothing of books that the caller may not know of.

use reqwest::Method;
use serde_json::json;

use super::{
    LISTED, OTHER, OURS, Readers, from, plain, preflight, secret, send_with_key, start_with,
};
use crate::harness::api::Answer;
use crate::raw::substance;

/// Books that are there and list the origin, list others, list none; and one that is not there.
const NAMES: [&str; 4] = ["listed", "second", "open", "missing"];

#[tokio::test]
async fn a_preflight_says_the_same_of_every_book_and_of_none() {
    let (_database, _server, api) = start_with(&[]).await;
    api.book("second", json!({"origins": ["https://second.example"]}))
        .await;
    for (method, below, origin, readers) in [
        ("PATCH", "", OURS, Readers::origin(OURS)),
        ("PATCH", "", LISTED, Readers::origin(LISTED)),
        ("PATCH", "", OTHER, Readers::Nobody),
        ("PATCH", "", "null", Readers::Nobody),
        ("GET", "/events", LISTED, Readers::origin(LISTED)),
        ("POST", "/clicks", OTHER, Readers::Nobody),
        ("POST", "/clicks?key=k", OTHER, Readers::Anyone),
        ("POST", "/clicks?key=k", "null", Readers::Anyone),
        ("POST", "/clicks?key=k", LISTED, Readers::origin(LISTED)),
        ("PUT", "/clicks?key=k", OTHER, Readers::Nobody),
    ] {
        let mut answers = Vec::new();
        for name in NAMES {
            let path = format!("/v1/books/{name}{below}");
            let answer = preflight(&api, origin, method, &path).await;
            assert_eq!(answer.status, 204);
            assert_eq!(Readers::of(&answer), readers, "{method} {path} {origin}");
            answers.push(substance(&answer));
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{answers:?}");
    }
}

#[tokio::test]
async fn a_refusal_says_the_same_of_every_book_and_of_none() {
    let (_database, _server, api) = start_with(&[]).await;
    api.book("second", json!({"origins": ["https://second.example"]}))
        .await;
    api.book("mine", json!({})).await;
    let mine = secret(&api, "mine", "write").await;
    for origin in [LISTED, "https://second.example", OTHER, OURS] {
        let mut answers = Vec::new();
        for name in NAMES {
            let path = format!("/v1/books/{name}");
            // By nobody, and by somebody who may not know of the book.
            let nobody = Answer::of(from(plain(&api, Method::GET, &path), origin)).await;
            assert_eq!(nobody.status, 401);
            let stranger = api.with_token(&mine).request(Method::GET, &path);
            let stranger = Answer::of(from(stranger, origin)).await;
            assert_eq!(stranger.status, 404);
            let unknown = send_with_key(&api, name, "pt_unknown", origin).await;
            assert_eq!(unknown.status, 401);
            let strange = send_with_key(&api, name, &mine, origin).await;
            assert_eq!(strange.status, 404);
            // A wrong key is told to the page that has it, wherever it comes from.
            assert_ne!(Readers::of(&unknown), Readers::Nobody);
            // What is wrong with the body is found before the book.
            let big = api
                .with_token(&mine)
                .request(Method::POST, &format!("{path}/clicks"));
            let big = big.header("content-type", "application/json");
            let big = Answer::of(from(big.body("x".repeat(2_000_000)), origin)).await;
            assert_eq!(big.status, 413);
            answers.push([&nobody, &stranger, &unknown, &strange, &big].map(substance));
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{origin}: {answers:?}");
    }
}
