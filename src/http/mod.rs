//! HTTP: the only place that knows axum and status codes.
//!
//! One file for each resource. A new endpoint: a handler with `#[utoipa::path]` in the file of its
//! resource, and its name in [`documented`]. What goes wrong becomes a [`problem`].

pub(crate) mod aside;
mod badge;
mod beacon;
pub(crate) mod body;
mod books;
mod chapters;
mod clicks;
pub(crate) mod client;
mod cors;
mod counts;
mod credentials;
mod dead_letters;
mod etag;
mod events;
mod extract;
mod health;
mod imports;
mod notes;
pub mod openapi;
mod pages;
mod problem;
mod problems;
mod public;
pub(crate) mod rate;
mod receipt;
mod refusals;
mod runs;
mod same_origin;
mod security;
pub(crate) mod serve;
mod sessions;
mod snapshot;
pub(crate) mod stage;
pub(crate) mod state;
mod tokens;
mod visit;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request};
use axum::response::{IntoResponse, Response};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::TraceLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use cors::Cors;
use problem::{Code, Problem};
use state::AppState;

/// Most bytes of a body, after decompression.
const MAX_BODY_BYTES: usize = 1024 * 1024;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Every route, with its description.
fn documented() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(books::create, books::list))
        .routes(routes!(
            books::read,
            books::put,
            books::patch,
            books::delete
        ))
        .routes(routes!(books::close))
        .routes(routes!(books::reopen))
        .routes(routes!(chapters::read, chapters::put))
        .routes(routes!(notes::create, notes::list))
        .routes(routes!(notes::patch, notes::delete))
        .routes(routes!(clicks::post))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::delete))
        .routes(routes!(dead_letters::retry))
        .routes(routes!(counts::counts))
        .routes(routes!(public::counter))
        .routes(routes!(public::badge))
        .routes(routes!(imports::import))
        .routes(routes!(runs::list, runs::create))
        .routes(routes!(runs::read))
        .routes(routes!(runs::cancel))
        .routes(routes!(snapshot::snapshot))
        .routes(routes!(events::follow))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::delete))
        .routes(routes!(sessions::create))
        .routes(routes!(sessions::read, sessions::delete))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// The whole service. What is done for every request stands around the router, once: a layer of the
/// router itself would be around each route, boxed and cloned for each request.
pub(crate) fn service(state: AppState) -> impl serve::Service {
    let (router, _) = documented().split_for_parts();
    let router: Router = router
        .merge(openapi::routes())
        .merge(pages::routes())
        .merge(problems::routes())
        .merge(beacon::routes(&state.beacon_path))
        .fallback(|| async { Problem::not_found() })
        // The router adds which methods there are.
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this address takes other methods")
        })
        .with_state(state.clone());
    let proxies = state.clone();
    ServiceBuilder::new()
        .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(span)
                .on_failure(()),
        )
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .map_request(move |request: Request<Body>| {
            let proxies = &proxies.proxies;
            proxies.look(request.extensions(), request.headers());
            request
        })
        .map_response(security::secured)
        .layer_fn(move |inner| Cors::new(state.clone(), inner))
        .layer(CatchPanicLayer::custom(panicked))
        .service(router)
}

/// The service of `PAGETIDE_METRICS_LISTEN`: nothing but the metrics, for anyone.
pub(crate) fn metrics_service(state: AppState) -> impl serve::Service {
    let router = Router::new()
        .route("/metrics", axum::routing::get(health::open_metrics))
        .with_state(state);
    ServiceBuilder::new()
        .map_response(security::secured)
        .service(router)
}

fn span<B>(request: &Request<B>) -> tracing::Span {
    let id = request.headers().get(&REQUEST_ID);
    let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
    // The path alone: a query may hold a credential.
    let path = request.uri().path();
    tracing::info_span!("request", id, method = %request.method(), path)
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that the layer wants"
)]
fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(
        panic = text.unwrap_or("of an unknown kind"),
        "a handler panicked"
    );
    Problem::new(
        Code::Internal,
        "the request failed; the server's log says more",
    )
    .into_response()
}

/// A response that no cache may keep.
fn no_store(mut response: Response) -> Response {
    let value = HeaderValue::from_static("no-store");
    let headers = response.headers_mut();
    headers.insert(axum::http::header::CACHE_CONTROL, value);
    response
}
