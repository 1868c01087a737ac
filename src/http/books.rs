//! `/v1/books`: made, read, changed, closed, reopened, deleted.

use axum::Json;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::extract::{Auth, Body, Page, Paging, Params, PathPart};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::book::table::{self, NewBook};
use crate::book::{self, Book, BookBody, BookPatch, FieldError, Settings, SettingsPatch};
use crate::db;
use crate::ingest::command::Command;
use crate::ingest::lane::Work;
use crate::rollup::{self, RollupSpec};
use crate::time::Timestamp;

/// A new book.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BookCreate {
    /// For people, 1 to 200 characters.
    title: String,
    /// Unique: 1 to 64 of a-z, 0-9 and `-`. One is made of the title if absent.
    slug: Option<String>,
    /// How clicks are counted; `live` and `pages` if absent.
    rollups: Option<Vec<RollupSpec>>,
    #[serde(default)]
    settings: SettingsPatch,
    /// Origins whose pages may call.
    #[serde(default)]
    origins: Vec<String>,
}

/// Make a book
///
/// Its position is 0: making it mints no frame.
#[utoipa::path(
    post, path = "/v1/books", tag = "books",
    request_body = BookCreate,
    responses(
        (status = 201, description = "Made", body = BookBody, headers(("location" = String))),
        (status = 409, description = "The slug is taken", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "Something does not make sense", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(state): State<AppState>,
    auth: Auth,
    Body(new): Body<BookCreate>,
) -> Result<Response, Problem> {
    auth.require_admin()?;
    let slug = new.slug.unwrap_or_else(|| slug_of(&new.title));
    let book = make(
        &state,
        slug,
        BookPatch {
            title: Some(new.title),
            rollups: new.rollups,
            settings: new.settings,
            origins: Some(new.origins),
        },
    )
    .await?;
    Ok(made(&state, book))
}

fn made(state: &AppState, book: Book) -> Response {
    let location = HeaderValue::from_str(&format!("/v1/books/{}", book.id));
    let headers: HeaderMap = location.into_iter().map(|l| (LOCATION, l)).collect();
    (StatusCode::CREATED, headers, Json(body(state, book))).into_response()
}

fn body(state: &AppState, book: Book) -> BookBody {
    let here = state.hub.here(book.id);
    book.into_body(here)
}

async fn make(state: &AppState, slug: String, new: BookPatch) -> Result<Book, Problem> {
    let rollups = new.rollups.unwrap_or_else(rollup::default_rollups);
    let book = NewBook {
        id: Uuid::now_v7(),
        title: new.title.unwrap_or_else(|| slug.clone()),
        settings: Settings::new(new.settings, &rollups),
        origins: new.origins.unwrap_or_default(),
        rollups,
        slug,
    };
    let mut errors: Vec<FieldError> = Vec::new();
    errors.extend(book::check_slug(&book.slug));
    errors.extend(book::check_title(&book.title));
    errors.extend(book::check_origins(&book.origins));
    errors.extend(book::check_counting(&book.settings, &book.rollups));
    if !errors.is_empty() {
        return Err(Problem::with_errors(Code::Invalid, errors));
    }
    let mut tx = db::begin(&state.pool, db::WRITE).await?;
    table::insert(&mut tx, &book, Timestamp::now()).await?;
    tx.commit().await?;
    let book = reread(state, book.id).await?;
    state.directory.forget(&book);
    Ok(book)
}

/// A slug made of a title: its letters and digits, words joined by `-`.
fn slug_of(title: &str) -> String {
    let lower = title.to_lowercase();
    let words = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let slug = words.collect::<Vec<_>>().join("-");
    let slug: String = slug.chars().take(64).collect();
    match slug.trim_matches('-') {
        // Nothing that a slug may hold: any unique name will do.
        "" => format!("book-{}", Uuid::new_v4().simple()),
        slug => slug.to_owned(),
    }
}

async fn reread(state: &AppState, id: Uuid) -> Result<Book, Problem> {
    table::find(&state.pool, id)
        .await?
        .ok_or_else(Problem::not_found)
}

/// List books
///
/// Those that the token may know of, oldest first.
#[utoipa::path(
    get, path = "/v1/books", tag = "books", params(Paging),
    responses((status = 200, description = "A part of the list", body = Page<BookBody>))
)]
pub(super) async fn list(
    State(state): State<AppState>,
    auth: Auth,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<BookBody>>, Problem> {
    let limit = Paging::limit(paging.limit)?;
    let only = auth.0.sees();
    let books = table::list(&state.pool, only, paging.after_id()?, limit + 1).await?;
    let page = Page::cut(books, limit, |book| book.id.to_string());
    Ok(Json(Page {
        items: page.items.into_iter().map(|b| body(&state, b)).collect(),
        next_cursor: page.next_cursor,
    }))
}

/// Read a book
#[utoipa::path(
    get, path = "/v1/books/{book}", tag = "books",
    params(("book" = String, Path, description = "Id or slug")),
    responses(
        (status = 200, description = "The book", body = BookBody),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn read(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
) -> Result<Json<BookBody>, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    let book = reread(&state, known.book.id).await?;
    Ok(Json(body(&state, book)))
}

/// Make a book under a slug, or change the one that is there
///
/// Sets the fields given and leaves the others.
#[utoipa::path(
    put, path = "/v1/books/{book}", tag = "books",
    params(("book" = String, Path, description = "Slug, or the id of a book that exists")),
    request_body = BookPatch,
    responses(
        (status = 200, description = "Changed", body = BookBody),
        (status = 201, description = "Made", body = BookBody, headers(("location" = String))),
        (status = 422, description = "Something does not make sense", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn put(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Body(patch): Body<BookPatch>,
) -> Result<Response, Problem> {
    // Whoever may make none must not learn which are there.
    if !auth.0.is_admin() || state.directory.find(&name).await?.is_some() {
        let known = auth.book(&state, &name, Scope::Manage).await?;
        return Ok(change(&state, known.book.id, patch).await?.into_response());
    }
    match make(&state, name.clone(), patch.clone()).await {
        Ok(book) => Ok(made(&state, book)),
        // Somebody else has just made it.
        Err(problem) if problem.is(Code::SlugTaken) => {
            let id = table::id_of_slug(&state.pool, &name).await?;
            let id = id.ok_or_else(Problem::not_found)?;
            Ok(change(&state, id, patch).await?.into_response())
        }
        Err(problem) => Err(problem),
    }
}

/// Change a book
///
/// Sets the fields given and leaves the others. Settings hold from the next click.
#[utoipa::path(
    patch, path = "/v1/books/{book}", tag = "books",
    params(("book" = String, Path, description = "Id or slug")),
    request_body = BookPatch,
    responses(
        (status = 200, description = "What it now is", body = BookBody),
        (status = 409, description = "Rollups of a book that has clicks", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "Something does not make sense", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn patch(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Body(patch): Body<BookPatch>,
) -> Result<Json<BookBody>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    change(&state, known.book.id, patch).await
}

async fn change(state: &AppState, id: Uuid, patch: BookPatch) -> Result<Json<BookBody>, Problem> {
    carry_out(state, id, Command::Update(Box::new(patch))).await
}

async fn carry_out(
    state: &AppState,
    id: Uuid,
    command: Command,
) -> Result<Json<BookBody>, Problem> {
    let may_begin = matches!(&command, Command::Update(patch) if patch.rollups.is_some());
    state.lanes.submit(id, Work::Command(command)).await?;
    if may_begin {
        // It may have begun a recount.
        state.runs.ring();
    }
    let book = reread(state, id).await?;
    state.directory.forget(&book);
    state.public_counts.forget_all();
    Ok(Json(body(state, book)))
}

/// Close a book
///
/// The end of its input: the watermark moves to the end of time and every window fires. Comes
/// after the clicks that were posted before it.
#[utoipa::path(
    post, path = "/v1/books/{book}/close", tag = "books",
    params(("book" = String, Path, description = "Id or slug")),
    responses((status = 200, description = "What it now is", body = BookBody))
)]
pub(super) async fn close(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
) -> Result<Json<BookBody>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    state.tier.wait_for_earlier_clicks(known.book.id).await;
    carry_out(&state, known.book.id, Command::Close).await
}

/// Reopen a closed book
///
/// It takes clicks again. Windows that have fired stay fired; the watermark goes back to what it
/// was before the close.
#[utoipa::path(
    post, path = "/v1/books/{book}/reopen", tag = "books",
    params(("book" = String, Path, description = "Id or slug")),
    responses((status = 200, description = "What it now is", body = BookBody))
)]
pub(super) async fn reopen(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
) -> Result<Json<BookBody>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    carry_out(&state, known.book.id, Command::Reopen).await
}

/// Delete a book
///
/// It is gone at once, and its streams end; its rows are removed in the background.
#[utoipa::path(
    delete, path = "/v1/books/{book}", tag = "books",
    params(("book" = String, Path, description = "Id or slug")),
    responses((status = 204, description = "Gone"))
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
) -> Result<StatusCode, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    auth.require_admin()?;
    let id = known.book.id;
    let mut tx = db::begin(&state.pool, db::WRITE).await?;
    let there = table::delete(&mut tx, id).await?;
    tx.commit().await?;
    state.directory.forget(&known.book);
    state.public_counts.forget_all();
    state.hub.wake(&[id]);
    state.purge.notify_one();
    if there {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_of_titles() {
        assert_eq!(slug_of("The Rust  Book, 2nd!"), "the-rust-book-2nd");
        assert!(slug_of("Тихий Дон").starts_with("book-"));
        assert!(book::check_slug(&slug_of(&"ab ".repeat(99))).is_none());
    }
}
