//! `/v1/books/{book}/notes`: what people write beside a book's counts.

use axum::Json;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use uuid::Uuid;

use super::extract::{Auth, Body, Page, Paging, Params, PathPair, PathPart};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::book::FieldError;
use crate::book::notes::{self, Note, NoteCreate, NotePatch};
use crate::ingest::command::{Command, NoteCommand};
use crate::ingest::lane::Work;
use crate::time::Timestamp;

/// Add a note
///
/// At a moment of the book's time, and perhaps about one of its pages. A book has at most 1,000; one
/// that is closed takes them too.
#[utoipa::path(
    post, path = "/v1/books/{book}/notes", tag = "books", operation_id = "create_note",
    params(("book" = String, Path, description = "Id or slug")),
    request_body = NoteCreate,
    responses(
        (status = 201, description = "Added", body = Note, headers(("location" = String))),
        (status = 422, description = "Something does not make sense, or the book has too many", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Body(new): Body<NoteCreate>,
) -> Result<Response, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let book = known.book.id;
    let note = new.checked(&known.book.settings, Timestamp::now());
    let note = note.map_err(invalid)?;
    let location = HeaderValue::from_str(&format!("/v1/books/{book}/notes/{}", note.id));
    let headers: HeaderMap = location.into_iter().map(|l| (LOCATION, l)).collect();
    let note = carry_out(&state, book, NoteCommand::Add(note)).await?;
    let note = note.ok_or_else(Problem::not_found)?;
    Ok((StatusCode::CREATED, headers, Json(note)).into_response())
}

/// List notes
///
/// In the order in which they were made.
#[utoipa::path(
    get, path = "/v1/books/{book}/notes", tag = "books", operation_id = "list_notes",
    params(("book" = String, Path, description = "Id or slug"), Paging),
    responses((status = 200, description = "A part of the list", body = Page<Note>))
)]
pub(super) async fn list(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<Note>>, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    let limit = Paging::limit(paging.limit)?;
    let after = paging.after_id()?;
    let notes = notes::list(&state.pool, known.book.id, after, limit + 1).await?;
    Ok(Json(Page::cut(notes, limit, |note| note.id.to_string())))
}

/// Change a note
///
/// Sets the fields given and leaves the others; a page that is null is taken off.
#[utoipa::path(
    patch, path = "/v1/books/{book}/notes/{note}", tag = "books", operation_id = "patch_note",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("note" = String, Path, description = "Its id"),
    ),
    request_body = NotePatch,
    responses(
        (status = 200, description = "What it now is", body = Note),
        (status = 404, description = "No such note", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "Something does not make sense", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn patch(
    State(state): State<AppState>,
    auth: Auth,
    PathPair(name, id): PathPair,
    Body(patch): Body<NotePatch>,
) -> Result<Json<Note>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let id = Uuid::try_parse(&id).map_err(|_| Problem::not_found())?;
    let changes = patch.checked(&known.book.settings).map_err(invalid)?;
    let note = carry_out(&state, known.book.id, NoteCommand::Change(id, changes)).await?;
    note.map(Json).ok_or_else(Problem::not_found)
}

/// Remove a note
#[utoipa::path(
    delete, path = "/v1/books/{book}/notes/{note}", tag = "books", operation_id = "delete_note",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("note" = String, Path, description = "Its id"),
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "No such note", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    auth: Auth,
    PathPair(name, id): PathPair,
) -> Result<StatusCode, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let id = Uuid::try_parse(&id).map_err(|_| Problem::not_found())?;
    carry_out(&state, known.book.id, NoteCommand::Remove(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The note that the command was about, once it is committed.
async fn carry_out(
    state: &AppState,
    book: Uuid,
    command: NoteCommand,
) -> Result<Option<Note>, Problem> {
    let work = Work::Command(Command::Note(command));
    Ok(state.lanes.submit(book, work).await?.note)
}

fn invalid(errors: Vec<FieldError>) -> Problem {
    Problem::with_errors(Code::Invalid, errors)
}
