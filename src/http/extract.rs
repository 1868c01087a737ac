//! What handlers take out of a request; whatever is wrong with it is a problem.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::problem::{Code, Problem};
use super::state::AppState;
use crate::access::scope::{Caller, Judgement, Scope};
use crate::book::FieldError;
use crate::book::directory::Known;
use crate::time::Timestamp;

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(JsonRejection::JsonDataError(error)) => {
                let detail = error.body_text();
                let detail = detail
                    .rsplit_once("target type: ")
                    .map_or(&*detail, |(_, d)| d);
                Err(Problem::with_errors(
                    Code::Invalid,
                    vec![FieldError {
                        index: None,
                        field: None,
                        code: "wrong_shape".to_owned(),
                        detail: detail.to_owned(),
                    }],
                ))
            }
            Err(JsonRejection::JsonSyntaxError(error)) => {
                Err(Problem::new(Code::NotJson, error.body_text()))
            }
            Err(JsonRejection::MissingJsonContentType(_)) => Err(Problem::new(
                Code::UnsupportedMediaType,
                "send `Content-Type: application/json`",
            )),
            Err(JsonRejection::BytesRejection(error)) => Err(unread(&error)),
            Err(other) => Err(Problem::new(Code::NotJson, other.body_text())),
        }
    }
}

/// A body that could not be read to its end.
pub(super) fn unread(error: &BytesRejection) -> Problem {
    let code = if error.status() == Code::TooLarge.status() {
        Code::TooLarge
    } else {
        Code::NotJson
    };
    Problem::new(code, error.body_text())
}

/// The bytes of a body.
pub(super) struct Raw(pub(super) Bytes);

impl FromRequest<AppState> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        Bytes::from_request(request, state)
            .await
            .map(Self)
            .map_err(|error| unread(&error))
    }
}

/// The parameters of a query.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => {
                let detail = error.body_text();
                let detail = detail
                    .rsplit_once("query string: ")
                    .map_or(&*detail, |(_, d)| d);
                Err(Problem::new(Code::BadQuery, detail))
            }
        }
    }
}

/// A part of the path.
pub(super) struct Segment(pub(super) String);

impl FromRequestParts<AppState> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let segment = Path::<String>::from_request_parts(parts, state).await;
        segment
            .map(|Path(segment)| Self(segment))
            .map_err(|_| Problem::not_found())
    }
}

/// Who calls: the Bearer token of the request.
pub(super) struct Auth(pub(super) Arc<Caller>);

impl FromRequestParts<AppState> for Auth {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let header = parts.headers.get(AUTHORIZATION);
        let header = header.ok_or_else(|| Problem::unauthorized(false))?;
        let token = header.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            let bearer = scheme.eq_ignore_ascii_case("bearer");
            bearer.then(|| token.trim())
        });
        let token = token.ok_or_else(|| Problem::unauthorized(false))?;
        let caller = state.tokens.caller(token, Timestamp::now()).await?;
        caller.map(Self).ok_or_else(|| Problem::unauthorized(true))
    }
}

impl Auth {
    /// The book `name`, if the caller may do with it what needs `scope`. A book that the caller
    /// may not know of answers exactly as one that does not exist.
    pub(super) async fn book(
        &self,
        state: &AppState,
        name: &str,
        scope: Scope,
    ) -> Result<Arc<Known>, Problem> {
        let found = state.directory.find(name).await?;
        let known = found.ok_or_else(Problem::not_found)?;
        match self.0.may(scope, known.book.id) {
            Judgement::Granted => Ok(known),
            Judgement::Hidden => Err(Problem::not_found()),
            Judgement::Forbidden => Err(lacks(scope)),
        }
    }

    /// Whether the caller may do everything.
    pub(super) fn require_admin(&self) -> Result<(), Problem> {
        if self.0.is_admin() {
            Ok(())
        } else {
            Err(lacks(Scope::Admin))
        }
    }
}

fn lacks(scope: Scope) -> Problem {
    let detail = format!("the token lacks the scope `{}`", scope.as_str());
    Problem::new(Code::Forbidden, detail)
}

/// Which part of a list is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// Most items, 1 to 1000. Default 100.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<i64>,
    /// `next_cursor` of the answer before.
    pub(super) cursor: Option<String>,
}

impl Paging {
    /// Most items.
    pub(super) fn limit(limit: Option<i64>) -> Result<i64, Problem> {
        let limit = limit.unwrap_or(100);
        if (1..=1000).contains(&limit) {
            Ok(limit)
        } else {
            Err(Problem::new(Code::BadQuery, "limit: from 1 to 1000"))
        }
    }

    /// The id after which a list of things with ids goes on.
    pub(super) fn after_id(&self) -> Result<Uuid, Problem> {
        match &self.cursor {
            None => Ok(Uuid::nil()),
            Some(cursor) => Uuid::try_parse(cursor).map_err(|_| bad_cursor()),
        }
    }
}

pub(super) fn bad_cursor() -> Problem {
    let detail = "cursor: the `next_cursor` of an answer before";
    Problem::new(Code::BadQuery, detail)
}

/// A part of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page<T> {
    /// The items.
    pub(super) items: Vec<T>,
    /// Where the next part begins; null at the end.
    pub(super) next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A part of a list, read with room for one item more than `limit` to see whether it ends.
    pub(super) fn cut(mut items: Vec<T>, limit: i64, cursor: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(cursor);
        Self { items, next_cursor }
    }
}
