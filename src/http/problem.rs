//! Problems: what went wrong, as RFC 9457 says it. The one place where errors become statuses.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::session::OpenError;
use crate::book::FieldError;
use crate::book::directory::LookupError;
use crate::book::table::InsertError;
use crate::counts::CountsError;
use crate::ingest::body::BodyError;
use crate::ingest::commit::Refusal;
use crate::ingest::lane::SubmitError;
use crate::ingest::retry::{self, Kind};
use crate::runs::RunError;
use crate::stream::cursor::BadQuery;
use crate::stream::hub::Unreadable;
use crate::stream::state::SnapshotError;
use crate::telemetry;

/// How long a client is asked to wait, in seconds, where waiting helps.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

macro_rules! codes {
    ($($variant:ident = $code:literal, $status:ident, $title:literal, $explanation:literal;)+) => {
        /// What can go wrong. Each has a page of its own below `/problems/`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Code { $($variant),+ }

        impl Code {
            pub(super) const ALL: &[Self] = &[$(Self::$variant),+];

            pub(super) fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            pub(super) fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            pub(super) fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// What a person can do about it.
            pub(super) fn explanation(self) -> &'static str {
                match self { $(Self::$variant => $explanation),+ }
            }
        }
    };
}

codes! {
    NotJson = "not_json", BAD_REQUEST, "The body is no JSON",
        "The body could not be read as JSON at all. The detail says where it breaks off.";
    BrokenBody = "broken_body", BAD_REQUEST, "The body broke off",
        "The log that was sent has no end, or cannot be unpacked. What had come before is in; send it again, and it goes on.";
    BadQuery = "bad_query", BAD_REQUEST, "The query cannot be understood",
        "A parameter is unknown or has a value of the wrong form. The detail names it.";
    BadCursor = "bad_cursor", BAD_REQUEST, "The cursor is no position",
        "A cursor in the query is a whole number from 0, without sign or leading zeros, or `earliest`.";
    BadHeader = "bad_header", BAD_REQUEST, "A header cannot be understood",
        "A request header has a value of the wrong form. The detail names it.";
    Unauthorized = "unauthorized", UNAUTHORIZED, "Credentials are missing or wrong",
        "Send a token as `Authorization: Bearer …`, or a session as the cookie `pagetide_session`. It may have expired or been revoked.";
    Forbidden = "forbidden", FORBIDDEN, "The token may not do this",
        "The token is valid but lacks the scope. Ask whoever manages the book for one that has it.";
    OriginNotAllowed = "origin_not_allowed", FORBIDDEN, "The page's origin is not listed",
        "The book lists the origins whose pages may send clicks with a key, and this one is not among them. Add it to the book's `origins`.";
    NotFound = "not_found", NOT_FOUND, "There is nothing here",
        "Nothing has this address, or the token may not know of it.";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The method does not fit",
        "The address exists but does not take this method. The `Allow` header lists those it takes.";
    BookClosed = "book_closed", CONFLICT, "The book is closed",
        "A closed book takes no clicks. Reopen it first.";
    SlugTaken = "slug_taken", CONFLICT, "The slug is taken",
        "Another book has this slug. Choose another, or use PUT on the slug to change that book.";
    RunLive = "run_live", CONFLICT, "Another run of the book is live",
        "A book has one import or recount at a time, and changing the rollups of a book with clicks is a recount. Wait until the one that is live has ended (`GET …/runs`), or cancel it.";
    PreconditionFailed = "precondition_failed", PRECONDITION_FAILED, "It has been changed meanwhile",
        "What `If-Match` or `If-None-Match` says is not so: somebody else has changed it. Read it again, and send the change with the new `ETag`.";
    Timeout = "timeout", REQUEST_TIMEOUT, "The request took too long to arrive",
        "A body has half a minute to arrive, and a second more for each 4 KiB. Nothing of it was counted; send it again, or less at once.";
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "The body is too large",
        "A body has at most 1 MiB, after decompression. Send the rest in another request.";
    TooManyClicks = "too_many_clicks", PAYLOAD_TOO_LARGE, "There are too many clicks",
        "A request holds at most 10,000 clicks. Send the rest in another request.";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The content type does not fit",
        "The detail says which `Content-Type` and `Content-Encoding` are taken here. curl's -d alone sends a form; add -H 'content-type: application/json'.";
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "The request does not make sense",
        "The body is JSON, but not of the right shape or out of bounds. `errors` lists what is wrong.";
    AllRejected = "all_rejected", UNPROCESSABLE_ENTITY, "No click could be accepted",
        "Every click of the request was rejected. `errors` says why, click by click.";
    Unanswerable = "unanswerable", UNPROCESSABLE_ENTITY, "The rollup has no answer to this",
        "The query makes sense, but not for this rollup, or it asks for too much at once. The detail says why.";
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "The token sends too many requests",
        "Each token may make so many requests a second. Send the request again after the time in `Retry-After`, and more clicks in one request.";
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something is wrong on our side",
        "The log of the server says more, under the request's id. Nothing of the request was acknowledged.";
    QueueFull = "queue_full", SERVICE_UNAVAILABLE, "The queue is full",
        "Clicks arrive faster than they can be committed. Send the request again after the time in `Retry-After`; nothing of it was counted.";
    SpoolFull = "spool_full", SERVICE_UNAVAILABLE, "The spool is full",
        "The database is out of reach, and as many clicks wait on disk as may. Send the request again after the time in `Retry-After`; nothing of it was counted.";
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "Too much is being received",
        "The bodies that are being received take up all the memory that is meant for them. Send the request again after the time in `Retry-After`; nothing of it was counted.";
    ImportFailed = "import_failed", SERVICE_UNAVAILABLE, "The import ended before its source",
        "The detail says why. What had come before is in; send the same log again, and it goes on.";
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "The database is out of reach",
        "Send the request again after the time in `Retry-After`. Clicks with an id or an Idempotency-Key count once, however often they are sent.";
}

/// What went wrong with a request.
#[derive(Debug)]
pub(crate) struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    extra: Extra,
}

/// The header that goes with some problems.
#[derive(Debug)]
enum Extra {
    None,
    RetryAfter,
    Challenge(&'static str),
}

/// RFC 9457 problem details.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody {
    #[serde(rename = "type")]
    #[schema(example = "/problems/not_found")]
    type_: String,
    title: String,
    status: u16,
    detail: String,
    code: String,
    /// What is wrong, where several things are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<FieldError>,
}

impl Problem {
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            extra: Extra::None,
        }
    }

    /// Several things are wrong.
    pub(super) fn with_errors(code: Code, errors: Vec<FieldError>) -> Self {
        let detail = match errors.first() {
            Some(error) if errors.len() == 1 => match &error.field {
                Some(field) => format!("{field}: {}", error.detail),
                None => error.detail.clone(),
            },
            _ => format!("{} things are wrong; see errors", errors.len()),
        };
        Self {
            errors,
            ..Self::new(code, detail)
        }
    }

    pub(super) fn not_found() -> Self {
        Self::new(Code::NotFound, "nothing has this address")
    }

    /// No or wrong credentials; RFC 6750, section 3, tells the two apart.
    pub(super) fn unauthorized(sent: bool) -> Self {
        let (detail, challenge) = if sent {
            (
                "the token or session is unknown, or has ended",
                "Bearer realm=\"pagetide\", error=\"invalid_token\"",
            )
        } else {
            (
                "send a token as `Authorization: Bearer …`, or a session",
                "Bearer realm=\"pagetide\"",
            )
        };
        let mut problem = Self::new(Code::Unauthorized, detail);
        problem.extra = Extra::Challenge(challenge);
        problem
    }

    /// One request too many of a token.
    pub(super) fn rate_limited() -> Self {
        let detail = "the token makes more requests a second than it may";
        Self::unavailable(Code::RateLimited, detail)
    }

    /// There is no room for a body.
    pub(super) fn overloaded() -> Self {
        let detail = "too many bodies are being received at once";
        Self::unavailable(Code::Overloaded, detail)
    }

    /// It is not the caller's turn, and was not for a while.
    pub(super) fn busy(why: &str) -> Self {
        Self::unavailable(Code::Unavailable, why)
    }

    /// An import ended before its source did.
    pub(super) fn import_failed(why: &str) -> Self {
        Self::unavailable(Code::ImportFailed, why)
    }

    /// A fault of ours. Its whole chain is logged here, once; the client learns none of it.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %telemetry::chain(error), "a request failed");
        Self::new(
            Code::Internal,
            "the request failed; the server's log says more",
        )
    }

    fn unavailable(code: Code, detail: &str) -> Self {
        let mut problem = Self::new(code, detail);
        problem.extra = Extra::RetryAfter;
        problem
    }

    /// A reading failed: nothing that a client did.
    fn database(error: &sqlx::Error) -> Self {
        if retry::kind_of_database_error(error) == Kind::Permanent {
            return Self::internal(error);
        }
        tracing::warn!(error = %telemetry::chain(error), "the database could not be read");
        Self::unavailable(
            Code::Unavailable,
            "the database could not be read; try again",
        )
    }

    pub(super) fn is(&self, code: Code) -> bool {
        self.code == code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            type_: format!("/problems/{}", self.code.as_str()),
            title: self.code.title().to_owned(),
            status: self.code.status().as_u16(),
            detail: self.detail,
            code: self.code.as_str().to_owned(),
            errors: self.errors,
        };
        let mut response = (self.code.status(), Json(body)).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, kind);
        match self.extra {
            Extra::None => None,
            Extra::RetryAfter => headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS),
            Extra::Challenge(text) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(text))
            }
        };
        response
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Self::database(&error)
    }
}

impl From<LookupError> for Problem {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::Database(error) => Self::database(&error),
            LookupError::Plan(_) => Self::internal(&error),
        }
    }
}

impl From<InsertError> for Problem {
    fn from(error: InsertError) -> Self {
        match error {
            InsertError::SlugTaken => Self::new(Code::SlugTaken, error.to_string()),
            InsertError::Database(error) => Self::database(&error),
        }
    }
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::TokenEnded => Self::unauthorized(true),
            OpenError::Database(error) => Self::database(&error),
        }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        let detail = error.to_string();
        match error {
            SubmitError::QueueFull => Self::unavailable(Code::QueueFull, &detail),
            SubmitError::SpoolFull => Self::unavailable(Code::SpoolFull, &detail),
            SubmitError::Busy | SubmitError::Unavailable => {
                Self::unavailable(Code::Unavailable, &detail)
            }
            SubmitError::Refused(
                Refusal::NoSuchBook | Refusal::NoSuchNote | Refusal::NoSuchRun,
            ) => Self::not_found(),
            SubmitError::Refused(Refusal::Closed) => Self::new(Code::BookClosed, detail),
            SubmitError::Refused(Refusal::RunLive) => Self::new(Code::RunLive, detail),
            SubmitError::Refused(Refusal::OtherVersion(_)) => {
                Self::new(Code::PreconditionFailed, detail)
            }
            SubmitError::Refused(Refusal::Invalid(errors)) => {
                Self::with_errors(Code::Invalid, errors)
            }
            SubmitError::Failed
            | SubmitError::LostLease
            | SubmitError::Refused(Refusal::NotYet) => Self::internal(&error),
        }
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Submit(error) => error.into(),
            RunError::Database(error) => Self::database(&error),
            RunError::Gone => Self::not_found(),
            RunError::Panicked => Self::internal(&error),
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::NotJson(_) => Code::NotJson,
            BodyError::TooMany => Code::TooManyClicks,
        };
        Self::new(code, error.to_string())
    }
}

impl From<BadQuery> for Problem {
    fn from(error: BadQuery) -> Self {
        Self::new(Code::BadCursor, error.to_string())
    }
}

impl From<Unreadable> for Problem {
    fn from(error: Unreadable) -> Self {
        Self::unavailable(Code::Unavailable, &error.to_string())
    }
}

impl From<SnapshotError> for Problem {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Database(error) => Self::database(&error),
            _ => Self::internal(&error),
        }
    }
}

impl From<CountsError> for Problem {
    fn from(error: CountsError) -> Self {
        match error {
            CountsError::Database(error) => Self::database(&error),
            CountsError::State(_) | CountsError::Plan(_) => Self::internal(&error),
            CountsError::NoBook => Self::not_found(),
            CountsError::NoRollup(_) => Self::new(Code::NotFound, error.to_string()),
            CountsError::Unanswerable(why) => Self::new(Code::Unanswerable, why.to_string()),
        }
    }
}
