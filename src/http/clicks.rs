//! `POST /v1/books/{book}/clicks`: where clicks come in.

use std::convert::Infallible;
use std::io::Read;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::read::MultiGzDecoder;
use utoipa::ToSchema;

use super::MAX_BODY_BYTES;
use super::body::Raw;
use super::extract::{PathPart, Writer};
use super::problem::{Code, Problem, ProblemBody};
use super::receipt::{ReceiptBody, Sent, SpooledBody};
use super::state::AppState;
use super::visit::{Judged, Visit};
use crate::access::scope::Scope;
use crate::book::directory::Known;
use crate::ingest::admission::{self, Circumstances};
use crate::ingest::body::Form;
use crate::ingest::commit::Batch;
use crate::ingest::lane::SubmitError;
use crate::ingest::tier::Taken;
use crate::telemetry;
use crate::time::Timestamp;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One click.
#[derive(ToSchema)]
#[schema(as = Click)]
#[allow(dead_code, reason = "describes what `admission` reads")]
pub(super) struct ClickDoc {
    /// What was read: a path, an absolute URL, or a name. 1 to 2048 bytes.
    #[schema(example = "/ch01.html")]
    page: String,
    /// Any string of 1 to 200 bytes; clicks with the same id count once.
    #[schema(required = false)]
    id: Option<String>,
    /// When: RFC 3339, or milliseconds since the epoch. Time of receipt if absent.
    #[schema(required = false, value_type = Option<String>)]
    at: Option<Timestamp>,
    /// Or how long before its receipt, in milliseconds, 0 to 7 days.
    #[schema(required = false, minimum = 0, maximum = 604_800_000)]
    age_ms: Option<i64>,
    /// Who read, to 200 bytes.
    #[schema(required = false)]
    visitor: Option<String>,
    /// Where from, to 2048 bytes.
    #[schema(required = false)]
    referrer: Option<String>,
    /// To 200 bytes.
    #[schema(required = false)]
    source: Option<String>,
    /// A decimal of at most 6 fraction digits.
    #[schema(required = false)]
    value: Option<f64>,
}

/// One click, or an array of them.
#[derive(ToSchema)]
#[schema(as = Clicks)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what `admission` reads")]
pub(super) enum ClicksDoc {
    /// One.
    One(ClickDoc),
    /// At most 10,000.
    Many(Vec<ClickDoc>),
}

/// Post clicks
///
/// A 200 means: committed in Postgres, clicks, counts, position and frame in one transaction. Sent
/// again, in whole or part, by whomever and however concurrently, a click with an id counts once.
/// The body may be gzipped, and has at most 1 MiB and 10,000 clicks.
#[utoipa::path(
    post, path = "/v1/books/{book}/clicks", tag = "clicks",
    params(
        ("book" = String, Path, description = "Id or slug"),
        ("key" = Option<String>, Query, description = "A token with the scope `write`, for pages that cannot set headers; clicks sent so take `age_ms` alone, never `at`, get a visitor for the day where they name none, and those of bots and of ignored networks are left out"),
        ("idempotency-key" = Option<String>, Header, description = "Gives clicks without an id theirs"),
    ),
    request_body(
        content(
            (ClicksDoc = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/plain"),
        ),
        description = "One click, an array of them, or one a line (application/x-ndjson); text/plain holds JSON, as sendBeacon sends it",
    ),
    responses(
        (status = 200, description = "Committed", body = ReceiptBody),
        (status = 202, description = "The database is out of reach; the clicks are safe on disk, and are counted once it is back", body = SpooledBody),
        (status = 400, description = "No JSON at all", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "The token may not write, or the book does not list the page's origin", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The book is closed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Another content type", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "All rejected", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Send it again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn post(
    State(state): State<AppState>,
    writer: Writer,
    PathPart(name): PathPart,
    visit: Option<Visit>,
    headers: Headers,
    Raw(body): Raw,
) -> Result<Response, Problem> {
    let _in_hand = state.lanes.hold(&name);
    let received_at = Timestamp::now();
    let Writer { auth, by_key } = writer;
    let known = auth.book(&state, &name, Scope::Write).await?;
    let book = known.book.id;
    let judged = match visit.filter(|_| by_key) {
        Some(visit) => Some(visit.judge(&state, &known, received_at).await?),
        None => None,
    };
    let left_out = judged.as_ref().and_then(|judged| judged.leave_out);
    let posted = Posted {
        headers,
        body,
        known,
        received_at,
        judged,
    };
    let (batch, sent) = if posted.is_large() {
        state.aside.run(move || posted.read()).await??
    } else {
        posted.read()?
    };
    let filtered = batch.filtered;
    match state.tier.submit(book, batch).await {
        // They count in the totals; where that cannot be done, the answer is the same.
        Ok(_) | Err(SubmitError::QueueFull | SubmitError::Busy | SubmitError::Unavailable)
            if sent.nothing_good() =>
        {
            Err(sent.all_rejected())
        }
        Err(SubmitError::Busy | SubmitError::Unavailable) if sent.nothing_to_commit() => {
            Ok((StatusCode::ACCEPTED, Json(sent.spooled())).into_response())
        }
        Ok(taken) => {
            if let Some(reason) = left_out {
                telemetry::filtered(reason, filtered as u64);
            }
            Ok(match taken {
                Taken::Committed(receipt) => Json(sent.committed(receipt)?).into_response(),
                Taken::Spooled => (StatusCode::ACCEPTED, Json(sent.spooled())).into_response(),
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// Most bytes of a body that is read where it arrives.
const SMALL_BYTES: usize = 32 * 1024;

/// The headers that say how a body is to be read. They share the bytes of the request's head; a copy
/// of all of them would cost as much as reading the click.
pub(super) struct Headers {
    content_type: Option<HeaderValue>,
    content_encoding: Option<HeaderValue>,
    idempotency_key: Option<HeaderValue>,
}

impl FromRequestParts<AppState> for Headers {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &AppState) -> Result<Self, Infallible> {
        let header = |name: HeaderName| parts.headers.get(name).cloned();
        Ok(Self {
            content_type: header(CONTENT_TYPE),
            content_encoding: header(CONTENT_ENCODING),
            idempotency_key: header(IDEMPOTENCY_KEY),
        })
    }
}

/// What was sent, and what is needed to read it.
struct Posted {
    headers: Headers,
    body: Bytes,
    known: Arc<Known>,
    received_at: Timestamp,
    /// Where it came with a key.
    judged: Option<Judged>,
}

impl Posted {
    /// How large a compressed one is, is not known before.
    fn is_large(&self) -> bool {
        self.body.len() > SMALL_BYTES || self.headers.content_encoding.is_some()
    }

    /// Its clicks. The body ends here: the queue bounds what waits in it by the size of clicks, and
    /// knows nothing of the bytes they came in.
    fn read(self) -> Result<(Arc<Batch>, Sent), Problem> {
        let form = form_of(&self.headers)?;
        let unpacked = unpacked(&self.headers, &self.body)?;
        let judged = self.judged.as_ref();
        let admitted = admission::admit(
            form,
            unpacked.as_deref().unwrap_or(&self.body),
            Circumstances {
                book: &self.known,
                received_at: self.received_at,
                idempotency_key: idempotency_key(&self.headers)?,
                by_key: self.judged.is_some(),
                visitor: judged.and_then(|judged| judged.visitor.as_deref()),
                leave_out: judged.and_then(|judged| judged.leave_out),
            },
        )?;
        Ok(Sent::of(admitted))
    }
}

fn form_of(headers: &Headers) -> Result<Form, Problem> {
    let sent = headers.content_type.as_ref();
    let sent = sent.and_then(|v| v.to_str().ok());
    let essence = sent
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    match essence.trim().to_ascii_lowercase().as_str() {
        "application/json" | "text/plain" => Ok(Form::Json),
        "application/x-ndjson" => Ok(Form::Ndjson),
        _ => Err(Problem::new(
            Code::UnsupportedMediaType,
            "send `Content-Type: application/json`, or application/x-ndjson for one click a line",
        )),
    }
}

/// The body without its compression; `None` if it has none.
fn unpacked(headers: &Headers, body: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
    let encoding = headers.content_encoding.as_ref();
    let encoding = encoding.map(HeaderValue::as_bytes);
    match encoding.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"identity") => return Ok(None),
        Some(b"gzip") => {}
        Some(_) => {
            let detail = "the only `Content-Encoding` that is taken is gzip";
            return Err(Problem::new(Code::UnsupportedMediaType, detail));
        }
    }
    let mut plain = Vec::with_capacity(body.len() * 4);
    let mut limited = MultiGzDecoder::new(body).take(MAX_BODY_BYTES as u64 + 1);
    limited
        .read_to_end(&mut plain)
        .map_err(|error| Problem::new(Code::NotJson, format!("the body is no gzip: {error}")))?;
    if plain.len() > MAX_BODY_BYTES {
        let detail = "the body has more than 1 MiB once it is decompressed";
        return Err(Problem::new(Code::TooLarge, detail));
    }
    Ok(Some(plain))
}

fn idempotency_key(headers: &Headers) -> Result<Option<&str>, Problem> {
    let Some(key) = &headers.idempotency_key else {
        return Ok(None);
    };
    let key = key.to_str().ok().filter(|k| (1..=200).contains(&k.len()));
    let detail = "Idempotency-Key: 1 to 200 visible ASCII characters";
    key.map(Some)
        .ok_or_else(|| Problem::new(Code::BadHeader, detail))
}
