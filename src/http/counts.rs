//! `GET /v1/books/{book}/counts`: the windows of one rollup, as JSON or CSV.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use sqlx::PgPool;
use utoipa::IntoParams;

use super::extract::{Auth, Page, Paging, Params, PathPart, bad_cursor};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::book::directory::Known;
use crate::counts::{self, After, Count, Filter};
use crate::time::Timestamp;

/// How many rows of CSV are read at once.
const CSV_ROWS: i64 = 1000;

/// Which counts are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// Name of the rollup.
    rollup: String,
    /// Windows that overlap the time from here on: RFC 3339, or milliseconds since the epoch.
    from: Option<String>,
    /// Windows that overlap the time before this.
    to: Option<String>,
    /// This group alone.
    group: Option<String>,
    /// Most items, 1 to 1000. Default 100; CSV has no limit unless one is given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// `next_cursor` of the answer before.
    cursor: Option<String>,
}

/// Counts
///
/// The windows of a rollup, by start, end and group. With `Accept: text/csv` as CSV with a header
/// line.
#[utoipa::path(
    get, path = "/v1/books/{book}/counts", tag = "counts",
    params(("book" = String, Path, description = "Id or slug"), Query),
    responses(
        (status = 200, description = "A part of the counts", content(
            (Page<Count> = "application/json"),
            (String = "text/csv"),
        )),
        (status = 404, description = "No such book or rollup", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn counts(
    State(state): State<AppState>,
    auth: Auth,
    PathPart(name): PathPart,
    Params(query): Params<Query>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    // Read anew, for the state of a window hangs on the watermark.
    let book = crate::book::table::find(&state.pool, known.book.id).await?;
    let book = book.ok_or_else(Problem::not_found)?;
    let named = known
        .plan
        .rollups
        .iter()
        .position(|r| r.name == query.rollup);
    let place = named
        .and_then(|place| i16::try_from(place).ok())
        .ok_or_else(|| {
            let rollups: Vec<&str> = known.plan.rollups.iter().map(|r| &*r.name).collect();
            let detail = format!("the book has no such rollup; it has {}", rollups.join(", "));
            Problem::new(Code::NotFound, detail)
        })?;
    if query
        .group
        .as_ref()
        .is_some_and(|group| group.contains('\0'))
    {
        return Err(Problem::new(Code::BadQuery, "group: no group holds a NUL"));
    }
    let listing = Listing {
        pool: state.long_reads.clone(),
        known,
        book,
        place,
        filter: Filter {
            from: time("from", query.from.as_deref())?,
            to: time("to", query.to.as_deref())?,
            group: query.group,
        },
    };
    let after = query
        .cursor
        .as_deref()
        .map_or(Ok(After::nothing()), parse_cursor)?;
    if wants_csv(&headers) {
        let most = query
            .limit
            .map(|limit| Paging::limit(Some(limit)))
            .transpose()?;
        return Ok(listing.csv(after, most));
    }
    let limit = Paging::limit(query.limit)?;
    let items = listing.page(&after, limit + 1).await?;
    let page = Page::cut(items, limit, |count: &Count| cursor(&count.place()));
    Ok(([(VARY, "accept")], Json(page)).into_response())
}

struct Listing {
    pool: PgPool,
    known: Arc<Known>,
    book: crate::book::Book,
    place: i16,
    filter: Filter,
}

impl Listing {
    async fn page(&self, after: &After, limit: i64) -> Result<Vec<Count>, counts::CountsError> {
        let rollup = &self.known.plan.rollups[usize::try_from(self.place).unwrap_or(0)];
        counts::page(
            &self.pool,
            &self.book,
            (self.place, rollup),
            &self.filter,
            after,
            limit,
        )
        .await
    }

    /// All that is left, or at most `most`, page by page, so that no answer is held in memory.
    fn csv(self, after: After, most: Option<i64>) -> Response {
        struct Progress {
            listing: Listing,
            after: After,
            left: i64,
            begun: bool,
        }
        let progress = Progress {
            listing: self,
            after,
            left: most.unwrap_or(i64::MAX),
            begun: false,
        };
        let rows = stream::try_unfold(progress, |mut progress| async move {
            if progress.left == 0 {
                return Ok::<_, io::Error>(None);
            }
            let limit = progress.left.min(CSV_ROWS);
            let page = progress.listing.page(&progress.after, limit).await;
            let page = page.map_err(|error| {
                tracing::warn!(error = %crate::telemetry::chain(&error), "a CSV answer broke off");
                io::Error::other(error)
            })?;
            let full = i64::try_from(page.len()).is_ok_and(|n| n == limit);
            progress.left = if full { progress.left - limit } else { 0 };
            if let Some(last) = page.last() {
                progress.after = last.place();
            }
            let text = csv_rows(&page, !progress.begun)?;
            progress.begun = true;
            Ok(Some((text, progress)))
        });
        let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8"), (VARY, "accept")];
        (headers, Body::from_stream(rows)).into_response()
    }
}

fn csv_rows(counts: &[Count], header: bool) -> io::Result<Bytes> {
    let mut csv = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    if header {
        csv.write_record(["start", "end", "group", "value", "state"])?;
    }
    for count in counts {
        csv.serialize((
            &count.start,
            &count.end,
            &count.group,
            &count.value,
            count.state,
        ))?;
    }
    let bytes = csv.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(bytes.into())
}

fn wants_csv(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let first = accept
        .unwrap_or_default()
        .split(',')
        .next()
        .unwrap_or_default();
    first
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/csv"))
}

pub(super) fn time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    text.map(Timestamp::parse)
        .transpose()
        .map_err(|error| Problem::new(Code::BadQuery, format!("{name}: {error}")))
}

fn cursor(after: &After) -> String {
    let text = format!("{} {} {}", after.start_ms, after.end_ms, after.group);
    URL_SAFE_NO_PAD.encode(text)
}

fn parse_cursor(cursor: &str) -> Result<After, Problem> {
    let parse = || {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
        let mut parts = text.splitn(3, ' ');
        Some(After {
            start_ms: parts.next()?.parse().ok()?,
            end_ms: parts.next()?.parse().ok()?,
            group: parts.next().filter(|g| !g.contains('\0'))?.to_owned(),
        })
    };
    parse().ok_or_else(bad_cursor)
}
