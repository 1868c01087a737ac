use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::load::{counted, totals, views};
use crate::harness::steps::{cure, execute, metric, poison};
use crate::harness::{Answer, Api, start};

const LETTERS: &str = "/v1/books/b/dead-letters";

fn at_1000(page: &str) -> Value {
    json!({"page": page, "at": 1000})
}

async fn letters(api: &Api) -> Vec<Value> {
    let list = api.get(LETTERS).await.expect(200);
    list["items"].as_array().unwrap().clone()
}

fn refused_as_dead_letter(answer: Answer) {
    assert_eq!(
        answer.json()["errors"][0]["code"],
        "dead_letter",
        "{}",
        answer.text
    );
    assert_eq!(answer.problem(422), "all_rejected");
}

#[tokio::test]
async fn three_clicks_that_can_never_be_committed_are_dead_letters_in_order() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    poison(&database).await;
    for n in 1..=3 {
        let click = json!({"id": format!("p{n}"), "page": format!("/poison/{n}"), "at": 1000,
                           "visitor": "v", "value": 1.5});
        refused_as_dead_letter(api.post("/v1/books/b/clicks", &click).await);
        // The others go on.
        assert_eq!(api.clicks("b", at_1000("/a")).await["on_time"], 1);
    }
    let kept = letters(&api).await;
    let pages: Vec<&Value> = kept.iter().map(|letter| &letter["click"]["page"]).collect();
    assert_eq!(pages, ["/poison/1", "/poison/2", "/poison/3"]);
    let first = &kept[0];
    assert_eq!(first["click"]["id"], "p1");
    assert_eq!(first["click"]["at"], "1970-01-01T00:00:01.000Z");
    assert_eq!(
        (&first["click"]["visitor"], &first["click"]["value"]),
        (&json!("v"), &json!(1.5))
    );
    assert_eq!(first["reason"], "the database refused it (SQLSTATE 23514)");
    // Sent again, it is the same letter.
    let again = json!({"id": "p1", "page": "/poison/1", "at": 1000});
    refused_as_dead_letter(api.post("/v1/books/b/clicks", &again).await);
    assert_eq!(letters(&api).await, kept);
    assert_eq!(metric(&api, "pagetide_dead_letters_total").await, 4);
    assert_eq!(metric(&api, "pagetide_retries_total").await, 0);
    let totals = totals(&api, "b").await;
    assert_eq!(
        (&totals["received"], &totals["rejected"]),
        (&json!(7), &json!(4))
    );
    assert_eq!(counted(&api, "b").await, 3);
}

#[tokio::test]
async fn the_good_clicks_of_a_request_are_counted_in_their_order() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    poison(&database).await;
    let pages: Vec<String> = (0..50)
        .map(|n| {
            if n % 17 == 5 {
                format!("/poison/{n}")
            } else {
                format!("/{n}")
            }
        })
        .collect();
    let mut clicks: Vec<Value> = pages.iter().map(|page| at_1000(page)).collect();
    // What admission refuses counts once, however often the rest is cut in two.
    clicks.push(json!({"page": ""}));
    let receipt = api.clicks("b", Value::from(clicks)).await;
    assert_eq!(
        (&receipt["received"], &receipt["on_time"]),
        (&json!(51), &json!(47))
    );
    assert_eq!(receipt["rejected"], 4);
    let exceptions = receipt["exceptions"].as_array().unwrap();
    let told: Vec<(&Value, &Value)> = exceptions
        .iter()
        .map(|e| (&e["index"], &e["reason"]))
        .collect();
    let dead = json!("dead_letter");
    let indexes = [json!(5), json!(22), json!(39), json!(50)];
    let empty = json!("page_empty");
    assert_eq!(
        told,
        [
            (&indexes[0], &dead),
            (&indexes[1], &dead),
            (&indexes[2], &dead),
            (&indexes[3], &empty)
        ]
    );
    let expected = pages.iter().filter(|page| !page.starts_with("/poison"));
    let expected: BTreeMap<String, i64> = expected.map(|page| (page.clone(), 1)).collect();
    assert_eq!(views(&api, "b").await, expected);
    let in_order =
        "SELECT count(*) FROM (SELECT page, lag(seq) OVER (ORDER BY substr(page, 2)::int)
                                                 >= seq AS back FROM clicks) c WHERE back";
    assert_eq!(database.number(in_order).await, 0);
    let totals = totals(&api, "b").await;
    assert_eq!(
        (&totals["received"], &totals["rejected"]),
        (&json!(51), &json!(4))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_books_poison_does_not_harm_the_others_in_its_transaction() {
    let (database, server) = start().await;
    let api = server.api();
    for n in 0..20 {
        api.plain_book(&format!("b{n}"), 60_000, 60_000).await;
    }
    poison(&database).await;
    let posts = (0..200).map(|n| {
        let (api, page) = (api.clone(), if n % 50 == 7 { "/poison" } else { "/a" });
        async move {
            let path = format!("/v1/books/b{}/clicks", n % 20);
            (page, api.post(&path, &at_1000(page)).await)
        }
    });
    for (page, answer) in join_all(posts).await {
        let expected = if page == "/a" { 200 } else { 422 };
        assert_eq!(answer.status, expected, "{}", answer.text);
    }
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 196);
    assert_eq!(
        database.number("SELECT count(*) FROM dead_letters").await,
        4
    );
}

#[tokio::test]
async fn a_letter_is_sent_again_or_thrown_away() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    poison(&database).await;
    for n in 1..=2 {
        refused_as_dead_letter(
            api.post("/v1/books/b/clicks", &at_1000(&format!("/poison/{n}")))
                .await,
        );
    }
    let kept = letters(&api).await;
    let address = |n: usize| format!("{LETTERS}/{}", kept[n]["id"].as_str().unwrap());
    // It fails as before, and stays.
    refused_as_dead_letter(api.post(&format!("{}/retry", address(0)), &json!({})).await);
    assert_eq!(letters(&api).await, kept);
    cure(&database).await;
    let retried = api.post(&format!("{}/retry", address(0)), &json!({})).await;
    assert_eq!(retried.expect(200)["on_time"], 1);
    assert_eq!(letters(&api).await, kept[1..]);
    assert_eq!(
        views(&api, "b").await,
        BTreeMap::from([("/poison/1".to_owned(), 1)])
    );
    let gone = api.post(&format!("{}/retry", address(0)), &json!({})).await;
    assert_eq!(gone.problem(404), "not_found");
    api.delete(&address(1)).await.expect(204);
    assert_eq!(api.delete(&address(1)).await.problem(404), "not_found");
    assert_eq!(letters(&api).await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_letter_whose_click_was_counted_after_all_goes_when_it_is_retried() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    poison(&database).await;
    let click = json!({"id": "x", "page": "/poison", "at": 1000});
    refused_as_dead_letter(api.post("/v1/books/b/clicks", &click).await);
    cure(&database).await;
    assert_eq!(api.clicks("b", click).await["on_time"], 1);
    let id = letters(&api).await[0]["id"].as_str().unwrap().to_owned();
    let retried = api.post(&format!("{LETTERS}/{id}/retry"), &json!({})).await;
    assert_eq!(retried.expect(200)["duplicates"], 1);
    assert_eq!(letters(&api).await, [] as [Value; 0]);
    assert_eq!(counted(&api, "b").await, 1);
}

#[tokio::test]
async fn letters_come_in_pages_and_only_for_those_who_manage_the_book() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let sql = "INSERT INTO dead_letters
               SELECT b.id, i.id, i.id, 0, '', jsonb_build_object('id', jsonb_build_object('uuid', i.id),
                      'at', 0, 'received_at', 0, 'page', '/a')
               FROM books b, LATERAL (SELECT gen_random_uuid() AS id FROM generate_series(1, 25)) i";
    execute(&database, sql).await;
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let page = api
            .get(&format!("{LETTERS}?limit=10{cursor}"))
            .await
            .expect(200);
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|l| l["id"].to_string()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.is_sorted());
    let new = json!({"books": ["b"], "scopes": ["write", "read"]});
    let token = api.post("/v1/tokens", &new).await.expect(201);
    let reader = api.with_token(token["token"].as_str().unwrap());
    assert_eq!(reader.get(LETTERS).await.problem(403), "forbidden");
    api.delete("/v1/books/b").await.expect(204);
    crate::harness::until("the letters go with their book", async || {
        (database.number("SELECT count(*) FROM dead_letters").await == 0).then_some(())
    })
    .await;
}
