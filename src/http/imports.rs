//! `POST /v1/books/{book}/imports`: a log as a body of any length.

use std::io::Write;
use std::pin::pin;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use clap::ValueEnum;
use flate2::write::MultiGzDecoder;
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::extract::{Auth, Params, PathPart};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::ingest::reading::Format;
use crate::run::{Run, State as RunState};
use crate::runs::RunError;
use crate::runs::import::ImportOptions;
use crate::source::access_log::Rules;
use crate::source::lines::Lines;

/// Pieces of a body that wait to be read.
const PIECES: usize = 4;

/// How much of a packed body is unpacked at a time: a thousand times as much may come out.
const UNPACKED_AT_ONCE: usize = 4096;

/// How long the rest of a body is read over that nobody wants any more.
const READ_OVER: Duration = Duration::from_secs(2);

/// Most bytes of the name of a source.
const MAX_SOURCE_BYTES: usize = 200;

/// How the log is to be read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// `combined`, `common`, `caddy` or `ndjson`.
    #[param(example = "combined")]
    format: String,
    /// Name of the source, to 200 bytes. The same line at the same place of the same source counts
    /// once, however often it is sent.
    #[serde(default)]
    source: String,
    /// Static assets count too.
    #[serde(default)]
    assets: bool,
    /// Bots count too.
    #[serde(default)]
    bots: bool,
    /// Whatever the status, it counts.
    #[serde(default)]
    errors: bool,
    /// Which methods count, separated by commas. Default GET.
    methods: Option<String>,
}

impl Query {
    fn options(self) -> Result<ImportOptions, Problem> {
        let bad = |detail: String| Problem::new(Code::BadQuery, detail);
        let format = Format::from_str(&self.format, false)
            .map_err(|_| bad("format: combined, common, caddy or ndjson".to_owned()))?;
        if self.source.len() > MAX_SOURCE_BYTES {
            return Err(bad(format!("source: at most {MAX_SOURCE_BYTES} bytes")));
        }
        if self.source.chars().any(char::is_control) {
            return Err(bad("source: no control characters".to_owned()));
        }
        let mut rules = Rules {
            errors: self.errors,
            assets: self.assets,
            bots: self.bots,
            ..Rules::default()
        };
        if let Some(methods) = self.methods {
            let methods = methods.split(',').map(|method| method.trim().to_owned());
            rules.methods = methods.filter(|method| !method.is_empty()).collect();
        }
        Ok(ImportOptions {
            format,
            rules,
            source: self.source,
        })
    }
}

/// Import a log
///
/// The body is the log, of any length and any content type, also packed (`Content-Encoding: gzip`). Its
/// lines become clicks of long ago, which are never too late. By default page views count: GET, status
/// 2xx or 304, no static assets, no bots. The answer comes when all is done; an import that was
/// interrupted ends as failed, and the same log, or a longer copy of it, sent again goes on. Readers are
/// told to begin anew (`resync_required`, `replaced`).
#[utoipa::path(
    post, path = "/v1/books/{book}/imports", tag = "runs", operation_id = "import",
    params(("book" = String, Path, description = "Id or slug"), Query),
    request_body(content = String, content_type = "text/plain"),
    responses(
        (status = 200, description = "All of it is in", body = Run),
        (status = 400, description = "The query or the body cannot be understood", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such book", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The book is closed, or another run of it is live", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "It ended before; send it again", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn import(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Params(query): Params<Query>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Run>, Problem> {
    let known = auth.book(&state, &name, Scope::Manage).await?;
    let unpacker = Unpacker::of(&headers)?;
    let import = state.runs.import(known, query.options()?).await?;
    let (pieces, received) = mpsc::channel(PIECES);
    // A task of its own: a client that goes away drops the request, and the import has to be ended.
    let running = import.run(Lines::of_pieces(received), |_| {});
    let mut running = state.tasks.spawn(running);
    let patience = state.receiving.patience();
    let mut pumping = pin!(pump(body.into_data_stream(), unpacker, pieces, patience));
    let run = tokio::select! {
        pumped = &mut pumping => {
            let run = running.await;
            pumped?;
            run
        }
        // It ended before its source. A client that is still sending gets to read the answer instead of
        // a broken connection.
        run = &mut running => {
            let _ = timeout(READ_OVER, pumping).await;
            run
        }
    };
    let run = run.map_err(|_| RunError::Panicked)??;
    match run.state {
        RunState::Done | RunState::Cancelled => Ok(Json(run)),
        RunState::Running | RunState::Failed => {
            let why = run.error.unwrap_or_default();
            Err(Problem::import_failed(&why))
        }
    }
}

/// Hands a body on piece by piece, as fast as it is read, and its end; without an end it broke off. What
/// nobody takes any more is read over.
async fn pump(
    mut body: BodyDataStream,
    mut unpacker: Unpacker,
    pieces: mpsc::Sender<Bytes>,
    patience: Duration,
) -> Result<(), Problem> {
    let broken = |why: String| Problem::new(Code::BrokenBody, why);
    loop {
        let next = timeout(patience, body.next()).await;
        let next = next.map_err(|_| Problem::new(Code::Timeout, "the body came too slowly"))?;
        let Some(chunk) = next else {
            if !pieces.is_closed() {
                unpacker.check_end().map_err(broken)?;
            }
            let _ = pieces.send(Bytes::new()).await;
            return Ok(());
        };
        let chunk = chunk.map_err(|error| broken(format!("the body broke off: {error}")))?;
        if pieces.is_closed() {
            continue;
        }
        for packed in unpacker.cut(&chunk) {
            let piece = unpacker.unpack(packed).map_err(broken)?;
            if !piece.is_empty() && pieces.send(piece).await.is_err() {
                break;
            }
        }
    }
}

/// What a body goes through.
enum Unpacker {
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl Unpacker {
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => Ok(Self::Plain),
            Some(b"gzip" | b"x-gzip") => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))),
            Some(_) => {
                let detail = "Content-Encoding: gzip is taken, or none";
                Err(Problem::new(Code::UnsupportedMediaType, detail))
            }
        }
    }

    /// A chunk in pieces that may be unpacked at once.
    fn cut(&self, chunk: &Bytes) -> Vec<Bytes> {
        match self {
            Self::Plain => vec![chunk.clone()],
            Self::Gzip(_) => {
                let pieces = chunk.chunks(UNPACKED_AT_ONCE);
                pieces.map(|piece| chunk.slice_ref(piece)).collect()
            }
        }
    }

    fn unpack(&mut self, piece: Bytes) -> Result<Bytes, String> {
        match self {
            Self::Plain => Ok(piece),
            Self::Gzip(decoder) => {
                let written = decoder.write_all(&piece).and_then(|()| decoder.flush());
                written.map_err(|error| format!("the body cannot be unpacked: {error}"))?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
        }
    }

    /// Whether what has come is whole.
    fn check_end(&mut self) -> Result<(), String> {
        match self {
            Self::Plain => Ok(()),
            Self::Gzip(decoder) => decoder
                .try_finish()
                .map_err(|error| format!("the packed body broke off: {error}")),
        }
    }
}
