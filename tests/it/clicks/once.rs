//! A click with an id counts once, however often, by whomever and however concurrently it is sent.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{exceptions, post, receipt, total};
use crate::harness::api::Answer;
use crate::harness::{Api, start};

fn batch(ids: impl IntoIterator<Item = usize>) -> Value {
    let click = |n| json!({"page": format!("/{n}"), "id": format!("click-{n}"), "at": 1});
    ids.into_iter().map(click).collect()
}

async fn with_key(api: &Api, key: &[u8], clicks: &Value) -> Answer {
    let request = api
        .request(Method::POST, "/v1/books/b/clicks")
        .header("idempotency-key", key)
        .json(clicks);
    Answer::of(request).await
}

#[tokio::test]
async fn a_batch_sent_again_in_whole_or_in_part_counts_nothing_more() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let first = post(&api, "b", batch(0..5)).await;
    assert_eq!(first["on_time"], 5);
    let again = post(&api, "b", batch(0..5)).await;
    assert_eq!(
        (&again["duplicates"], &again["on_time"]),
        (&json!(5), &json!(0))
    );
    assert_eq!(
        again["position"], first["position"],
        "nothing new, no frame"
    );
    let part = post(&api, "b", batch(3..8)).await;
    assert_eq!(
        (&part["duplicates"], &part["on_time"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(exceptions(&part), ["0 duplicate -", "1 duplicate -"]);
    assert_eq!(part["exceptions"][1]["id"], "click-4");
    let counts = api.counts("b", "pages").await;
    assert_eq!(counts.len(), 8);
    assert!(counts.iter().all(|count| count["value"] == 1));
    let totals = &api.get("/v1/books/b").await.expect(200)["totals"];
    assert_eq!(
        (&totals["received"], &totals["duplicates"]),
        (&json!(15), &json!(7))
    );
}

#[tokio::test]
async fn an_id_that_comes_twice_in_one_batch_counts_once() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let taken = post(&api, "b", batch([1, 2, 1, 1])).await;
    assert_eq!(taken["on_time"], 2);
    assert_eq!(exceptions(&taken), ["2 duplicate -", "3 duplicate -"]);
    assert_eq!(total(&api, "b", "pages").await, 2);
}

#[tokio::test]
async fn a_known_id_on_another_page_is_a_duplicate_that_differs() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = json!([{"page": "/a", "id": "x", "at": 1}, {"page": "/b", "id": "x", "at": 1}]);
    let taken = post(&api, "b", clicks).await;
    assert_eq!(exceptions(&taken), ["1 duplicate differs"]);
    let clicks = json!([{"page": "/c", "id": "x", "at": 1}, {"page": "/a/", "id": "x", "at": 1}]);
    let taken = post(&api, "b", clicks).await;
    assert_eq!(exceptions(&taken), ["0 duplicate differs", "1 duplicate -"]);
    let counts = api.counts("b", "pages").await;
    assert_eq!(counts.len(), 1);
    assert_eq!(counts[0]["group"], "/a");
}

#[tokio::test]
async fn a_uuid_is_the_same_id_in_capital_and_small_letters() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let small = "018f4f0e-abcd-7000-8000-00000000beef";
    let clicks = json!([
        {"page": "/a", "id": small, "at": 1},
        {"page": "/a", "id": small.to_uppercase(), "at": 1},
    ]);
    let taken = post(&api, "b", clicks).await;
    assert_eq!(exceptions(&taken), ["1 duplicate -"]);
    // Of other texts the case matters.
    let clicks = json!([{"page": "/a", "id": "x", "at": 1}, {"page": "/a", "id": "X", "at": 1}]);
    assert_eq!(post(&api, "b", clicks).await["on_time"], 2);
}

#[tokio::test]
async fn the_same_id_in_two_books_is_two_clicks() {
    let (_database, server) = start().await;
    let api = server.api();
    let uuid = "018f4f0e-abcd-7000-8000-00000000beef";
    for slug in ["b", "c"] {
        api.plain_book(slug, 1000, 0).await;
        let clicks =
            json!([{"page": "/a", "id": "x", "at": 1}, {"page": "/a", "id": uuid, "at": 1}]);
        assert_eq!(post(&api, slug, clicks).await["on_time"], 2, "{slug}");
    }
}

#[tokio::test]
async fn a_request_with_an_idempotency_key_counts_once() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = json!([{"page": "/a", "at": 1}, {"page": "/b", "id": "mine", "at": 1},
                        {"page": "/a", "at": 1}]);
    assert_eq!(receipt(with_key(&api, b"K-1", &clicks).await)["on_time"], 3);
    let again = receipt(with_key(&api, b"K-1", &clicks).await);
    assert_eq!(again["duplicates"], 3);
    assert_eq!(again["exceptions"][1]["id"], "mine");
    let other = receipt(with_key(&api, b"K-2", &clicks).await);
    assert_eq!(
        (&other["on_time"], &other["duplicates"]),
        (&json!(2), &json!(1))
    );
    // Without a key, clicks without an id are always new.
    assert_eq!(
        post(&api, "b", json!([{"page": "/a", "at": 1}])).await["on_time"],
        1
    );
}

#[tokio::test]
async fn a_bad_idempotency_key_is_refused() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = json!([{"page": "/a", "at": 1}]);
    let long = "k".repeat(201);
    for key in [b"".as_slice(), long.as_bytes(), b"caf\xc3\xa9"] {
        let answer = with_key(&api, key, &clicks).await;
        assert_eq!(answer.problem(400), "bad_header", "{key:?}");
    }
    receipt(with_key(&api, &long.as_bytes()[1..], &clicks).await);
    assert_eq!(total(&api, "b", "pages").await, 1);
}

#[tokio::test]
async fn ids_that_the_server_made_are_told_where_a_click_is_listed() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = json!([{"page": "/a", "at": 5000}, {"page": "/a", "at": 1}]);
    let taken = post(&api, "b", clicks).await;
    assert_eq!(exceptions(&taken), ["1 dropped too_late"]);
    let id = taken["exceptions"][0]["id"].as_str().unwrap();
    let again = post(&api, "b", json!({"page": "/a", "at": 1, "id": id})).await;
    assert_eq!(exceptions(&again), ["0 duplicate -"]);
}

#[tokio::test]
async fn duplicates_do_not_move_the_watermark() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let first = post(&api, "b", json!({"page": "/a", "id": "x", "at": 1000})).await;
    let later = json!([{"page": "/a", "id": "x", "at": 900_000}]);
    let again = post(&api, "b", later).await;
    assert_eq!(again["duplicates"], 1);
    assert_eq!(again["watermark"], first["watermark"]);
    assert_eq!(again["watermark"], "1970-01-01T00:00:01.000Z");
    let twice =
        json!([{"page": "/a", "id": "y", "at": 1500}, {"page": "/a", "id": "y", "at": 900_000}]);
    let twice = post(&api, "b", twice).await;
    assert_eq!(twice["watermark"], "1970-01-01T00:00:01.500Z");
}

#[tokio::test]
async fn seven_concurrent_posts_of_the_same_clicks_count_once() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    for round in 0..5 {
        let ids = round * 20..round * 20 + 20;
        // A client each, so that they come over connections of their own.
        let clients: Vec<Api> = (0..7).map(|_| server.api()).collect();
        let posts = clients.iter().map(|api| post(api, "b", batch(ids.clone())));
        let taken = join_all(posts).await;
        let sum = |name: &str| -> i64 { taken.iter().map(|t| t[name].as_i64().unwrap()).sum() };
        assert_eq!((sum("on_time"), sum("duplicates")), (20, 120));
    }
    assert_eq!(total(&api, "b", "pages").await, 100);
    let totals = &api.get("/v1/books/b").await.expect(200)["totals"];
    assert_eq!(
        (&totals["received"], &totals["on_time"]),
        (&json!(700), &json!(100))
    );
}

#[tokio::test]
async fn exceptions_name_a_click_as_its_sender_does() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let ids = [
        "d41d8cd98f00b204e9800998ecf8427e",
        "D41D8CD9-8F00-B204-E980-0998ECF8427E",
        "order 7/α",
    ];
    let clicks: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "page": "/a", "at": 1}))
        .collect();
    let first = api.clicks("b", json!(clicks)).await;
    assert_eq!(first["on_time"], 3, "a checksum is no UUID: {first}");
    let again = api.clicks("b", json!(clicks)).await;
    let named = again["exceptions"].as_array().unwrap().iter();
    let named: Vec<&str> = named.map(|e| e["id"].as_str().unwrap()).collect();
    assert_eq!(named, ids);
}
