//! What every answer says to browsers for safety's sake, and what pages say besides.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Response};
use axum::response::{Html, IntoResponse};

use crate::origin::Origins;

pub(super) const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// What a page without scripts and styles may do.
pub(super) const NOTHING: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An answer is what it says it is, and what may hang on credentials is kept nowhere, unless its
/// handler says otherwise.
pub(super) fn secured<B>(mut response: Response<B>) -> Response<B> {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// A page that may do what `policy` says (its `Content-Security-Policy`), stands in no frame, and
/// does not tell where its readers go from it.
pub(super) fn page(html: String, policy: &str) -> axum::response::Response {
    let headers = [
        (CONTENT_SECURITY_POLICY, policy),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
    ];
    (headers, Html(html)).into_response()
}

/// Leaves it to `page`'s policy whose frames it may stand in.
pub(super) fn by_policy_alone(page: &mut axum::response::Response) {
    page.headers_mut().remove(X_FRAME_OPTIONS);
}

/// Lets pages of `ancestors` show `page` in a frame, if there are any.
pub(super) fn allow_frames(page: &mut axum::response::Response, ancestors: &Origins) {
    if ancestors.is_empty() {
        return;
    }
    let headers = page.headers_mut();
    let policy = headers.get(CONTENT_SECURITY_POLICY);
    let policy = policy.and_then(|policy| policy.to_str().ok());
    let listed = format!("frame-ancestors {ancestors}");
    let policy = policy.map(|policy| policy.replace("frame-ancestors 'none'", &listed));
    let Some(Ok(policy)) = policy.map(HeaderValue::try_from) else {
        return;
    };
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    // The older header knows no list of origins; browsers go by the policy.
    by_policy_alone(page);
}
