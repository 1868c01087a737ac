//! `/healthz`, `/readyz`, `/metrics`: for whoever runs the program.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::Auth;
use super::no_store;
use super::problem::{Problem, ProblemBody};
use super::state::AppState;
use crate::book::lag;
use crate::ingest::tier::Spool;
use crate::telemetry;
use crate::time::Timestamp;

/// How long the database may take to answer a process that is ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the process is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `alive`, `ready` or `not_ready`.
    status: &'static str,
    /// What was looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    checks: Vec<Check>,
}

/// One thing that a process needs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Check {
    name: &'static str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Whether the process is alive
#[utoipa::path(
    get, path = "/healthz", tag = "operation", security(()),
    responses((status = 200, description = "It is", body = Health))
)]
pub(super) async fn healthz() -> Response {
    let checks = Vec::new();
    let status = "alive";
    no_store(Json(Health { status, checks }).into_response())
}

/// Whether the process can do its work
#[utoipa::path(
    get, path = "/readyz", tag = "operation", security(()),
    responses(
        (status = 200, description = "It can", body = Health),
        (status = 503, description = "It cannot; the checks say why", body = Health),
    )
)]
pub(super) async fn readyz(State(state): State<AppState>) -> Response {
    let asked = sqlx::query_scalar!(r#"SELECT 1 AS "one!""#).fetch_one(&state.pool);
    let database = matches!(tokio::time::timeout(PATIENCE, asked).await, Ok(Ok(_)));
    let draining = state.streams.drain.is_cancelled();
    let check = |name, ok, detail: &str| Check {
        name,
        ok,
        detail: (!ok).then(|| detail.to_owned()),
    };
    let mut checks = vec![
        check("database", database, "the database does not answer"),
        check("accepting", !draining, "the process is shutting down"),
    ];
    checks.extend(state.tier.spool().map(|spool| of_spool(spool)));
    let ready = checks.iter().all(|check| check.ok);
    let (code, status) = if ready {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
    };
    no_store((code, Json(Health { status, checks })).into_response())
}

/// A spool that has room is no hindrance, but whoever asks wants to know that clicks wait in it.
fn of_spool(spool: &Spool) -> Check {
    let waiting = spool.waiting();
    let full = spool.is_full();
    let what = if full { "the spool is full; " } else { "" };
    Check {
        name: "spool",
        ok: !full,
        detail: (full || waiting > 0).then(|| format!("{what}{waiting} clicks wait in it")),
    }
}

/// Metrics for Prometheus
///
/// With an admin token; open on the address of `PAGETIDE_METRICS_LISTEN`.
#[utoipa::path(
    get, path = "/metrics", tag = "operation",
    responses(
        (status = 200, description = "Text exposition format", body = String, content_type = "text/plain"),
        (status = 403, description = "Not an admin token", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn metrics(
    State(state): State<AppState>,
    auth: Auth,
) -> Result<Response, Problem> {
    auth.require_admin()?;
    Ok(rendered(&state).await)
}

/// The same for anyone who reaches the address that is for them.
pub(super) async fn open_metrics(State(state): State<AppState>) -> Response {
    rendered(&state).await
}

async fn rendered(state: &AppState) -> Response {
    if let Some(spool) = state.tier.spool() {
        telemetry::spool_state(spool.bytes(), spool.waiting());
    }
    let mut text = state.metrics.render();
    // Whoever scrapes wants the rest most when the database does not answer.
    let lags = tokio::time::timeout(PATIENCE, lag::newest(&state.pool, Timestamp::now())).await;
    if let Ok(Ok(lags)) = lags {
        text.push_str(&telemetry::lags(&lags));
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    no_store(([(CONTENT_TYPE, kind)], text).into_response())
}
