//! `/v1/books/{book}/chapters`: the structure of a book.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, ETAG};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::etag::{etag, precondition};
use super::extract::{Auth, ListBody, PathPart};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::book::chapters::{self, Chapters};
use crate::ingest::command::Command;
use crate::ingest::lane::Work;
use crate::structure::Chapter;

/// Read the chapters
///
/// In order. The `ETag` is the book's `structure_version`.
#[utoipa::path(
    get, path = "/v1/books/{book}/chapters", tag = "books", operation_id = "read_chapters",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("if-none-match" = Option<String>, Header, description = "The tag of what is known already"),
    ),
    responses(
        (status = 200, description = "The chapters", body = Vec<Chapter>, headers(("etag" = String))),
        (status = 304, description = "They are as they were", headers(("etag" = String))),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn read(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    let precondition = precondition(&headers)?;
    let chapters = chapters::of_book(&state.pool, known.book.id).await?;
    let chapters = chapters.ok_or_else(Problem::not_found)?;
    let version = chapters.version;
    if precondition.one_of.is_some_and(|v| !v.hold(version)) {
        let detail = format!("the chapters are of version {version}");
        return Err(Problem::new(Code::PreconditionFailed, detail));
    }
    if precondition.none_of.is_some_and(|v| v.hold(version)) {
        return Ok((StatusCode::NOT_MODIFIED, tagged(version)).into_response());
    }
    Ok(shown(chapters))
}

/// Replace the chapters
///
/// The whole structure, in order; an empty list removes it. A page is in one chapter at most; pages
/// are made canonical as those of clicks are, by the settings of this moment; a name that ends in
/// `/*` takes all below it. The change counts from the next click on. A list that changes nothing
/// leaves the version as it is.
#[utoipa::path(
    put, path = "/v1/books/{book}/chapters", tag = "books", operation_id = "put_chapters",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("if-match" = Option<String>, Header, description = "The tag of what is to be replaced"),
    ),
    request_body = Vec<Chapter>,
    responses(
        (status = 200, description = "What they now are", body = Vec<Chapter>, headers(("etag" = String))),
        (status = 412, description = "They have been changed meanwhile", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "Something does not make sense", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn put(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    headers: HeaderMap,
    ListBody(list): ListBody<Chapter>,
) -> Result<Response, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let precondition = precondition(&headers)?;
    let command = Command::Chapters { list, precondition };
    let receipt = state
        .lanes
        .submit(known.book.id, Work::Command(command))
        .await?;
    state.directory.forget(&known.book);
    Ok(shown(receipt.chapters.unwrap_or_default()))
}

fn shown(chapters: Chapters) -> Response {
    (tagged(chapters.version), Json(chapters.list)).into_response()
}

/// Whoever keeps it asks whether it is current before it is used.
fn tagged(version: i64) -> HeaderMap {
    let no_cache = HeaderValue::from_static("no-cache");
    HeaderMap::from_iter([(ETAG, etag(version)), (CACHE_CONTROL, no_cache)])
}
