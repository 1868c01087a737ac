//! `/v1/sessions`: opened with a token, for browsers.

use axum::Json;
use axum::extract::State;
use axum::http::header::SET_COOKIE;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::client::Client;
use super::credentials::{Bearer, cookie};
use super::extract::{Auth, Body};
use super::no_store;
use super::problem::{Code, Problem, ProblemBody};

use super::state::AppState;
use super::tokens::books_named;
use crate::access::scope::Scope;
use crate::access::session::{self, DEFAULT_TTL_MS, MAX_TTL_MS};
use crate::book::FieldError;
use crate::time::Timestamp;

/// A new session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionCreate {
    /// How long it lasts, in milliseconds; 12 hours if absent. It ends no later than its token.
    #[schema(minimum = 1, maximum = 2_592_000_000_i64)]
    ttl_ms: Option<i64>,
    /// Whether a browser is to keep it; yes if absent.
    cookie: Option<bool>,
}

/// A session, shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
pub(super) struct SessionBody {
    session: String,
    /// When it ends by itself.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// Open a session
///
/// It gives what the token gives, and ends with it. Browsers send it as the cookie
/// `pagetide_session`; `GET` of events, snapshot and counts take it as `?session=` too.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions",
    security(("token" = [])),
    request_body = SessionCreate,
    responses(
        (status = 201, description = "Opened; `session` is shown this once", body = SessionBody, headers(("set-cookie" = String))),
        (status = 401, description = "No token, or a wrong one; a session opens no other", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "Something does not make sense", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(state): State<AppState>,
    Bearer(caller): Bearer,
    client: Client,
    Body(new): Body<SessionCreate>,
) -> Result<Response, Problem> {
    let ttl_ms = new.ttl_ms.unwrap_or(DEFAULT_TTL_MS);
    if !(1..=MAX_TTL_MS).contains(&ttl_ms) {
        let error = FieldError::new("ttl_ms", "out_of_range", "from 1 to 2592000000, 30 days");
        return Err(Problem::with_errors(Code::Invalid, vec![error]));
    }
    let now = Timestamp::now();
    let opened = state.sessions.open(&caller, ttl_ms, now).await?;
    let set = if new.cookie.unwrap_or(true) {
        let seconds = (opened.expires_at.millis() - now.millis() + 999) / 1000;
        Some(cookie(&opened.secret, seconds, client.tls)?)
    } else {
        None
    };
    let body = SessionBody {
        session: opened.secret,
        expires_at: opened.expires_at,
    };
    let answer = no_store((StatusCode::CREATED, Json(body)).into_response());
    Ok(with_cookie(answer, set))
}

/// Who calls.
#[derive(Serialize, ToSchema)]
pub(super) struct Current {
    /// When the session or token ends by itself; null: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// Whether it may do everything.
    admin: bool,
    /// With which books: ids, or `["*"]`.
    books: Vec<String>,
    /// What it gives.
    scopes: Vec<Scope>,
}

/// Read who calls
///
/// What the session, or the token, that the request is authorised by may do, and for how long.
#[utoipa::path(
    get, path = "/v1/sessions/current", tag = "sessions",
    responses((status = 200, description = "What it may do", body = Current))
)]
pub(super) async fn read(auth: Auth) -> Response {
    let caller = &auth.0;
    let body = Current {
        expires_at: caller.expires_at,
        admin: caller.is_admin(),
        books: books_named(caller.sees()),
        scopes: caller.scopes.clone(),
    };
    no_store(Json(body).into_response())
}

/// End the session
///
/// The one that the request is authorised by. It holds nowhere after a second; its streams end
/// within a heartbeat.
#[utoipa::path(
    delete, path = "/v1/sessions/current", tag = "sessions",
    security(("session" = [])),
    responses(
        (status = 204, description = "Ended, and the cookie is cleared", headers(("set-cookie" = String))),
        (status = 403, description = "Asked for by a page of another origin", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "Authorised by a token, not by a session", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    auth: Auth,
    client: Client,
) -> Result<Response, Problem> {
    let none = || Problem::new(Code::NotFound, "a token was shown, and no session");
    let id = auth.0.session.ok_or_else(none)?;
    session::delete(&state.pool, id).await?;
    state.sessions.forget_all();
    let cleared = cookie("", 0, client.tls)?;
    Ok(with_cookie(
        StatusCode::NO_CONTENT.into_response(),
        Some(cleared),
    ))
}

fn with_cookie(mut answer: Response, cookie: Option<HeaderValue>) -> Response {
    if let Some(cookie) = cookie {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}
