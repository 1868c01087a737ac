//! Imports that are not begun, or not ended.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Feed, File, beginning, close, expected, hours_book, import, import_log, log, logged,
    newest_run, post_import, runs,
};
use crate::harness::api::Answer;
use crate::harness::steps::token;
use crate::harness::{self, until};
use crate::independent::PAGE_VIEWS;
use crate::real_log::shown;

const QUERY: &str = "format=combined&source=access.log";

#[tokio::test]
async fn while_one_run_is_live_another_is_refused() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    hours_book(&api, "other").await;
    let feed = Feed::start(&api, "b", QUERY);
    feed.send(beginning(5000)).await;
    until("some of it is counted", async || {
        (logged(&database).await > 0).then_some(())
    })
    .await;
    let refused = post_import(&api, "b", "format=combined&source=x", beginning(10)).await;
    assert_eq!(refused.problem(409), "run_live");
    let recount = json!({"kind": "recount"});
    let refused = api.post("/v1/books/b/runs", &recount).await;
    assert_eq!(refused.problem(409), "run_live");
    let ended = import_log(&database, "b", &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.said);
    assert!(ended.said.contains("run"), "{}", ended.said);
    assert_eq!(runs(&api, "b").await.len(), 1);
    // Another book's is no hindrance.
    let query = "format=combined&source=x";
    let run = post_import(&api, "other", query, beginning(10)).await;
    assert_eq!(run.expect(200)["state"], "done");

    let rest = log()[beginning(5000).len()..].to_vec();
    feed.send(rest).await;
    let run = feed.end().await.unwrap().expect(200);
    assert_eq!(run["state"], "done");
    let again = post_import(&api, "b", QUERY, beginning(5000)).await;
    assert_eq!(again.expect(200)["counted"], 0);
}

#[tokio::test]
async fn a_cancelled_import_stops_and_keeps_what_it_has_counted() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let feed = Feed::start(&api, "b", QUERY);
    feed.send(beginning(5000)).await;
    until("some of it is counted", async || {
        (logged(&database).await > 0).then_some(())
    })
    .await;
    let id = newest_run(&api, "b").await["id"].clone();
    let path = format!("/v1/books/b/runs/{}/cancel", id.as_str().unwrap());
    let cancelled = api.post(&path, &Value::Null).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    // The rest of it, if it is still listened to, counts no more.
    let _ = feed
        .pieces
        .try_send(log()[beginning(5000).len()..].to_vec().into());
    let answer = feed.end().await.unwrap().expect(200);
    assert_eq!(answer["state"], "cancelled", "{answer}");
    let run = newest_run(&api, "b").await;
    assert_eq!(run["state"], "cancelled", "{run}");
    assert_eq!(run["counted"], logged(&database).await, "{run}");
    let file = File::new("access.log", beginning(5000));
    let most = expected(&file.path(), PAGE_VIEWS);
    assert!(run["counted"].as_i64().unwrap() <= most.views(), "{run}");
    let sum: i64 = shown(&api, "b").await.values().sum();
    assert_eq!(run["counted"], sum, "{run}");
    // What has ended cannot be cancelled into something else.
    let again = api.post(&path, &Value::Null).await.expect(200);
    assert_eq!(again, run);
    let run = post_import(&api, "b", QUERY, log()).await.expect(200);
    assert_eq!(run["state"], "done");
    let all = super::expected_of_log(PAGE_VIEWS);
    assert_eq!(shown(&api, "b").await, all.counts);
}

#[tokio::test]
async fn a_closed_book_takes_no_import() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    close(&api, "b").await;
    let refused = post_import(&api, "b", QUERY, log()).await;
    assert_eq!(refused.problem(409), "book_closed");
    let ended = import_log(&database, "b", &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.said);
    assert!(ended.said.contains("closed"), "{}", ended.said);
    assert_eq!(runs(&api, "b").await, Vec::<Value>::new());
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["at_rest"], true, "{book}");
}

#[tokio::test]
async fn what_is_asked_for_must_make_sense() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let cases = [
        "source=x",
        "format=w3c&source=x",
        "format=combined&source=x&assets=perhaps",
        "format=combined&source=x&no_such=1",
        "format=combined&source=a%00b",
    ];
    for query in cases {
        let refused = post_import(&api, "b", query, beginning(3)).await;
        let status = refused.status.as_u16();
        assert!([400, 422].contains(&status), "{query}: {}", refused.text);
        refused.problem(status);
    }
    let too_long = format!("format=combined&source={}", "x".repeat(3000));
    let refused = post_import(&api, "b", &too_long, beginning(3)).await;
    let status = refused.status.as_u16();
    assert!([400, 422].contains(&status), "{}", refused.text);
    assert_eq!(runs(&api, "b").await, Vec::<Value>::new());
    assert_eq!(
        post_import(&api, "nobody", QUERY, beginning(3))
            .await
            .problem(404),
        "not_found"
    );
    for path in [
        "/v1/books/b/runs/01980000-0000-7000-8000-000000000000",
        "/v1/books/b/runs/x",
    ] {
        assert_eq!(api.get(path).await.problem(404), "not_found");
    }
}

#[tokio::test]
async fn whoever_may_not_manage_a_book_imports_nothing() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    hours_book(&api, "other").await;
    for (book, scope, status) in [
        ("b", "write", 403),
        ("b", "read", 403),
        ("other", "manage", 404),
    ] {
        let new = token(&api, book, scope).await;
        let caller = api.with_token(new["token"].as_str().unwrap());
        let refused = post_import(&caller, "b", QUERY, beginning(3)).await;
        refused.problem(status);
    }
    let new = token(&api, "b", "manage").await;
    let caller = api.with_token(new["token"].as_str().unwrap());
    let run = post_import(&caller, "b", QUERY, beginning(3)).await;
    assert_eq!(run.expect(200)["processed"], 3);
    // And no key in an address helps.
    let key = new["token"].as_str().unwrap();
    let path = format!("{}/v1/books/b/imports?{QUERY}&key={key}", api.url);
    let request = api.http.request(Method::POST, path).body(beginning(3));
    Answer::of(request).await.problem(401);
}

#[tokio::test]
async fn any_content_type_is_taken_and_an_empty_log_is_a_log() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let path = format!("/v1/books/b/imports?{QUERY}");
    for kind in [
        "text/plain",
        "application/json",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
    ] {
        let request = api.request(Method::POST, &path);
        let request = request.header("content-type", kind).body(beginning(100));
        let run = Answer::of(request).await.expect(200);
        assert_eq!(run["processed"], 100, "{kind}: {run}");
    }
    let run = post_import(&api, "b", QUERY, Vec::new()).await.expect(200);
    assert_eq!(
        (&run["state"], &run["processed"]),
        (&"done".into(), &0.into())
    );
    let empty = File::new("empty.log", "");
    import(&database, "b", &["--format", "combined", &empty.arg()])
        .await
        .well();
    assert_eq!(newest_run(&api, "b").await["processed"], 0);
}
