//! A client of the REST interface.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::sse::Events;

/// A client for plain HTTP. It wants to know how it would speak TLS all the same.
pub(crate) fn http_client() -> reqwest::Client {
    // Fails where it was done before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// The same over HTTP/2.
pub(crate) fn http2_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().http2_prior_knowledge();
    builder.build().unwrap()
}

/// A client with a token.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) token: String,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("{error} in {}: {}", self.status, self.text))
    }

    /// The body, after the status was checked.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() {
            Value::Null
        } else {
            self.json()
        }
    }

    /// The `code` of a problem, after its form was checked.
    #[track_caller]
    pub(crate) fn problem(self, status: u16) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let body = self.expect(status);
        assert_eq!(body["status"], status);
        let code = body["code"].as_str().unwrap().to_owned();
        assert_eq!(body["type"], format!("/problems/{code}"));
        code
    }
}

impl Api {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        Self {
            http: http_client(),
            url: url.to_owned(),
            token: token.to_owned(),
        }
    }

    /// The same with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self {
            token: token.to_owned(),
            ..self.clone()
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(&self.token)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.request(Method::PUT, path).json(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.request(Method::PATCH, path).json(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    /// Makes a book and gives its body.
    pub(crate) async fn book(&self, slug: &str, fields: Value) -> Value {
        let answer = self.put(&format!("/v1/books/{slug}"), &fields).await;
        answer.expect(201)
    }

    /// Makes a book in which clicks of any time count: one rollup, `pages`, of tumbling windows.
    pub(crate) async fn plain_book(&self, slug: &str, size_ms: i64, lateness_ms: i64) -> Value {
        let fields = json!({
            "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                         "window": {"kind": "tumbling", "size_ms": size_ms}}],
            "settings": {"delay_ms": 0, "lateness_ms": lateness_ms, "max_future_ms": null},
        });
        self.book(slug, fields).await
    }

    /// Posts clicks, which must be taken, and gives the answer.
    pub(crate) async fn clicks(&self, book: &str, clicks: Value) -> Value {
        let path = format!("/v1/books/{book}/clicks");
        self.post(&path, &clicks).await.expect(200)
    }

    /// All windows of a rollup, through every page of the list.
    pub(crate) async fn counts(&self, book: &str, rollup: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/books/{book}/counts?rollup={rollup}&limit=1000{cursor}");
            let page = self.get(&path).await.expect(200);
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }

    /// Follows a book; `query` begins with `?` or is empty.
    pub(crate) async fn follow(
        &self,
        book: &str,
        query: &str,
        last_event_id: Option<&str>,
    ) -> Events {
        let path = format!("/v1/books/{book}/events{query}");
        let mut request = self.request(Method::GET, &path);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        Events::of(response)
    }
}
