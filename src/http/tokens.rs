//! `/v1/tokens`: made, listed, revoked.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::extract::{Auth, Body, Page, Paging, Params, PathPart};
use super::no_store;
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::access::token::{self, Token};
use crate::book::FieldError;
use crate::time::Timestamp;

/// A new token.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenCreate {
    /// Ids or slugs, or `["*"]` for all. Left out for `admin`.
    #[serde(default)]
    books: Vec<String>,
    /// What it gives.
    scopes: Vec<Scope>,
    /// For people, to 200 characters.
    label: Option<String>,
    /// Milliseconds from now; for ever if absent.
    #[schema(minimum = 1)]
    expires_in_ms: Option<i64>,
}

/// A token; what it reads as is shown once, when it is made.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub(super) struct TokenBody {
    id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    token: Option<String>,
    /// Ids, or `["*"]`.
    books: Vec<String>,
    scopes: Vec<Scope>,
    label: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

fn body(token: Token, secret: Option<String>) -> TokenBody {
    TokenBody {
        id: token.id,
        token: secret,
        books: books_named(token.books.as_deref()),
        scopes: token.scopes,
        label: token.label,
        expires_at: token.expires_at,
    }
}

/// Books as they are named in answers: ids, or `*` for all.
pub(super) fn books_named(books: Option<&[Uuid]>) -> Vec<String> {
    match books {
        None => vec!["*".to_owned()],
        Some(ids) => ids.iter().map(Uuid::to_string).collect(),
    }
}

/// Make a token
///
/// Whoever manages a book may make tokens for it. None outlives the token that made it; one that
/// was made with a session ends with that, unless it only writes or reads.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens",
    request_body = TokenCreate,
    responses(
        (status = 201, description = "Made; `token` is shown this once", body = TokenBody),
        (status = 403, description = "For books that the caller does not manage", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "Something does not make sense", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(state): State<AppState>,
    auth: Auth,
    Body(new): Body<TokenCreate>,
) -> Result<Response, Problem> {
    let now = Timestamp::now();
    let mut errors = check(&new);
    let every_book = new.scopes.contains(&Scope::Admin) || new.books == ["*"];
    let mut books = Vec::new();
    for name in new.books.iter().filter(|_| !every_book) {
        match auth.known(&state, name).await? {
            Some(known) => books.push(known.book.id),
            None => errors.push(FieldError::new(
                "books",
                "no_such_book",
                format!("there is no book `{name}`"),
            )),
        }
    }
    let expires_at = new.expires_in_ms.map(|ms| now.millis().checked_add(ms));
    let expires_at = expires_at.map(|end| end.and_then(Timestamp::from_millis));
    if expires_at == Some(None) || new.expires_in_ms.is_some_and(|ms| ms < 1) {
        let detail = "at least 1, and before the year 10000";
        errors.push(FieldError::new("expires_in_ms", "out_of_range", detail));
    }
    if !errors.is_empty() {
        return Err(Problem::with_errors(Code::Invalid, errors));
    }
    let books = (!every_book).then_some(books);
    if !auth.0.may_give(&new.scopes, books.as_deref()) {
        let detail = "only whoever manages all of these books may give these scopes";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let secret = token::generate();
    let bound = auth.0.gives_until(&new.scopes);
    let token = Token {
        id: Uuid::now_v7(),
        books,
        scopes: new.scopes,
        label: new.label,
        expires_at: match (expires_at.flatten(), bound) {
            (Some(asked), Some(bound)) => Some(asked.min(bound)),
            (asked, bound) => asked.or(bound),
        },
    };
    token::insert(&state.pool, &token, &secret, now).await?;
    let made = (StatusCode::CREATED, Json(body(token, Some(secret))));
    Ok(no_store(made.into_response()))
}

fn check(new: &TokenCreate) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut wrong = |field, code, detail: &str| errors.push(FieldError::new(field, code, detail));
    let admin = new.scopes.contains(&Scope::Admin);
    if new.scopes.is_empty() {
        wrong(
            "scopes",
            "empty",
            "one or more of admin, manage, write, read",
        );
    }
    if !admin && new.books.is_empty() {
        wrong(
            "books",
            "empty",
            "ids or slugs of books, or [\"*\"] for all",
        );
    }
    if admin && !new.books.is_empty() && new.books != ["*"] {
        wrong(
            "books",
            "not_allowed",
            "admin holds for every book; leave books out",
        );
    }
    if !new.label.as_deref().is_none_or(token::is_label) {
        let detail = "at most 200 characters, none of them a control character";
        wrong("label", "bad_label", detail);
    }
    errors
}

/// List tokens
///
/// Those that the caller may revoke, oldest first, without what they read as.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "tokens", params(Paging),
    responses((status = 200, description = "A part of the list", body = Page<TokenBody>))
)]
pub(super) async fn list(
    State(state): State<AppState>,
    auth: Auth,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<TokenBody>>, Problem> {
    let limit = Paging::limit(paging.limit)?;
    if !auth.0.is_admin() && !auth.0.scopes.contains(&Scope::Manage) {
        let detail = "only whoever manages a book may list its tokens";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let tokens = token::list(&state.pool, &auth.0, paging.after_id()?, limit + 1).await?;
    let page = Page::cut(tokens, limit, |token| token.id.to_string());
    let items = page.items.into_iter().map(|token| body(token, None));
    Ok(Json(Page {
        items: items.collect(),
        next_cursor: page.next_cursor,
    }))
}

/// Revoke a token
///
/// It holds nowhere after a second; streams that it opened end within a heartbeat.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", tag = "tokens",
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 404, description = "No such token", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(id): PathPart,
) -> Result<StatusCode, Problem> {
    let id = Uuid::try_parse(&id).map_err(|_| Problem::not_found())?;
    let found = token::find(&state.pool, id).await?;
    let mine = found.filter(|token| auth.0.may_give(&token.scopes, token.books.as_deref()));
    if mine.is_none() {
        return Err(Problem::not_found());
    }
    if !token::delete(&state.pool, id).await? {
        return Err(Problem::not_found());
    }
    state.tokens.forget_all();
    state.sessions.forget_all();
    Ok(StatusCode::NO_CONTENT)
}
