//! Requests with bodies that no JSON library would write.

use reqwest::Method;
use serde_json::Value;

use crate::harness::api::{Answer, Api};

/// Sends `body` as it is, under the content type `kind`, if any.
pub(crate) async fn send(
    api: &Api,
    (method, path): (Method, &str),
    kind: Option<&str>,
    body: impl Into<reqwest::Body>,
) -> Answer {
    let mut request = api.request(method, path).body(body);
    if let Some(kind) = kind {
        request = request.header("content-type", kind);
    }
    Answer::of(request).await
}

/// The `field`s of a problem's `errors`, in order.
pub(crate) fn fields(problem: &Value) -> Vec<String> {
    let errors = problem["errors"].as_array().unwrap();
    let field = |error: &Value| error["field"].as_str().unwrap_or_default().to_owned();
    errors.iter().map(field).collect()
}

/// What is left of an answer when all that differs from request to request is taken away.
pub(crate) fn substance(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let headers = answer.headers.iter();
    let mut headers: Vec<(String, String)> = headers
        .filter(|(name, _)| !["x-request-id", "date"].contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    headers.sort();
    (answer.status.as_u16(), headers, answer.text.clone())
}
