//! The limit of a request: a handler on the same stack that parses a click and answers.

use std::hint::black_box;

use axum::routing::post;
use axum::{Json, Router};

use super::click::{Click, Taken};

/// At the same address as ours.
pub(crate) fn router() -> Router {
    Router::new().route("/v1/books/{book}/clicks", post(take))
}

async fn take(Json(click): Json<Click>) -> Json<Taken> {
    black_box(click);
    Json(Taken { ok: true })
}
