//! The beacon: what pages with its tag send, told by a real browser.

mod door;
mod outage;
mod rules;
mod served;

use serde_json::{Value, json};

use crate::harness::browser::{Browser, site_of};
use crate::harness::steps::token;
use crate::harness::{Api, Database, Server};
use door::Door;

/// A book, a browser, and the book's pages at an origin of their own, behind names that are not those
/// of the author's machine.
struct Stage {
    database: Database,
    server: Option<Server>,
    door: Door,
    browser: Browser,
    key: String,
    /// Of the book's pages, whatever their paths; each has the tag.
    site: String,
}

impl Stage {
    async fn set() -> Self {
        let database = Database::create().await;
        let server = Server::start(&database).await;
        let door = Door::open().await;
        door.lead_to(&server.url);
        let api = server.api();
        api.book("b", json!({})).await;
        let key = token(&api, "b", "write").await["token"].clone();
        let key = key.as_str().unwrap().to_owned();
        let counter = format!("http://counter.example:{}", door.port);
        let tag = format!(
            r#"<script defer src="{counter}/beacon.js" data-book="b" data-key="{key}"></script>"#
        );
        let local = site_of(page(&tag)).await;
        Self {
            database,
            server: Some(server),
            door,
            browser: Browser::start_as_a_person().await,
            key,
            site: local.replace("127.0.0.1", "book.example"),
        }
    }

    fn api(&self) -> Api {
        self.server.as_ref().unwrap().api()
    }

    /// The address of the beacon, and of whatever else the server has, for pages.
    fn counter(&self) -> String {
        format!("http://counter.example:{}", self.door.port)
    }

    async fn visit(&self, path: &str) {
        self.browser.visit(&format!("{}{path}", self.site)).await;
    }

    /// Runs `script` in the page.
    async fn run(&self, script: &str) -> Value {
        self.browser.run(script, json!(null)).await
    }

    /// How often each page was read.
    async fn pages(&self) -> Value {
        let path = "/v1/books/b/counts?rollup=pages&merge=true";
        let counts = self.api().get(path).await.expect(200);
        let items = counts["items"].as_array().unwrap().iter();
        let pages = items.map(|item| {
            let page = item["group"].as_str().unwrap();
            (page.to_owned(), item["value"].clone())
        });
        Value::Object(pages.collect())
    }
}

/// A page with `tag` in its head.
fn page(tag: &str) -> String {
    format!("<!doctype html><html lang=\"en\"><head><title>a page</title>{tag}</head><body>text")
}
