//! The stage of the demo: pages at an origin of their own, which the book's beacon sends from, and
//! the buttons. It is served by the demo's process, not by the server that is shown.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderName, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{Stream, stream};
use rust_embed::RustEmbed;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep};
use tower::ServiceBuilder;

use super::{security, serve};
use crate::demo::book::{PAGES, Page, TITLE};
use crate::demo::show::{Deed, Show};
use crate::demo::tally::Tally;

#[derive(RustEmbed)]
#[folder = "src/demo/stage"]
struct StageFiles;

#[derive(RustEmbed)]
#[folder = "src/demo/pages"]
struct BookFiles;

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Least time between two messages about the state of the show.
const BETWEEN_MESSAGES: Duration = Duration::from_millis(100);

/// Most ids of clicks that a page tells at once.
const MOST_IDS: usize = 1000;

/// What the stage needs of the demo.
pub(crate) struct Stage {
    /// Its own origin.
    pub(crate) origin: String,
    /// That of the server.
    pub(crate) server: String,
    /// The dashboard to show, with what opens it.
    pub(crate) dashboard: String,
    /// The slug of the book, and the key with which its pages send clicks.
    pub(crate) book: &'static str,
    pub(crate) key: String,
    pub(crate) show: watch::Receiver<Show>,
    pub(crate) deeds: mpsc::Sender<Deed>,
    pub(crate) tally: Arc<Tally>,
}

/// The service of the stage.
pub(crate) fn service(stage: Stage) -> impl serve::Service {
    let stage = Arc::new(stage);
    let router = Router::new()
        .route("/", get(whole))
        .route("/stage.css", get(async || file("stage.css", CSS)))
        .route("/stage.js", get(async || file("stage.js", JAVASCRIPT)))
        .route("/book.css", get(async || file("book.css", CSS)))
        .route("/book.js", get(async || file("book.js", JAVASCRIPT)))
        .route("/book/", get(contents))
        .route("/book/{name}", get(page))
        .route("/show", get(show))
        .route("/deeds/{deed}", post(deed))
        .route("/acknowledged", post(acknowledged))
        .layer(from_fn_with_state(Arc::clone(&stage), ours))
        .with_state(stage);
    ServiceBuilder::new()
        .map_response(security::secured::<Body>)
        .service(router)
}

/// Answers only those who ask for us by our own name, and takes deeds from our own pages alone: other
/// pages that are open on this machine can reach us too.
async fn ours(State(stage): State<Arc<Stage>>, request: Request, next: Next) -> Response {
    if is_ours(&stage, &request) {
        next.run(request).await
    } else {
        (
            StatusCode::FORBIDDEN,
            format!("the stage is at {}", stage.origin),
        )
            .into_response()
    }
}

fn is_ours(stage: &Stage, request: &Request) -> bool {
    let header = |name: HeaderName| {
        let value = request.headers().get(name);
        value.and_then(|value| value.to_str().ok())
    };
    let named = header(HOST).is_some_and(|host| stage.origin == format!("http://{host}"));
    named && (request.method() == Method::GET || header(ORIGIN) == Some(&stage.origin))
}

async fn whole(State(stage): State<Arc<Stage>>) -> Response {
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         frame-src 'self' {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        stage.server
    );
    let filled = text::<StageFiles>("stage.html");
    let filled = filled.map(|html| html.replace("{{dashboard}}", &stage.dashboard));
    filled.map_or_else(missing, |html| security::page(html, &policy))
}

async fn contents(State(stage): State<Arc<Stage>>) -> Response {
    book_page(&stage, 0)
}

async fn page(State(stage): State<Arc<Stage>>, Path(name): Path<String>) -> Response {
    let place = PAGES.iter().skip(1).position(|page| page.name == name);
    place.map_or_else(missing, |place| book_page(&stage, place + 1))
}

/// A page of the book, which stands in a frame of the stage.
fn book_page(stage: &Stage, place: usize) -> Response {
    let server = &stage.server;
    let policy = format!(
        "default-src 'none'; script-src 'self' {server}; style-src 'self'; connect-src 'self' {server}; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    );
    let page = PAGES[place];
    let (Some(frame), Some(body)) = (
        text::<StageFiles>("book.html"),
        text::<BookFiles>(&format!("{}.html", page.name)),
    ) else {
        return missing();
    };
    let title = if place == 0 {
        TITLE.to_owned()
    } else {
        format!("{} · {TITLE}", page.title)
    };
    let previous = place.checked_sub(1).map(|place| PAGES[place]);
    let html = frame
        .replace("{{title}}", &title)
        .replace("{{body}}", &body)
        .replace("{{list}}", &list(place))
        .replace("{{previous}}", &link(previous, "prev", "← "))
        .replace("{{next}}", &link(PAGES.get(place + 1).copied(), "next", ""))
        .replace("{{server}}", server)
        .replace("{{book}}", stage.book)
        .replace("{{key}}", &stage.key);
    let mut response = security::page(html, &policy);
    security::by_policy_alone(&mut response);
    response
}

/// The pages, the one at `place` marked.
fn list(place: usize) -> String {
    let items = PAGES.iter().enumerate().map(|(at, page)| {
        let current = if at == place {
            " aria-current=\"page\""
        } else {
            ""
        };
        let (address, title) = (
            page.address(),
            if at == 0 { "Contents" } else { page.title },
        );
        format!("<li><a href=\"/book/{address}\"{current}>{title}</a></li>\n")
    });
    items.collect()
}

fn link(to: Option<Page>, rel: &str, arrow: &str) -> String {
    to.map_or_else(String::new, |page| {
        let (address, title) = (page.address(), page.title);
        let after = if arrow.is_empty() { " →" } else { "" };
        format!("<a rel=\"{rel}\" href=\"/book/{address}\">{arrow}{title}{after}</a>")
    })
}

/// The state of the show, now and whenever it changes.
async fn show(
    State(stage): State<Arc<Stage>>,
) -> Sse<impl Stream<Item = Result<Event, axum::Error>>> {
    let mut shown = stage.show.clone();
    shown.mark_changed();
    let messages = stream::unfold(shown, |mut shown| async move {
        shown.changed().await.ok()?;
        let message = Event::default().json_data(&*shown.borrow_and_update());
        sleep(BETWEEN_MESSAGES).await;
        Some((message, shown))
    });
    Sse::new(messages)
}

async fn deed(State(stage): State<Arc<Stage>>, Path(deed): Path<String>) -> StatusCode {
    let deed = match deed.as_str() {
        "plug" => Deed::PullThePlug,
        "lid" => Deed::CloseTheLid,
        "tunnel" => Deed::EnterTheTunnel,
        "finish" => Deed::Finish,
        "settle" => Deed::Settle,
        _ => return StatusCode::NOT_FOUND,
    };
    let taken = stage.deeds.try_send(deed);
    taken.map_or(StatusCode::SERVICE_UNAVAILABLE, |()| StatusCode::NO_CONTENT)
}

/// A page of the book tells which of its clicks were acknowledged.
async fn acknowledged(State(stage): State<Arc<Stage>>, Json(ids): Json<Vec<String>>) -> StatusCode {
    if ids.len() > MOST_IDS {
        return StatusCode::PAYLOAD_TOO_LARGE;
    }
    stage.tally.acknowledge(ids);
    StatusCode::NO_CONTENT
}

fn missing() -> Response {
    StatusCode::NOT_FOUND.into_response()
}

fn text<F: RustEmbed>(name: &str) -> Option<String> {
    let file = F::get(name)?;
    String::from_utf8(file.data.into_owned()).ok()
}

fn file(name: &str, kind: &'static str) -> Response {
    let text = text::<StageFiles>(name);
    text.map_or_else(missing, |text| {
        ([(CONTENT_TYPE, kind)], text).into_response()
    })
}
