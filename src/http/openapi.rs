//! The description of the interface, generated from the handlers.

use axum::Json;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, SecurityRequirement,
};

use super::refusals;
use super::state::AppState;

const DESCRIPTION: &str = "Pagetide counts the clicks of online books per page in event-time \
windows and streams every change.\n\nTimes are RFC 3339 in UTC with milliseconds; times sent may \
have any offset, or be integers, milliseconds since the epoch. Durations are integers, \
milliseconds. Errors are RFC 9457 problem details.";

/// What stands around the paths.
pub(super) fn frame() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Pagetide")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .build();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let cookie = ApiKey::Cookie(ApiKeyValue::new("pagetide_session"));
    let either = |name| SecurityRequirement::new(name, Vec::<String>::new());
    OpenApiBuilder::new()
        .info(info)
        .components(Some(
            ComponentsBuilder::new()
                .security_scheme("token", bearer)
                .security_scheme("session", SecurityScheme::ApiKey(cookie))
                .build(),
        ))
        .security(Some([either("token"), either("session")]))
        .build()
}

/// The whole description.
#[must_use]
pub fn document() -> OpenApi {
    let mut document = super::documented().into_openapi();
    refusals::describe(&mut document);
    document
}

/// The whole description as YAML, as `openapi.yaml` holds it.
///
/// # Errors
/// It cannot be written as YAML.
pub fn yaml() -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    Ok(document().to_yaml()?)
}

/// `/openapi.yaml` and `/openapi.json`, for anyone.
pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/openapi.json", get(|| async { Json(document()) }))
        .route("/openapi.yaml", get(served_yaml))
}

async fn served_yaml() -> axum::response::Response {
    match yaml() {
        Ok(text) => ([(CONTENT_TYPE, "application/yaml")], text).into_response(),
        Err(error) => super::problem::Problem::internal(&*error).into_response(),
    }
}
