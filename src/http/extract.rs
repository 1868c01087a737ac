//! What handlers take out of a request; whatever is wrong with it is a problem.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_path_to_error::Segment;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::body::Raw;
use super::cors;
use super::credentials;
use super::problem::{Code, Problem};
use super::state::AppState;
use crate::access::scope::{Caller, Judgement, Scope};
use crate::book::FieldError;
use crate::book::directory::Known;
use crate::time::Timestamp;

/// A JSON body: an object.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let bytes = json_bytes(request, state).await?;
        // By the grammar first: what is no JSON at all is another mistake than a wrong field.
        let raw: &RawValue = serde_json::from_slice(&bytes).map_err(|error| no_json(&error))?;
        // Serde would take a list of its fields for a struct.
        if raw.get().starts_with('[') {
            return Err(wrong_shape(
                None,
                "an object is wanted, not a list".to_owned(),
            ));
        }
        parsed(&bytes).map(Self)
    }
}

/// A JSON body: a list of objects.
pub(super) struct ListBody<T>(pub(super) Vec<T>);

impl<T: DeserializeOwned> FromRequest<AppState> for ListBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let bytes = json_bytes(request, state).await?;
        let raw: &RawValue = serde_json::from_slice(&bytes).map_err(|error| no_json(&error))?;
        // As above, for each of them.
        let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
        if let Some(index) = items.iter().position(|item| item.get().starts_with('[')) {
            return Err(Problem::with_errors(
                Code::Invalid,
                vec![FieldError {
                    index: Some(index),
                    field: None,
                    code: WRONG_SHAPE.to_owned(),
                    detail: "an object is wanted, not a list".to_owned(),
                }],
            ));
        }
        parsed(&bytes).map(Self)
    }
}

async fn json_bytes(request: Request, state: &AppState) -> Result<Bytes, Problem> {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let detail = "send `Content-Type: application/json`";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let Raw(bytes) = Raw::from_request(request, state).await?;
    Ok(bytes)
}

fn no_json(error: &serde_json::Error) -> Problem {
    Problem::new(Code::NotJson, format!("the body is no JSON: {error}"))
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().clone();
        wrong_shape(Some(&path), error.into_inner().to_string())
    })
}

/// The code of an error in a body that is JSON, but not of the kind that is wanted.
const WRONG_SHAPE: &str = "wrong_shape";

/// The field is named as the checks name it: `rollups.window`, with the place in the list apart.
fn wrong_shape(path: Option<&serde_path_to_error::Path>, detail: String) -> Problem {
    let mut index = None;
    let mut names: Vec<&str> = Vec::new();
    for segment in path.into_iter().flatten() {
        match segment {
            Segment::Seq { index: place } => index = index.or(Some(*place)),
            Segment::Map { key } => names.push(key),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let error = FieldError {
        index,
        field: (!names.is_empty()).then(|| names.join(".")),
        code: WRONG_SHAPE.to_owned(),
        detail,
    };
    Problem::with_errors(Code::Invalid, vec![error])
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
pub(super) struct PathPart(pub(super) String);

impl FromRequestParts<AppState> for PathPart {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let part = Path::<String>::from_request_parts(parts, state).await;
        part.map(|Path(part)| Self(part))
            .map_err(|_| Problem::not_found())
    }
}

/// Both parts of the path.
pub(super) struct PathPair(pub(super) String, pub(super) String);

impl FromRequestParts<AppState> for PathPair {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let pair = Path::<(String, String)>::from_request_parts(parts, state).await;
        pair.map(|Path((first, second))| Self(first, second))
            .map_err(|_| Problem::not_found())
    }
}

/// Who calls: the Bearer token of the request, else the session in its cookie.
pub(super) struct Auth(pub(super) Arc<Caller>);

impl FromRequestParts<AppState> for Auth {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let caller = match credentials::by_header(parts, state).await? {
            Some(caller) => Some(caller),
            None => credentials::by_cookie(parts, state).await?,
        };
        let caller = caller.ok_or_else(|| Problem::unauthorized(false))?;
        Self::admitted(state, caller)
    }
}

/// Who sends clicks: the Bearer token of the request, else the `key` in its address, whoever's
/// session the browser adds to it, else that session.
pub(super) struct Writer {
    pub(super) auth: Auth,
    /// The key stood in the address.
    pub(super) by_key: bool,
}

impl FromRequestParts<AppState> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        #[derive(Deserialize)]
        struct Key {
            key: Option<String>,
        }
        let query = Query::<Key>::from_request_parts(parts, state).await;
        let key = query.ok().and_then(|Query(query)| query.key);
        let key = key.filter(|_| !parts.headers.contains_key(AUTHORIZATION));
        let by_key = key.is_some();
        let auth = match key {
            Some(key) => Auth::by_key(state, &key).await?,
            None => Auth::from_request_parts(parts, state).await?,
        };
        Ok(Self { auth, by_key })
    }
}

impl Auth {
    /// The caller that a key in an address stands for. It is there for all to read, so one that
    /// gives more than to write and read is refused.
    async fn by_key(state: &AppState, key: &str) -> Result<Self, Problem> {
        let caller = state.tokens.caller(key, Timestamp::now()).await?;
        let more = [Scope::Manage, Scope::Admin];
        let caller = caller.filter(|caller| {
            let scopes = &caller.scopes;
            scopes.contains(&Scope::Write) && !more.iter().any(|scope| scopes.contains(scope))
        });
        let caller = caller.ok_or_else(|| Problem::unauthorized(true))?;
        Self::admitted(state, caller)
    }

    /// `caller`, if one more request of it is not too many. Every way in leads through here.
    pub(super) fn admitted(state: &AppState, caller: Arc<Caller>) -> Result<Self, Problem> {
        state.rates.take(&caller)?;
        Ok(Self(caller))
    }

    /// The book `name`, if the caller may do with it what needs `scope`. A book that the caller
    /// may not know of answers exactly as one that does not exist.
    pub(super) async fn book(
        &self,
        state: &AppState,
        name: &str,
        scope: Scope,
    ) -> Result<Arc<Known>, Problem> {
        let known = self.known(state, name).await?;
        let known = known.ok_or_else(Problem::not_found)?;
        match self.0.may(scope, known.book.id) {
            Judgement::Granted => {
                cors::shown(&known);
                Ok(known)
            }
            Judgement::Hidden => Err(Problem::not_found()),
            Judgement::Forbidden => {
                cors::shown(&known);
                Err(lacks(scope))
            }
        }
    }

    /// The book `name`, if the caller may know of it. Finding one that it may not know of takes as
    /// long as finding none.
    pub(super) async fn known(
        &self,
        state: &AppState,
        name: &str,
    ) -> Result<Option<Arc<Known>>, Problem> {
        let found = match self.0.sees() {
            None => state.directory.find(name).await?,
            Some(books) => state.directory.find_among(name, books).await?,
        };
        Ok(found)
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
