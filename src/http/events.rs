//! `GET /v1/books/{book}/events`: the stream.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::credentials::Reader;
use super::extract::{Auth, Params, PathPart};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::stream::cursor::{self, Asked, BadQuery, Reason, Start};
use crate::stream::follow::{self, Follow, Options};
use crate::telemetry;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// How the stream is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// A position, or `earliest`; the header `Last-Event-ID` wins.
    last_event_id: Option<String>,
    /// The same.
    #[serde(rename = "lastEventId")]
    #[param(rename = "lastEventId")]
    camel: Option<String>,
    /// The same.
    #[serde(rename = "lastEventID")]
    #[param(rename = "lastEventID")]
    capital: Option<String>,
    /// `1`: a `snapshot` frame follows where the stream begins live or after a resync.
    #[param(inline)]
    snapshot: Option<Flag>,
    /// `event`: heartbeats as events rather than comments.
    #[param(inline)]
    heartbeat: Option<Heartbeat>,
    /// A session, for an EventSource sets no headers.
    #[serde(rename = "session")]
    #[param(rename = "session")]
    _session: Option<String>,
}

/// A parameter that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, utoipa::ToSchema)]
pub(super) enum Flag {
    #[serde(rename = "1")]
    On,
    #[serde(rename = "0")]
    Off,
}

/// How heartbeats are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Heartbeat {
    Event,
    Comment,
}

/// Follow a book
///
/// Server-sent events. A client that comes back with `Last-Event-ID` goes on exactly where it was,
/// or is told `resync_required`.
#[utoipa::path(
    get, path = "/v1/books/{book}/events", tag = "events",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("last-event-id" = Option<String>, Header, description = "The position to go on after"),
        Query,
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"),
        (status = 204, description = "The book is at rest and the cursor is its position: nothing more will come"),
        (status = 400, description = "A malformed cursor in the query", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn follow(
    State(state): State<AppState>,
    reader: Result<Reader, Problem>,
    PathPart(name): PathPart,
    Params(query): Params<Query>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let header = headers.get(&LAST_EVENT_ID).map(HeaderValue::as_bytes);
    let given = [&query.last_event_id, &query.camel, &query.capital];
    let asked = cursor::asked(header, &given.map(|q| q.as_deref()));
    let opened = match reader {
        Ok(Reader(auth)) => open(&state, &auth, &name, &query, asked.clone()).await,
        Err(problem) => Err(problem),
    };
    match opened {
        // To an EventSource a 503 or 429 is final; after a goodbye it comes back later.
        Err(problem) if problem.is(Code::Unavailable) || problem.is(Code::RateLimited) => {
            let asked = asked.unwrap_or(Asked::Live);
            Ok(event_stream(Body::from(follow::overloaded(&asked))))
        }
        opened => opened,
    }
}

async fn open(
    state: &AppState,
    auth: &Auth,
    name: &str,
    query: &Query,
    asked: Result<Asked, BadQuery>,
) -> Result<Response, Problem> {
    let known = auth.book(state, name, Scope::Read).await?;
    let asked = asked?;
    let Some(open) = state.streams.open(auth.0.token) else {
        return Ok(event_stream(Body::from(follow::overloaded(&asked))));
    };

    // Subscribed first, then judged: what is committed from here on wakes the stream.
    let mut watch = state.hub.watch(known.book.id);
    let mut head = watch.head().await?;
    // A cursor that seems ahead may only be ahead of what this process has read, and a book at
    // rest may have been reopened elsewhere: in doubt the row decides, as it is now.
    let doubtful = |start| matches!(start, Start::AtRest | Start::Resync(Reason::Ahead));
    if watch.is_stale() || doubtful(cursor::start(&asked, head.bounds)) {
        head = watch.confirmed_head().await?;
    }
    let start = cursor::start(&asked, head.bounds);
    if start == Start::AtRest {
        telemetry::at_rest();
        return Ok(StatusCode::NO_CONTENT.into_response());
    }

    let interest = state.ended.watch(&auth.0);
    let options = Options {
        snapshot: query.snapshot == Some(Flag::On),
        heartbeat_events: query.heartbeat == Some(Heartbeat::Event),
        heartbeat: state.streams.heartbeat,
        max_age: state.streams.jittered_max_age(),
        drain: state.streams.drain.clone(),
        drain_after: state.streams.drain_after(),
        session: interest.ended.clone(),
    };
    let follow = Follow::new(watch, options, &asked, start, head);
    // What counts the stream, and its interest in its token, live exactly as long as it does.
    let watched = state.stalls.watch(follow, (open, interest));
    Ok(event_stream(Body::from_stream(watched)))
}

fn event_stream(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        // A cached stream once had clients reconnect in a loop; a transformed one holds frames back.
        (CACHE_CONTROL, "no-store, no-transform"),
        (X_ACCEL_BUFFERING, "no"),
    ];
    (headers, body).into_response()
}
