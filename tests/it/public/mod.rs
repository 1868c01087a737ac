//! What anyone may see of a book that says so, and that nobody sees anything of another.

mod badge;
mod counter;
mod hidden;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api};

/// An answer to somebody without credentials.
async fn ask(api: &Api, path: &str) -> Answer {
    Answer::of(api.http.request(Method::GET, format!("{}{path}", api.url))).await
}

/// The public counter of a book.
async fn public(api: &Api, query: &str) -> Value {
    let answer = ask(api, &format!("/v1/books/b/public{query}")).await;
    answer.expect(200)
}

/// Turns a book's counter on or off. What was remembered is forgotten with that.
async fn set_public(api: &Api, book: &str, on: bool) {
    let settings = json!({"settings": {"public_counter": on}});
    let path = format!("/v1/books/{book}");
    api.patch(&path, &settings).await.expect(200);
}
