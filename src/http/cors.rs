//! Cross-origin requests: pages of which origins may read an answer.
//!
//! **Promises.** An origin of the process may read everything, one that a book lists what concerns
//! that book, both with credentials. Clicks sent with a `key` to a book that lists none may be sent
//! from anywhere, and the answer read without credentials; the description of the interface, `/client.js`
//! and what is public of a book, too.
//! Every other answer is read by no other origin.
//!
//! **Nothing is told of books that the caller may not know of.** A preflight carries no credentials,
//! and an answer may be a refusal. What these say hangs on the origin, on the form of the address,
//! and on whether *any* book lists the origin, never on the book that the address names. Only where
//! the handler found that the caller may know of the book ([`shown`]) does that book's list decide.
//!
//! A request that names no origin passes without a look.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, ORIGIN, VARY,
};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use futures_util::future::Either;

use super::state::AppState;
use crate::book::directory::Known;

tokio::task_local! {
    /// The book that a request from another origin is about, once its caller may know of it.
    static SHOWN: OnceCell<Arc<Known>>;
}

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");

/// Browsers may compress a body themselves, and say so; the rest is what the interface reads.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, content-encoding, idempotency-key, if-match, if-none-match, \
     last-event-id, x-request-id",
);

const EXPOSED: HeaderValue =
    HeaderValue::from_static("etag, location, retry-after, www-authenticate, x-request-id");

/// What is the same for everyone.
const OPEN: [&str; 4] = [
    "/openapi.json",
    "/openapi.yaml",
    "/client.js",
    "/client-state.js",
];

/// For how long a browser need not ask again, in seconds; the most that Chromium takes.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

const VARY_BY_ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// How long an answer waits to know whether any book lists the origin.
const PATIENCE: Duration = Duration::from_millis(500);

/// Notes that the caller may know of `book`, so that its origins may read the answer.
pub(super) fn shown(book: &Arc<Known>) {
    // Where the request names no origin, nobody asks.
    let _ = SHOWN.try_with(|cell| cell.set(Arc::clone(book)));
}

/// Whether a page of `origin` may send clicks to `book` with a key.
pub(super) fn may_send(state: &AppState, origin: &HeaderValue, book: &Known) -> bool {
    let listed = &book.book.origins;
    let origin = origin.to_str().unwrap_or_default();
    listed.is_empty() || listed.iter().any(|o| o == origin) || state.origins.contains(origin)
}

/// What the form of a request says about who may read the answer, besides the process's origins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// Anyone: it is the same for all.
    Open,
    /// Clicks with a key: anyone, unless the book lists origins.
    Keyed,
    /// The book's origins.
    Book,
    /// Nobody else.
    Own,
}

impl Reach {
    /// `method` is the one that a preflight asks for, or the request's own.
    fn of<B>(request: &Request<B>, method: &[u8]) -> Self {
        let uri = request.uri();
        let path = uri.path();
        if OPEN.contains(&path) || path.starts_with("/badge/") {
            return Self::Open;
        }
        // What the caller may do goes beyond any book's pages.
        if path == "/v1/sessions/current" && method == Method::GET.as_str().as_bytes() {
            return Self::Own;
        }
        // A session is of use to the pages of a book, and opened with a token that the page has.
        if path == "/v1/sessions" || path.starts_with("/v1/sessions/") {
            return Self::Book;
        }
        let Some((_, rest)) = path
            .strip_prefix("/v1/books/")
            .map(|below| below.split_once('/').unwrap_or((below, "")))
        else {
            return Self::Own;
        };
        if rest == "public" {
            return Self::Open;
        }
        let mut query = uri.query().unwrap_or_default().split('&');
        let keyed = rest == "clicks" && method == Method::POST.as_str().as_bytes();
        if keyed && query.any(|part| part.starts_with("key=")) {
            Self::Keyed
        } else {
            Self::Book
        }
    }
}

/// Who may read an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Readers {
    /// Pages of this origin, with credentials.
    ThisOrigin,
    /// All pages, without credentials.
    Anyone,
    /// No page of another origin.
    Nobody,
}

/// A request that names an origin.
struct Asked {
    state: AppState,
    origin: HeaderValue,
    reach: Reach,
}

impl Asked {
    /// Of the answer to a request whose caller may know of `book`, if it is about one.
    async fn readers(&self, book: Option<&Known>) -> Readers {
        let Ok(origin) = self.origin.to_str() else {
            return Readers::Nobody;
        };
        if self.state.origins.contains(origin) {
            return Readers::ThisOrigin;
        }
        let listed = match book {
            Some(known) => known.book.origins.iter().any(|o| o == origin),
            None => self.any_book_lists(origin).await,
        };
        match self.reach {
            Reach::Book | Reach::Keyed if listed => Readers::ThisOrigin,
            Reach::Keyed if book.is_none_or(|known| known.book.origins.is_empty()) => {
                Readers::Anyone
            }
            Reach::Open => Readers::Anyone,
            _ => Readers::Nobody,
        }
    }

    async fn any_book_lists(&self, origin: &str) -> bool {
        let asks = matches!(self.reach, Reach::Book | Reach::Keyed) && origin != "null";
        if !asks {
            return false;
        }
        let listed = self.state.directory.lists_origin(origin);
        let listed = tokio::time::timeout(PATIENCE, listed).await;
        matches!(listed, Ok(Ok(true)))
    }

    /// Says in `response` who may read it.
    async fn say<B>(&self, response: &mut Response<B>, book: Option<&Known>) -> Readers {
        let readers = self.readers(book).await;
        let headers = response.headers_mut();
        let allowed = match readers {
            Readers::ThisOrigin => {
                let yes = HeaderValue::from_static("true");
                headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
                Some(self.origin.clone())
            }
            Readers::Anyone => Some(HeaderValue::from_static("*")),
            Readers::Nobody => None,
        };
        if let Some(allowed) = allowed {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        headers.append(VARY, VARY_BY_ORIGIN);
        readers
    }

    /// The answer to a preflight. It needs no handler, and none sees it.
    async fn preflight<B: Default>(self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        if self.say(&mut response, None).await != Readers::Nobody {
            let headers = response.headers_mut();
            headers.remove(ACCESS_CONTROL_EXPOSE_HEADERS);
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
            headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
        response
    }

    /// What `answer` gives, with who may read it.
    async fn answered<B>(
        self,
        answer: impl Future<Output = Result<Response<B>, Infallible>>,
    ) -> Result<Response<B>, Infallible> {
        let answered = SHOWN.scope(OnceCell::new(), async {
            let response = answer.await;
            let book = SHOWN.with(|cell| cell.get().cloned());
            (response, book)
        });
        let (response, book) = answered.await;
        let mut response = response?;
        self.say(&mut response, book.as_deref()).await;
        Ok(response)
    }
}

/// Stands around everything that answers requests.
#[derive(Clone)]
pub(super) struct Cors<S> {
    state: AppState,
    inner: S,
}

impl<S> Cors<S> {
    pub(super) fn new(state: AppState, inner: S) -> Self {
        Self { state, inner }
    }
}

type Answer<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

impl<S, B> tower::Service<Request<Body>> for Cors<S>
where
    S: tower::Service<
            Request<Body>,
            Response = Response<B>,
            Error = Infallible,
            Future: Send + 'static,
        >,
    B: Default + Send + 'static,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Either<S::Future, Answer<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let headers = request.headers();
        let Some(origin) = headers.get(ORIGIN) else {
            return Either::Left(self.inner.call(request));
        };
        let preflight = headers.get(ACCESS_CONTROL_REQUEST_METHOD);
        let preflight = preflight.filter(|_| request.method() == Method::OPTIONS);
        let method = preflight.map_or(request.method().as_str().as_bytes(), HeaderValue::as_bytes);
        let mut reach = Reach::of(&request, method);
        // As `extract::Writer`: a header wins, and the key is none.
        if reach == Reach::Keyed && headers.contains_key(AUTHORIZATION) {
            reach = Reach::Book;
        }
        let asked = Asked {
            state: self.state.clone(),
            origin: origin.clone(),
            reach,
        };
        Either::Right(if preflight.is_some() {
            Box::pin(async { Ok(asked.preflight().await) })
        } else {
            Box::pin(asked.answered(self.inner.call(request)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(method: &str, target: &str) -> Reach {
        let request = Request::builder().uri(target).body(()).unwrap();
        Reach::of(&request, method.as_bytes())
    }

    #[test]
    fn the_form_of_an_address_says_who_may_read_its_answer() {
        for (method, target, expected) in [
            ("GET", "/openapi.json", Reach::Open),
            ("GET", "/badge/b.svg", Reach::Open),
            ("GET", "/v1/books/b/public?page=/a", Reach::Open),
            ("GET", "/v1/books/public", Reach::Book),
            ("GET", "/v1/books", Reach::Own),
            ("GET", "/v1/tokens", Reach::Own),
            ("GET", "/metrics", Reach::Own),
            ("POST", "/v1/sessions", Reach::Book),
            ("DELETE", "/v1/sessions/current", Reach::Book),
            ("GET", "/v1/books/b", Reach::Book),
            ("GET", "/v1/books/b/events?snapshot=1", Reach::Book),
            ("POST", "/v1/books/b/clicks", Reach::Book),
            ("POST", "/v1/books/b/clicks?key=k", Reach::Keyed),
            ("POST", "/v1/books/b/clicks?a=b&key=k", Reach::Keyed),
            ("PUT", "/v1/books/b/clicks?key=k", Reach::Book),
            ("POST", "/v1/books/b/clicks/x?key=k", Reach::Book),
            ("POST", "/v1/books/b/close?key=k", Reach::Book),
        ] {
            assert_eq!(reach(method, target), expected, "{method} {target}");
        }
    }
}
