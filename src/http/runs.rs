//! `/v1/books/{book}/runs`: imports and recounts, those that are live and those that have ended.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::extract::{Auth, Body, Page, Paging, Params, PathPair, PathPart};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::book::FieldError;
use crate::run::{Kind, Run, table};

/// A run to begin.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRun {
    /// `recount`; an import is begun by sending its log.
    kind: Kind,
}

/// List runs
///
/// Oldest first, without the lines that they list.
#[utoipa::path(
    get, path = "/v1/books/{book}/runs", tag = "runs", operation_id = "list_runs",
    params(("book" = String, Path, description = "Id or slug"), Paging),
    responses(
        (status = 200, description = "A part of the list", body = Page<Run>),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<Run>>, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    let limit = Paging::limit(paging.limit)?;
    let after = paging.after_id()?;
    let runs = table::list(&state.pool, known.book.id, after, limit + 1).await?;
    Ok(Json(Page::cut(runs, limit, |run| run.id.to_string())))
}

/// Begin a recount
///
/// All clicks of the book's log are counted again, too late ones included, beside the present counts,
/// while the book goes on taking clicks; then what was counted takes their place, and readers are told
/// to begin anew (`resync_required`, `replaced`). The run is there at once, and goes on by itself, also
/// after a restart.
#[utoipa::path(
    post, path = "/v1/books/{book}/runs", tag = "runs", operation_id = "begin_recount",
    params(("book" = String, Path, description = "Id or slug")),
    request_body = NewRun,
    responses(
        (status = 202, description = "The run", body = Run),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Another run of the book is live", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "That is begun in another way", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Body(new): Body<NewRun>,
) -> Result<(StatusCode, Json<Run>), Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    if new.kind != Kind::Recount {
        let detail = "an import is begun by sending its log to …/imports";
        let error = FieldError::new("kind", "not_a_recount", detail);
        return Err(Problem::with_errors(Code::Invalid, vec![error]));
    }
    let run = state.runs.recount(known.book.id).await?;
    Ok((StatusCode::ACCEPTED, Json(run)))
}

/// A run
#[utoipa::path(
    get, path = "/v1/books/{book}/runs/{run}", tag = "runs", operation_id = "read_run",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("run" = String, Path, description = "Its id"),
    ),
    responses(
        (status = 200, description = "The run", body = Run),
        (status = 404, description = "No such run", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn read(
    State(state): State<AppState>,
    auth: Auth,
    PathPair(name, run): PathPair,
) -> Result<Json<Run>, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    let run = Uuid::try_parse(&run).map_err(|_| Problem::not_found())?;
    let found = table::find(&state.pool, known.book.id, run).await?;
    found.map(Json).ok_or_else(Problem::not_found)
}

/// Cancel a run
///
/// A recount leaves nothing behind; of an import, what it has brought in stays. A run that has ended
/// stays as it is.
#[utoipa::path(
    post, path = "/v1/books/{book}/runs/{run}/cancel", tag = "runs", operation_id = "cancel_run",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("run" = String, Path, description = "Its id"),
    ),
    responses(
        (status = 200, description = "What it now is", body = Run),
        (status = 404, description = "No such run", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(
    State(state): State<AppState>,
    auth: Auth,
    PathPair(name, run): PathPair,
) -> Result<Json<Run>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let run = Uuid::try_parse(&run).map_err(|_| Problem::not_found())?;
    Ok(Json(state.runs.cancel(known.book.id, run).await?))
}
