//! `GET /v1/books/{book}/snapshot`: a book and its newest windows at one moment.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::counts::time;
use super::credentials::Reader;
use super::extract::{Params, PathPart};
use super::no_store;
use super::problem::{Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::stream::state::{self, Snapshot};

/// Which windows are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// All windows that end after this, rather than the newest.
    since: Option<String>,
    /// A session, where no header can be set.
    #[serde(rename = "session")]
    #[param(rename = "session")]
    _session: Option<String>,
}

/// Snapshot
///
/// Of each rollup the windows not yet closed and the 60 newest closed ones, at one moment: it
/// contains what all frames up to `position` announced. Follow the stream with `position` as
/// cursor, and nothing is missed. The newest of sessions are those that ended last, and of a rollup
/// the 10,000 newest are shown at most, a session being one of one group.
#[utoipa::path(
    get, path = "/v1/books/{book}/snapshot", tag = "counts",
    params(("book" = String, Path, description = "Id or slug"), Query),
    responses(
        (status = 200, description = "The snapshot", body = Snapshot),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn snapshot(
    State(state): State<AppState>,
    Reader(auth): Reader,
    PathPart(name): PathPart,
    Params(query): Params<Query>,
) -> Result<Response, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    let since = time("since", query.since.as_deref())?;
    let here = state.hub.here(known.book.id);
    let snapshot = state::snapshot(&state.long_reads, known.book.id, since, here).await?;
    let snapshot = snapshot.ok_or_else(Problem::not_found)?;
    Ok(no_store(Json(snapshot).into_response()))
}
