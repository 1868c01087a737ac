//! `POST /v1/books/{book}/clicks`: where clicks come in.

use std::io::Read;

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use flate2::read::MultiGzDecoder;
use serde::Serialize;
use utoipa::ToSchema;

use super::MAX_BODY_BYTES;
use super::extract::{Auth, PathPart, Raw};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::book::FieldError;
use crate::engine::Status;
use crate::ingest::admission::{self, Admitted, Circumstances, Form, Rejection};
use crate::ingest::commit::{Fate, Missed, Receipt};
use crate::ingest::lane::{SubmitError, Work};
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

/// What became of the clicks. The counts add up to `received`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClicksReceipt)]
pub(super) struct ReceiptBody {
    received: usize,
    on_time: usize,
    late: usize,
    dropped: usize,
    duplicates: usize,
    filtered: usize,
    rejected: usize,
    /// The newest position of the book.
    position: i64,
    revision: i64,
    #[schema(value_type = Option<String>, format = DateTime)]
    watermark: Option<Timestamp>,
    /// Whatever is not plainly on time, by index.
    exceptions: Vec<Exception>,
}

/// A click that is not plainly on time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClickException)]
pub(super) struct Exception {
    /// Its place in the request.
    index: usize,
    id: Option<String>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// With `partly_too_late`: the windows that it was not counted in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    windows: Vec<MissedBody>,
}

/// A window that a click came too late for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MissedWindow)]
pub(super) struct MissedBody {
    rollup: String,
    #[schema(value_type = String, format = DateTime)]
    start: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    end: Timestamp,
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
        (status = 400, description = "No JSON at all", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The book is closed", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Another content type", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "All rejected", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Send it again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn post(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Json<ReceiptBody>, Problem> {
    let _in_hand = state.lanes.hold(&name);
    let received_at = Timestamp::now();
    let known = auth.book(&state, &name, Scope::Write).await?;
    let form = form_of(&headers)?;
    let unpacked = unpacked(&headers, &body)?;
    let admitted = admission::admit(
        form,
        unpacked.as_deref().unwrap_or(&body),
        Circumstances {
            book: &known,
            received_at,
            idempotency_key: idempotency_key(&headers)?,
        },
    )?;
    let Admitted {
        batch,
        places,
        rejections,
    } = admitted;
    let nothing_good = batch.clicks.is_empty() && !rejections.is_empty();
    let ids: Vec<String> = batch.clicks.iter().map(|c| c.id.shown()).collect();
    let submitted = state.lanes.submit(known.book.id, Work::Clicks(batch)).await;
    match submitted {
        // They count in the totals; where that cannot be done, the answer is the same.
        Ok(_) | Err(SubmitError::QueueFull | SubmitError::Unavailable) if nothing_good => {
            let errors = rejections.into_iter().map(FieldError::from).collect();
            Err(Problem::with_errors(Code::AllRejected, errors))
        }
        Ok(receipt) => Ok(Json(answer(receipt, &places, ids, rejections))),
        Err(error) => Err(error.into()),
    }
}

fn form_of(headers: &HeaderMap) -> Result<Form, Problem> {
    let sent = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
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
fn unpacked(headers: &HeaderMap, body: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
    let encoding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
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

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(&IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let key = key.to_str().ok().filter(|k| (1..=200).contains(&k.len()));
    let detail = "Idempotency-Key: 1 to 200 visible ASCII characters";
    key.map(Some)
        .ok_or_else(|| Problem::new(Code::BadHeader, detail))
}

fn answer(
    receipt: Receipt,
    places: &[usize],
    ids: Vec<String>,
    rejections: Vec<Rejection>,
) -> ReceiptBody {
    let mut body = ReceiptBody {
        received: places.len() + rejections.len(),
        on_time: 0,
        late: 0,
        dropped: 0,
        duplicates: 0,
        filtered: 0,
        rejected: rejections.len(),
        position: receipt.position,
        revision: receipt.revision,
        watermark: receipt.watermark.shown(),
        exceptions: rejections.into_iter().map(Exception::from).collect(),
    };
    for ((fate, index), id) in receipt.fates.into_iter().zip(places).zip(ids) {
        let (status, reason, windows) = match fate {
            Fate::Judged { status, missed } => {
                let reason = match (status, missed.is_empty()) {
                    (Status::Dropped, _) => Some("too_late"),
                    (_, false) => Some("partly_too_late"),
                    (_, true) => None,
                };
                let word = match status {
                    Status::OnTime => {
                        body.on_time += 1;
                        if reason.is_none() {
                            continue;
                        }
                        "on_time"
                    }
                    Status::Late => {
                        body.late += 1;
                        "late"
                    }
                    Status::Dropped => {
                        body.dropped += 1;
                        "dropped"
                    }
                };
                (word, reason, missed)
            }
            Fate::Duplicate { differs } => {
                body.duplicates += 1;
                ("duplicate", differs.then_some("differs"), Vec::new())
            }
        };
        body.exceptions.push(Exception {
            index: *index,
            id: Some(id),
            status,
            reason,
            detail: None,
            windows: windows.into_iter().map(MissedBody::from).collect(),
        });
    }
    body.exceptions.sort_by_key(|exception| exception.index);
    body
}

impl From<Rejection> for Exception {
    fn from(rejection: Rejection) -> Self {
        Self {
            index: rejection.index,
            id: rejection.id,
            status: "rejected",
            reason: Some(rejection.reason),
            detail: Some(rejection.detail),
            windows: Vec::new(),
        }
    }
}

impl From<Rejection> for FieldError {
    fn from(rejection: Rejection) -> Self {
        Self {
            index: Some(rejection.index),
            field: None,
            code: rejection.reason.to_owned(),
            detail: rejection.detail,
        }
    }
}

impl From<Missed> for MissedBody {
    fn from(missed: Missed) -> Self {
        Self {
            rollup: missed.rollup,
            start: missed.start,
            end: missed.end,
        }
    }
}
