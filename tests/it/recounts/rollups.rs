//! Other rollups for a book that has clicks: the old ones count until the new ones are there.

use serde_json::{Value, json};

use super::{DAY_MS, days_book, ended, fill, in_log, shown, swept};
use crate::harness::load::hold;
use crate::harness::{self, Answer, Api};
use crate::windows::{counted, session, sliding, tumbling};

/// The newest run of a book.
async fn newest_run(api: &Api, book: &str) -> Option<Value> {
    let list = api.get(&format!("/v1/books/{book}/runs")).await.expect(200);
    let runs = list["items"].as_array().unwrap().iter();
    runs.max_by_key(|run| run["id"].as_str().unwrap().to_owned())
        .cloned()
}

/// Others than those of the book of days.
fn others() -> Value {
    json!([
        {"name": "visits", "group_by": "page", "aggregate": "count", "window": session(60_000)},
        {"name": "pages", "group_by": "book", "aggregate": "top", "window": tumbling(DAY_MS / 2)},
        {"name": "readers", "group_by": "book", "aggregate": "distinct", "of": "page",
         "window": sliding(DAY_MS, DAY_MS / 2)},
    ])
}

fn clicks() -> Value {
    let clicks = (0..2000_i64).map(|n| {
        json!({"id": n.to_string(), "page": format!("/p{}", n % 7), "visitor": format!("v{}", n % 5),
               "at": DAY_MS + n * n % 977 * 90_000})
    });
    clicks.collect()
}

#[tokio::test]
async fn new_rollups_count_all_clicks_once_they_are_swapped_in() {
    let (database, server) = harness::start().await;
    let api = server.api();
    days_book(&api, "b").await;
    fill(&database, "b", 30_000).await;
    api.clicks("b", clicks()).await;
    let old = api.get("/v1/books/b").await.expect(200)["rollups"].clone();
    let before = shown(&api, "b").await;

    let changed = api
        .patch("/v1/books/b", &json!({"rollups": others()}))
        .await;
    let changed = changed.expect(200);
    let run = newest_run(&api, "b").await.expect("a recount begins");
    assert_eq!(run["kind"], "recount", "{run}");
    // The swap waits for the row, so that there is time to look.
    let mut held = hold(&database, "b").await;
    let now = newest_run(&api, "b").await.unwrap();
    if now["state"] == "running" {
        assert_eq!(changed["rollups"], old, "{changed}");
        let book = api.get("/v1/books/b").await.expect(200);
        assert_eq!(book["rollups"], old, "{book}");
        assert_eq!(shown(&api, "b").await, before);
        let gone = api.get("/v1/books/b/counts?rollup=visits").await;
        assert_ne!(gone.status, 200);
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut held).await.unwrap();
    assert_eq!(
        now["state"], "running",
        "it was over before anybody could look"
    );
    let done = ended(&api, "b", run["id"].as_str().unwrap()).await;
    assert_eq!(done["state"], "done", "{done}");
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["rollups"], others(), "{book}");
    swept(&database).await;

    // As a book counts that had them from the beginning.
    let fields = json!({"rollups": others(),
                        "settings": {"lateness_ms": 1000 * DAY_MS, "max_future_ms": null}});
    api.book("new", fields).await;
    let sql = "INSERT INTO clicks (book_id, click_id, seq, at_ms, received_ms, page, visitor)
               SELECT n.id, c.click_id, c.seq, c.at_ms, c.received_ms, c.page, c.visitor
               FROM clicks c JOIN books b ON b.id = c.book_id AND b.slug = 'b',
                    books n WHERE n.slug = 'new';
               UPDATE books n SET next_seq = b.next_seq FROM books b
               WHERE n.slug = 'new' AND b.slug = 'b'";
    harness::steps::execute(&database, sql).await;
    super::recount(&api, "new").await;
    for rollup in ["visits", "pages", "readers"] {
        let value = |(key, (value, _))| (key, value);
        let new: Vec<_> = counted(&api, "new", rollup)
            .await
            .into_iter()
            .map(value)
            .collect();
        let b: Vec<_> = counted(&api, "b", rollup)
            .await
            .into_iter()
            .map(value)
            .collect();
        assert!(!b.is_empty());
        assert_eq!(b, new, "{rollup}");
    }
    let visits: i64 = (counted(&api, "b", "visits").await.values())
        .map(|(value, _)| value.as_i64().unwrap())
        .sum();
    assert_eq!(visits, 32_000);
}

#[tokio::test]
async fn new_rollups_that_are_cancelled_leave_the_old_ones() {
    let (database, server) = harness::start().await;
    let api = server.api();
    days_book(&api, "b").await;
    fill(&database, "b", 100_000).await;
    api.clicks("b", clicks()).await;
    let before = super::standing(&api, "b").await;
    let changed = api
        .patch("/v1/books/b", &json!({"rollups": others()}))
        .await;
    changed.expect(200);
    let run = newest_run(&api, "b").await.expect("a recount begins");
    let path = format!("/v1/books/b/runs/{}/cancel", run["id"].as_str().unwrap());
    let cancelled = api.post(&path, &Value::Null).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    assert_eq!(super::standing(&api, "b").await, before);
    swept(&database).await;
    let done = super::recount(&api, "b").await;
    assert_eq!(done["processed"], 102_000, "{done}");
    assert_eq!(shown(&api, "b").await, in_log(&database, "b").await);
}

#[tokio::test]
async fn rollups_that_stay_as_they_are_and_books_without_clicks_need_no_recount() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    days_book(&api, "b").await;
    let changed = api
        .patch("/v1/books/b", &json!({"rollups": others()}))
        .await;
    assert_eq!(changed.expect(200)["rollups"], others());
    assert_eq!(newest_run(&api, "b").await, None);
    api.clicks("b", clicks()).await;
    let patch = json!({"rollups": others(), "title": "The same"});
    let changed: Answer = api.patch("/v1/books/b", &patch).await;
    assert_eq!(changed.expect(200)["title"], "The same");
    assert_eq!(newest_run(&api, "b").await, None);
    // What cannot be counted by is refused at once.
    let bad = json!({"rollups": [{"name": "x", "group_by": "page", "aggregate": "count",
                                  "window": tumbling(0)}]});
    api.patch("/v1/books/b", &bad).await.problem(422);
    assert_eq!(newest_run(&api, "b").await, None);
}

/// Chapters hold from the next click on, and a recount applies them to the past.
#[tokio::test]
async fn chapters_are_applied_to_the_past_by_a_recount() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "chapters", "group_by": "chapter", "aggregate": "count",
                     "window": tumbling(1000 * DAY_MS)}],
        "settings": {"lateness_ms": DAY_MS, "max_future_ms": null},
    });
    api.book("b", fields).await;
    api.clicks("b", clicks()).await;
    let chapters = json!([{"id": "one", "title": "One", "pages": ["/p0", "/p1"]},
                          {"id": "two", "title": "Two", "pages": ["/p2"]}]);
    api.put("/v1/books/b/chapters", &chapters).await.expect(200);
    let by_chapter = async || {
        let counts = api.counts("b", "chapters").await;
        let counts: Vec<(String, i64)> = (counts.iter())
            .map(|c| {
                (
                    c["group"].as_str().unwrap().to_owned(),
                    c["value"].as_i64().unwrap(),
                )
            })
            .collect();
        counts
    };
    assert_eq!(by_chapter().await, [(String::new(), 2000)]);
    super::recount(&api, "b").await;
    let of = |pages: &[i64]| -> i64 {
        let on = |n: &i64| pages.contains(&(n % 7));
        i64::try_from((0..2000).filter(on).count()).unwrap()
    };
    let expected = [
        ("", of(&[3, 4, 5, 6])),
        ("one", of(&[0, 1])),
        ("two", of(&[2])),
    ];
    let expected = expected.map(|(chapter, count)| (chapter.to_owned(), count));
    assert_eq!(by_chapter().await, expected);
}
