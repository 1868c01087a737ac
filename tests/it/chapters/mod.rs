//! Chapters: which pages a book has where, and what is counted by them.

mod counting;
mod list;
mod refusals;
mod told;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::Api;
use crate::harness::api::Answer;

const PATH: &str = "/v1/books/b/chapters";

fn chapter(id: &str, pages: &[&str]) -> Value {
    json!({"id": id, "title": format!("Title of {id}"), "pages": pages})
}

/// A book that counts by page and by chapter, in windows of a second.
async fn book(api: &Api, settings: Value) -> Value {
    let window = json!({"kind": "tumbling", "size_ms": 1000});
    let mut fields = json!({
        "rollups": [
            {"name": "pages", "group_by": "page", "aggregate": "count", "window": window},
            {"name": "chapters", "group_by": "chapter", "aggregate": "count", "window": window}],
        "settings": {"delay_ms": 0, "lateness_ms": 3_600_000, "max_future_ms": null,
                     "idle_timeout_ms": null},
    });
    for (name, value) in settings.as_object().unwrap() {
        fields["settings"][name] = value.clone();
    }
    api.book("b", fields).await
}

async fn put(api: &Api, chapters: &Value) -> Answer {
    api.put(PATH, chapters).await
}

/// With a header that makes it depend on the version.
async fn put_if(api: &Api, header: &str, value: &str, chapters: &Value) -> Answer {
    let request = api.request(Method::PUT, PATH).json(chapters);
    Answer::of(request.header(header, value)).await
}

async fn get_if(api: &Api, header: &str, value: &str) -> Answer {
    Answer::of(api.request(Method::GET, PATH).header(header, value)).await
}

fn etag(answer: &Answer) -> String {
    answer.headers["etag"].to_str().unwrap().to_owned()
}

/// The list and its tag, which is the book's `structure_version`.
async fn read(api: &Api) -> (Value, String) {
    let answer = api.get(PATH).await;
    let tag = etag(&answer);
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(tag, format!("\"{}\"", book["structure_version"]));
    (answer.expect(200), tag)
}

/// Posts a click on each page at a second.
async fn click(api: &Api, second: i64, pages: &[&str]) -> Value {
    let at = second * 1000;
    let clicks = pages.iter().map(|page| json!({"page": page, "at": at}));
    api.clicks("b", clicks.collect()).await
}

/// The chapters' counts: second, chapter, value.
async fn by_chapter(api: &Api) -> Vec<(i64, String, i64)> {
    let second = |item: &Value| {
        let start = item["start"].as_str().unwrap();
        assert!(start.starts_with("1970-01-01T00:00:"), "{start}");
        start[17..19].parse().unwrap()
    };
    let group = |item: &Value| item["group"].as_str().unwrap().to_owned();
    let items = api.counts("b", "chapters").await;
    items
        .iter()
        .map(|item| (second(item), group(item), item["value"].as_i64().unwrap()))
        .collect()
}

fn counts(expected: &[(i64, &str, i64)]) -> Vec<(i64, String, i64)> {
    let owned = |(second, group, value): &(i64, &str, i64)| (*second, (*group).to_owned(), *value);
    expected.iter().map(owned).collect()
}
