//! Readers who send clicks with a key: who they are, as far as that is anybody's business.

mod forgotten;
mod names;
mod networks;
mod salts;

use reqwest::RequestBuilder;
use serde_json::Value;
use sqlx::Row;

use crate::harness::steps::token;
use crate::harness::{Answer, Api, Database};

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

/// A page view of `book` that a browser behind `address` sends, by a proxy on this machine.
fn view(api: &Api, book: &str, key: &str, address: &str) -> RequestBuilder {
    let url = format!("{}/v1/books/{book}/clicks?key={key}", api.url);
    let request = api.http.post(url).header("content-type", "text/plain");
    let request = request.header("user-agent", FIREFOX);
    request.header("x-forwarded-for", address)
}

/// A key for `book`.
async fn key(api: &Api, book: &str) -> String {
    let token = token(api, book, "write").await;
    token["token"].as_str().unwrap().to_owned()
}

/// Sends `click`, which must be taken with this status.
async fn send(request: RequestBuilder, click: &Value, status: u16) -> Value {
    Answer::of(request.body(click.to_string()))
        .await
        .expect(status)
}

/// Who read `page`, as the log of clicks has it.
async fn visitor(database: &Database, page: &str) -> Option<String> {
    let mut conn = database.connect().await;
    let row = sqlx::query("SELECT visitor FROM clicks WHERE page = $1").bind(page);
    row.fetch_one(&mut conn).await.unwrap().get(0)
}
