//! A book that is not public is one that does not exist.

use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use super::{ask, set_public};
use crate::harness::{Answer, start};

#[tokio::test]
async fn a_book_that_is_not_public_answers_as_one_that_does_not_exist() {
    let (_database, server) = start().await;
    let api = server.api();
    let hidden = api.book("hidden", json!({})).await;
    api.clicks("hidden", json!({"page": "/a"})).await;
    let (id, missing) = (hidden["id"].as_str().unwrap(), Uuid::now_v7().to_string());
    let queries = [
        "",
        "?page=/a",
        "?page=%00",
        "?page=",
        "?label=x",
        "?label=%00",
        "?x=y",
    ];
    // By whom it is asked, and from where, changes nothing.
    let heads = [
        ("x-nothing", "here".to_owned()),
        ("origin", "https://a.example".to_owned()),
        ("authorization", format!("Bearer {}", api.token)),
        ("authorization", "Bearer wrong".to_owned()),
    ];
    let address = |name: &str, badge: bool, query: &str| {
        if badge {
            format!("/badge/{name}.svg{query}")
        } else {
            format!("/v1/books/{name}/public{query}")
        }
    };
    for (name, value) in &heads {
        for badge in [false, true] {
            for query in queries {
                let get = async |book: &str| {
                    let url = format!("{}{}", api.url, address(book, badge, query));
                    let request = api.http.request(Method::GET, url).header(*name, value);
                    let answer = Answer::of(request).await;
                    let mut headers: Vec<String> = (answer.headers.iter())
                        .filter(|(name, _)| !["x-request-id", "date"].contains(&name.as_str()))
                        .map(|header| format!("{header:?}"))
                        .collect();
                    headers.sort();
                    (answer.status.as_u16(), headers, answer.text)
                };
                let expected = get("missing").await;
                assert!([400, 404].contains(&expected.0), "{query}: {expected:?}");
                for book in ["hidden", id, &missing] {
                    assert_eq!(get(book).await, expected, "{book} {query}");
                }
            }
        }
    }
    let no_picture = ask(&api, "/badge/hidden.png").await;
    assert_eq!(no_picture.problem(404), "not_found");

    // Turned on it is there at once, also by its id; turned off, or deleted, it is gone at once.
    for turn in 0..2 {
        set_public(&api, "hidden", true).await;
        for name in ["hidden", id] {
            for badge in [false, true] {
                assert_eq!(ask(&api, &address(name, badge, "")).await.status, 200);
            }
        }
        if turn == 0 {
            set_public(&api, "hidden", false).await;
        } else {
            api.delete("/v1/books/hidden").await.expect(204);
        }
        for name in ["hidden", id] {
            for badge in [false, true] {
                let answer = ask(&api, &address(name, badge, "")).await;
                assert_eq!(answer.problem(404), "not_found");
            }
        }
    }
}

#[tokio::test]
async fn any_origin_and_any_cache_may_have_what_is_public() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book(
        "b",
        json!({"settings": {"public_counter": true}, "origins": ["https://listed.example"]}),
    )
    .await;
    for path in ["/v1/books/b/public", "/badge/b.svg"] {
        for origin in [
            "",
            "https://other.example",
            "https://listed.example",
            "null",
        ] {
            let mut request = api.http.request(Method::GET, format!("{}{path}", api.url));
            if !origin.is_empty() {
                request = request.header("origin", origin);
            }
            let answer = Answer::of(request).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
            assert_eq!(
                header("access-control-allow-origin"),
                "*",
                "{path} {origin}"
            );
            assert!(
                !answer
                    .headers
                    .contains_key("access-control-allow-credentials")
            );
            assert_eq!(header("cache-control"), "public, max-age=60");
            assert_eq!(header("cross-origin-resource-policy"), "cross-origin");
        }
        // What may not be asked.
        for (query, named) in [
            ("?page=%00", "page"),
            ("?page=", "page"),
            ("?views=1", "views"),
        ] {
            let answer = ask(&api, &format!("{path}{query}")).await;
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(named), "{detail}");
            assert_eq!(answer.problem(400), "bad_query");
        }
    }
}
