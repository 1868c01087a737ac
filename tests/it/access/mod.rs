//! Who may do what with which book.

mod callers;
mod deeds;
mod ends;
mod from_elsewhere;
mod hidden;
mod matrix;
mod sessions;
mod terminal;
mod tokens;
mod unlogged;

use serde_json::{Value, json};

use crate::harness::Api;

/// Makes a token and gives its body.
async fn token(api: &Api, books: &[&str], scopes: &[&str]) -> Value {
    let new = json!({"books": books, "scopes": scopes});
    api.post("/v1/tokens", &new).await.expect(201)
}

fn secret(token: &Value) -> &str {
    token["token"].as_str().unwrap()
}

fn id(token: &Value) -> &str {
    token["id"].as_str().unwrap()
}
