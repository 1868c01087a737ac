//! Pages of other origins: what they may send, and what they may read.

mod browser;
mod hidden;
mod rules;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::api::Answer;
use crate::harness::{Api, Database, Server};

/// An origin of the process.
const OURS: &str = "https://dashboard.example";

/// The origin that the book `listed` lists.
const LISTED: &str = "https://listed.example";

/// An origin that nobody lists.
const OTHER: &str = "https://other.example";

/// A server that allows [`OURS`], and two books: `listed`, which lists [`LISTED`], and `open`, which
/// lists nothing.
async fn start_with(env: &[(&str, &str)]) -> (Database, Server, Api) {
    let database = Database::create().await;
    let allowed = [("PAGETIDE_ALLOWED_ORIGINS", OURS)];
    let env: Vec<(&str, &str)> = allowed.iter().chain(env).copied().collect();
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.book("listed", json!({"origins": [LISTED]})).await;
    api.book("open", json!({})).await;
    (database, server, api)
}

/// The secret of a token for `book`.
async fn secret(api: &Api, book: &str, scope: &str) -> String {
    let token = crate::harness::steps::token(api, book, scope).await;
    token["token"].as_str().unwrap().to_owned()
}

/// A page view, as a browser sends it with a key.
async fn send_with_key(api: &Api, book: &str, key: &str, origin: &str) -> Answer {
    let request = plain(
        api,
        Method::POST,
        &format!("/v1/books/{book}/clicks?key={key}"),
    );
    let click: Value = json!({"page": "/a", "visitor": "v"});
    let request = request.header("content-type", "text/plain");
    Answer::of(from(request, origin).body(click.to_string())).await
}

/// A request without credentials.
fn plain(api: &Api, method: Method, path: &str) -> RequestBuilder {
    api.http.request(method, format!("{}{path}", api.url))
}

/// `request`, by a page of `origin`; nobody's, if that is empty.
fn from(request: RequestBuilder, origin: &str) -> RequestBuilder {
    if origin.is_empty() {
        request
    } else {
        request.header("origin", origin)
    }
}

/// What a browser asks before a page of `origin` may send `method` to `path`.
async fn preflight(api: &Api, origin: &str, method: &str, path: &str) -> Answer {
    let request = plain(api, Method::OPTIONS, path)
        .header("access-control-request-method", method)
        .header("access-control-request-headers", "content-type");
    Answer::of(from(request, origin)).await
}

/// Which page may read an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Readers {
    /// Those of this origin, with credentials.
    Origin(String),
    Anyone,
    Nobody,
}

impl Readers {
    fn origin(origin: &str) -> Self {
        Self::Origin(origin.to_owned())
    }

    /// Of an answer to a request that named an origin.
    #[track_caller]
    fn of(answer: &Answer) -> Self {
        let all = |name| {
            let values = answer.headers.get_all(name).iter();
            values.map(|v| v.to_str().unwrap()).collect::<Vec<_>>()
        };
        let vary = all("vary").join(",").to_ascii_lowercase();
        assert!(vary.contains("origin"), "{answer:?}");
        let credentials = all("access-control-allow-credentials");
        match *all("access-control-allow-origin") {
            [] => {
                assert!(credentials.is_empty(), "{answer:?}");
                Self::Nobody
            }
            ["*"] => {
                assert!(credentials.is_empty(), "{answer:?}");
                Self::Anyone
            }
            [origin] => {
                assert_eq!(credentials, ["true"], "{answer:?}");
                Self::Origin(origin.to_owned())
            }
            ref several => panic!("several origins: {several:?}"),
        }
    }
}
