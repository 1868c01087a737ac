//! Which credentials a request carries, and whose they are.
//!
//! A token in the `Authorization` header comes first, then the session in the cookie, then, on the
//! few addresses that an `EventSource` opens, the session in the address. Nothing of them is written
//! into logs or answers.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query};
use axum::http::HeaderValue;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use serde::Deserialize;

use super::extract::Auth;
use super::problem::{Code, Problem};
use super::same_origin;
use super::state::AppState;
use crate::access::scope::Caller;
use crate::time::Timestamp;

/// The name of the cookie that holds a session.
const COOKIE_NAME: &str = "pagetide_session";

/// Who calls by a token in the `Authorization` header; `None` without such a header.
pub(super) async fn by_header(
    parts: &Parts,
    state: &AppState,
) -> Result<Option<Arc<Caller>>, Problem> {
    let Some(header) = parts.headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let token = header.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        let bearer = scheme.eq_ignore_ascii_case("bearer");
        bearer.then(|| token.trim())
    });
    let token = token.ok_or_else(|| Problem::unauthorized(false))?;
    let caller = state.tokens.caller(token, Timestamp::now()).await?;
    caller.map(Some).ok_or_else(|| Problem::unauthorized(true))
}

/// Who calls by the session in the cookie; `None` without the cookie. A browser sends it whoever's
/// page makes the request, so what changes something must come from a page that may.
pub(super) async fn by_cookie(
    parts: &Parts,
    state: &AppState,
) -> Result<Option<Arc<Caller>>, Problem> {
    let Some(session) = in_cookies(parts) else {
        return Ok(None);
    };
    let caller = of_session(state, session).await?;
    if same_origin::may_use_cookie(parts, |origin| state.origins.contains(origin)) {
        Ok(Some(caller))
    } else {
        let detail =
            "the session in the cookie does not let pages of other origins change anything";
        Err(Problem::new(Code::Forbidden, detail))
    }
}

async fn of_session(state: &AppState, session: &str) -> Result<Arc<Caller>, Problem> {
    let caller = state.sessions.caller(session, Timestamp::now()).await?;
    caller.ok_or_else(|| Problem::unauthorized(true))
}

/// The session in the cookies of a request, which HTTP/2 may spread over several headers.
fn in_cookies(parts: &Parts) -> Option<&str> {
    let headers = parts.headers.get_all(COOKIE).iter();
    let mut cookies = headers.flat_map(|header| header.to_str().unwrap_or_default().split(';'));
    cookies.find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE_NAME).then(|| value.trim_matches('"'))
    })
}

/// The header that has a browser keep `session` for `seconds`. With an empty one and 0 seconds it
/// forgets it.
pub(super) fn cookie(session: &str, seconds: i64, over_tls: bool) -> Result<HeaderValue, Problem> {
    let secure = if over_tls { "; Secure" } else { "" };
    let text = format!(
        "{COOKIE_NAME}={session}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    );
    let mut header = HeaderValue::try_from(text).map_err(|error| Problem::internal(&error))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Who shows a token, and not a session of one.
pub(super) struct Bearer(pub(super) Arc<Caller>);

impl FromRequestParts<AppState> for Bearer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let caller = by_header(parts, state).await?;
        let caller = caller.ok_or_else(|| Problem::unauthorized(false))?;
        Auth::admitted(state, caller).map(|Auth(caller)| Self(caller))
    }
}

/// Who reads: as [`Auth`], or by the `session` in the address, for an `EventSource` sets no headers.
pub(super) struct Reader(pub(super) Auth);

impl FromRequestParts<AppState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        #[derive(Deserialize)]
        struct InAddress {
            session: Option<String>,
        }
        let auth = Auth::from_request_parts(parts, state).await;
        match auth {
            // A cookie that has expired must not stand before a session that was given on purpose.
            Err(problem)
                if problem.is(Code::Unauthorized) && !parts.headers.contains_key(AUTHORIZATION) =>
            {
                let query = Query::<InAddress>::from_request_parts(parts, state).await;
                let session = query.ok().and_then(|Query(query)| query.session);
                match session {
                    Some(session) => {
                        let caller = of_session(state, &session).await?;
                        Auth::admitted(state, caller).map(Self)
                    }
                    None => Err(problem),
                }
            }
            auth => auth.map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn found(headers: &[&str]) -> Option<String> {
        let request = Request::builder();
        let request = headers
            .iter()
            .fold(request, |request, text| request.header(COOKIE, *text));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        in_cookies(&parts).map(str::to_owned)
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        let session = Some("ps_x".to_owned());
        assert_eq!(found(&["pagetide_session=ps_x"]), session);
        assert_eq!(found(&["a=b; pagetide_session=ps_x; c=d"]), session);
        assert_eq!(found(&["a=b;pagetide_session=\"ps_x\""]), session);
        assert_eq!(found(&["a=b", "pagetide_session=ps_x"]), session);
        assert_eq!(
            found(&["pagetide_session=ps_x; pagetide_session=y"]),
            session
        );
        for none in [
            "",
            "a",
            "apagetide_session=ps_x",
            "PAGETIDE_SESSION=ps_x",
            "a=pagetide_session",
        ] {
            assert_eq!(found(&[none]), None, "{none}");
        }
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn the_cookie_is_for_this_site_alone_and_for_no_script() {
        let plain = cookie("ps_x", 60, false).unwrap();
        assert_eq!(
            plain,
            "pagetide_session=ps_x; Path=/; Max-Age=60; HttpOnly; SameSite=Lax"
        );
        let secure = cookie("", 0, true).unwrap();
        assert_eq!(
            secure,
            "pagetide_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure"
        );
    }
}
