//! The pages: the dashboard, what it is made of, and `/client.js`, with what it
//! imports, for the dashboards of others.
//!
//! The files of `src/dashboard` are in the binary; a debug build reads them from there. They are the
//! same for everyone, so they say nothing of any book; what a viewer may see, the interface decides.

use std::borrow::Cow;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rust_embed::{EmbeddedFile, RustEmbed};

use super::extract::PathPart;
use super::problem::Problem;
use super::security::{self, CROSS_ORIGIN_RESOURCE_POLICY};
use super::state::AppState;

#[derive(RustEmbed)]
#[folder = "src/dashboard"]
struct Files;

/// Pages may be kept, and are asked for anew each time: after an upgrade nobody sees half of one.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// What stands in `index.html` for the address at which people reach this server.
const PUBLIC_URL: &str = "{{public_url}}";

/// The same for the path of the beacon.
const BEACON_PATH: &str = "{{beacon_path}}";

/// What the dashboard may do: its own scripts and styles, and this server.
const DASHBOARD: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/", get(dashboard))
        .route("/new", get(dashboard))
        .route("/books/{book}", get(dashboard))
        .route("/share/{book}", get(dashboard))
        .route("/assets/{file}", get(asset))
        .route(
            "/client.js",
            get(async |headers| client("client.js", &headers)),
        )
        .route(
            "/client-state.js",
            get(async |headers| client("client-state.js", &headers)),
        )
}

/// One page for all; its script looks at the address.
async fn dashboard(State(state): State<AppState>) -> Result<Response, Problem> {
    let file = Files::get("index.html").ok_or_else(Problem::not_found)?;
    let html = String::from_utf8_lossy(&file.data);
    let public_url = state.public_url.as_deref().unwrap_or_default();
    let html = html.replace(PUBLIC_URL, &escaped(public_url));
    let html = html.replace(BEACON_PATH, state.beacon_path.as_str());
    let mut page = security::page(html, DASHBOARD);
    security::allow_frames(&mut page, &state.frame_ancestors);
    page.headers_mut().insert(CACHE_CONTROL, ASK_AGAIN);
    Ok(page)
}

async fn asset(PathPart(name): PathPart, headers: HeaderMap) -> Result<Response, Problem> {
    let file = Files::get(&name);
    let file = file.ok_or_else(Problem::not_found)?;
    let kind = content_type(&name).ok_or_else(Problem::not_found)?;
    Ok(served(file, kind, &headers))
}

/// Pages of other origins may load it, as a module too.
fn client(name: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let file = Files::get(name).ok_or_else(Problem::not_found)?;
    let mut response = served(file, JAVASCRIPT, headers);
    let cross_origin = HeaderValue::from_static("cross-origin");
    let headers = response.headers_mut();
    headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, cross_origin);
    Ok(response)
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

fn content_type(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension {
        "js" => JAVASCRIPT,
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

/// A file, or that it has not changed since.
fn served(file: EmbeddedFile, kind: &'static str, asked: &HeaderMap) -> Response {
    let hash = URL_SAFE_NO_PAD.encode(file.metadata.sha256_hash());
    let tag = format!("\"{hash}\"");
    let known = asked.get_all(IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|value| value.to_str().ok());
    let unchanged = known.any(|list| list.contains(&tag) || list.trim() == "*");
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, ASK_AGAIN),
    ];
    let mut response = if unchanged {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        let data = match file.data {
            Cow::Borrowed(bytes) => bytes.into(),
            Cow::Owned(bytes) => axum::body::Bytes::from(bytes),
        };
        (headers, data).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// `text` as an attribute's value.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
}
