//! What anyone may see of a book whose setting `public_counter` is on: `GET /v1/books/{book}/public`,
//! and `/badge/{slug}.svg` to show on a page.
//!
//! Nobody shows credentials here, and none that are sent change anything. A book that is not public
//! answers as one that does not exist.

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::badge;
use super::extract::{Params, PathPart};
use super::problem::{Code, Problem, ProblemBody};
use super::security::CROSS_ORIGIN_RESOURCE_POLICY;
use super::state::AppState;
use crate::counts::public::{Public, PublicError};

/// Which page is asked about.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// A page, made canonical as those of clicks are; without it, the book as a whole.
    page: Option<String>,
}

/// How often a book or a page of it was read.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PublicBody {
    /// The page by its canonical name, if one was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    page: Option<String>,
    /// Different readers of the last minutes: those in the window that holds this moment and began
    /// first, of the book's first rollup of different visitors in sliding windows, by book or, for a page,
    /// by page. Null where the book has none.
    readers_now: Option<i64>,
    /// All views that were counted. Of a page, those in the windows that are kept of the book's rollup
    /// that counts clicks by page in tumbling windows; of several, the one with the greatest lateness,
    /// then with the longest windows. Null where the book has none, or where these are more than 100,000
    /// windows.
    views: Option<i64>,
}

/// Public counter
///
/// For anyone, where the book's `public_counter` is on; otherwise there is no such book. An answer is a
/// minute old, or two where the database is slow or away, and may be kept for another.
#[utoipa::path(
    get, path = "/v1/books/{book}/public", tag = "public", security(()),
    params(("book" = String, Path, description = "Id or slug"), Query),
    responses(
        (status = 200, description = "What is public", body = PublicBody),
        (status = 404, description = "No such book, or it is not public", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Ask again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn counter(
    State(state): State<AppState>,
    PathPart(name): PathPart,
    Params(query): Params<Query>,
) -> Result<Response, Problem> {
    let found = state.public_counts.of(&name, query.page.as_deref()).await?;
    let Public {
        page,
        readers_now,
        views,
    } = found.ok_or_else(Problem::not_found)?;
    let body = Json(PublicBody {
        page,
        readers_now,
        views,
    });
    Ok((for_anyone(), body).into_response())
}

/// What a badge shows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BadgeQuery {
    /// A page; without it, the book as a whole.
    page: Option<String>,
    /// What stands before the number, to 40 characters. Default `views`.
    #[param(max_length = 40)]
    label: Option<String>,
}

/// Badge
///
/// The views of the public counter as a picture, to show on a page or in a README.
#[utoipa::path(
    get, path = "/badge/{file}", tag = "public", security(()),
    params(("file" = String, Path, description = "Slug or id of the book, and `.svg`", example = "my-book.svg"), BadgeQuery),
    responses(
        (status = 200, description = "The picture", body = String, content_type = "image/svg+xml"),
        (status = 404, description = "No such book, or it is not public", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Ask again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn badge(
    State(state): State<AppState>,
    PathPart(file): PathPart,
    Params(query): Params<BadgeQuery>,
) -> Result<Response, Problem> {
    let name = file.strip_suffix(".svg").ok_or_else(Problem::not_found)?;
    let label = query.label.as_deref().unwrap_or("views");
    if label.chars().count() > 40 || label.chars().any(char::is_control) {
        let detail = "label: to 40 characters, none of them for control";
        return Err(Problem::new(Code::BadQuery, detail));
    }
    let found = state.public_counts.of(name, query.page.as_deref()).await?;
    let public = found.ok_or_else(Problem::not_found)?;
    Ok((for_anyone(), badge::response(label, public.views)).into_response())
}

/// Headers of what everybody may see, and everybody's caches may keep for a minute.
fn for_anyone() -> [(HeaderName, HeaderValue); 3] {
    [
        (
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=60"),
        ),
        // Also where no origin is named: a cache may give the answer to a page.
        (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
        (
            CROSS_ORIGIN_RESOURCE_POLICY,
            HeaderValue::from_static("cross-origin"),
        ),
    ]
}

impl From<PublicError> for Problem {
    fn from(error: PublicError) -> Self {
        match error {
            PublicError::Page(error) => Self::new(Code::BadQuery, format!("page: {error}")),
            PublicError::Busy => Self::busy(&error.to_string()),
            PublicError::Database(error) => error.into(),
            PublicError::Plan(_) | PublicError::State(_) => Self::internal(&error),
        }
    }
}
