//! `/v1/books/{book}/dead-letters`: clicks that could not be committed.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::extract::{Auth, Page, Paging, Params, PathPair, PathPart};
use super::problem::{Problem, ProblemBody};
use super::receipt::{ReceiptBody, Sent};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::click::Click;
use crate::engine::aggregate::Value;
use crate::ingest::admission::Admitted;
use crate::ingest::commit::{Batch, Fate};
use crate::ingest::dead_letters::{self, DeadLetter};
use crate::ingest::lane::Work;
use crate::time::Timestamp;

/// A click that could not be committed.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(super) struct DeadLetterBody {
    id: Uuid,
    /// Why.
    reason: String,
    #[schema(value_type = String, format = DateTime)]
    failed_at: Timestamp,
    click: LetterClick,
}

/// The click as it was let in.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetterClick)]
struct LetterClick {
    id: String,
    page: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    received_at: Timestamp,
    visitor: Option<String>,
    referrer: Option<String>,
    source: Option<String>,
    #[schema(value_type = Option<f64>)]
    value: Option<Value>,
}

impl From<DeadLetter> for DeadLetterBody {
    fn from(letter: DeadLetter) -> Self {
        let click = letter.click;
        let value = click.value.map(|v| Value::Decimal(Some(v.0.into())));
        Self {
            id: letter.id,
            reason: letter.reason,
            failed_at: letter.failed_at,
            click: LetterClick {
                id: click.id.shown(),
                page: click.page,
                at: click.at,
                received_at: click.received_at,
                visitor: click.visitor,
                referrer: click.referrer,
                source: click.source,
                value,
            },
        }
    }
}

/// List dead letters
///
/// Clicks that could not be committed, oldest first, each with the reason.
#[utoipa::path(
    get, path = "/v1/books/{book}/dead-letters", tag = "clicks", operation_id = "list_dead_letters",
    params(("book" = String, Path, description = "Id or slug"), Paging),
    responses(
        (status = 200, description = "A part of the list", body = Page<DeadLetterBody>),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<DeadLetterBody>>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let limit = Paging::limit(paging.limit)?;
    let after = paging.after_id()?;
    let letters = dead_letters::list(&state.pool, known.book.id, after, limit + 1).await?;
    let page = Page::cut(letters, limit, |letter| letter.id.to_string());
    Ok(Json(Page {
        items: page.items.into_iter().map(DeadLetterBody::from).collect(),
        next_cursor: page.next_cursor,
    }))
}

/// Send a dead letter again
///
/// Through the same queue as other clicks, with its own time. Once it is committed, it is no dead
/// letter any more; one that fails again stays as it is, and the answer says so.
#[utoipa::path(
    post, path = "/v1/books/{book}/dead-letters/{id}/retry", tag = "clicks", operation_id = "retry_dead_letter",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("id" = String, Path, description = "Its id"),
    ),
    responses(
        (status = 200, description = "Committed", body = ReceiptBody),
        (status = 404, description = "No such letter", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The book is closed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "It failed again", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Try again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn retry(
    State(state): State<AppState>,
    auth: Auth,
    PathPair(name, id): PathPair,
) -> Result<Json<ReceiptBody>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let book = known.book.id;
    let id = Uuid::try_parse(&id).map_err(|_| Problem::not_found())?;
    let letter = dead_letters::find(&state.pool, book, id).await?;
    let DeadLetter { click, .. } = letter.ok_or_else(Problem::not_found)?;
    let (batch, sent) = Sent::of(alone(click));
    let work = Work::Clicks(batch);
    let receipt = state.lanes.submit(book, work).await?;
    if !receipt.fates.contains(&Fate::DeadLetter) {
        // Should this fail, the next retry finds a duplicate.
        dead_letters::delete(&state.pool, book, id).await?;
    }
    Ok(Json(sent.committed(receipt)?))
}

/// A request of one click that was let in before.
fn alone(click: Click) -> Admitted {
    Admitted {
        batch: Batch {
            clicks: vec![click],
            ..Batch::default()
        },
        places: vec![0],
        ..Admitted::default()
    }
}

/// Throw a dead letter away
#[utoipa::path(
    delete, path = "/v1/books/{book}/dead-letters/{id}", tag = "clicks", operation_id = "delete_dead_letter",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("id" = String, Path, description = "Its id"),
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "No such letter", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    auth: Auth,
    PathPair(name, id): PathPair,
) -> Result<StatusCode, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let id = Uuid::try_parse(&id).map_err(|_| Problem::not_found())?;
    let deleted = dead_letters::delete(&state.pool, known.book.id, id).await?;
    if deleted {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found())
    }
}
