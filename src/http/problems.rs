//! `/problems/{code}`: a page for each kind of problem.

use axum::Router;
use axum::response::Response;
use axum::routing::get;

use super::extract::PathPart;
use super::problem::{Code, Problem};
use super::security;
use super::state::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/problems/{code}", get(page))
}

async fn page(PathPart(name): PathPart) -> Result<Response, Problem> {
    let known = Code::ALL.iter().find(|code| code.as_str() == name);
    let code = known.ok_or_else(Problem::not_found)?;
    // All of it is our own text, without markup.
    let (status, title, explanation) = (code.status(), code.title(), code.explanation());
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<p><code>{name}</code>, status {status}</p>\n<p>{explanation}</p>\n</html>\n"
    );
    Ok(security::page(html, security::NOTHING))
}
