//! `GET /v1/books/{book}/counts`: the windows of one rollup, as JSON or CSV.

use std::io;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use utoipa::IntoParams;
use uuid::Uuid;

use super::credentials::Reader;
use super::extract::{Page, Paging, Params, PathPart, bad_cursor};
use super::problem::{Code, Problem, ProblemBody};
use super::state::AppState;
use crate::access::scope::Scope;
use crate::calendar::{Interval, Zone};
use crate::counts::{self, Amount, Count, CountsError, Filter, Groups, Listed, Part, Place, View};
use crate::time::Timestamp;

/// How many rows of CSV are read at once, or more where they come out together.
const CSV_ROWS: usize = 1000;

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
    /// So many of the newest windows; with `interval`, of the newest hours, days, weeks or months
    /// that are not empty.
    #[param(minimum = 1, maximum = 1000)]
    last: Option<i64>,
    /// So many of the greatest groups of each window, the greatest first, in the order of their
    /// names where they are equally great.
    #[param(minimum = 1, maximum = 1000)]
    top: Option<i64>,
    /// All windows are combined, group by group, and shown as one from the start of the first to
    /// the end of the last; its state is that of the least advanced. Not where windows overlap, so
    /// that a click would count more than once: sliding ones of count, sum and top.
    merge: Option<bool>,
    /// Windows are combined into the hours, days, weeks (from Monday) or months of the local
    /// calendar of `tz`. For rollups of tumbling windows none of which would lie in two of them.
    #[param(inline)]
    interval: Option<Interval>,
    /// The time zone of `interval`, by its name in the tz database. Default UTC.
    #[param(example = "Europe/Berlin")]
    tz: Option<String>,
    /// `total`: all groups of a window, or of what windows were combined into, are added into one,
    /// `""`; its value is the sum of theirs, the least or greatest, the earliest or latest click's, or
    /// how many different ones there are in all of them, as the aggregate goes. Default `all`.
    #[param(inline)]
    groups: Option<Groups>,
    /// Most items, 1 to 1000. Default 100; CSV has no limit unless one is given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// `next_cursor` of the answer before, for the same query.
    cursor: Option<String>,
    /// A session, where no header can be set.
    #[serde(rename = "session")]
    #[param(rename = "session")]
    _session: Option<String>,
}

/// Counts
///
/// The windows of a rollup, by start, end and group, or what was made of them: `from`, `to` and
/// `group` choose windows, then `last`; then `merge` or `interval` combines them, and `groups=total`
/// their groups; or `top` leaves the greatest groups. With `Accept: text/csv` as CSV with a header line.
#[utoipa::path(
    get, path = "/v1/books/{book}/counts", tag = "counts",
    params(("book" = String, Path, description = "Id or slug"), Query),
    responses(
        (status = 200, description = "A part of the counts", content(
            (Page<Count> = "application/json"),
            (String = "text/csv"),
        )),
        (status = 400, description = "The query cannot be understood", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "No such book or rollup", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The rollup has no answer to the query", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn counts(
    State(state): State<AppState>,
    Reader(auth): Reader,
    PathPart(name): PathPart,
    Params(query): Params<Query>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = auth.book(&state, &name, Scope::Read).await?;
    let shape = query.shape();
    let cursor = query.cursor.as_deref();
    let after = cursor.map(|text| Cursor::parse(text, &shape)).transpose()?;
    let limit = query.limit;
    let listing = Listing {
        pool: state.long_reads.clone(),
        book: known.book.id,
        query: query.checked()?,
    };
    if wants_csv(&headers) {
        let most = limit.map(|limit| at_most(Some(limit))).transpose()?;
        return listing.csv(after, most).await;
    }
    let amount = Amount::Exactly(at_most(limit)?);
    let part = listing.read(after.as_ref(), amount).await?;
    let last = part.items.last().filter(|_| part.more);
    let page = Page {
        next_cursor: last.map(|item| Cursor::text(&shape, &item.place)),
        items: part.items.into_iter().map(|item| item.count).collect(),
    };
    Ok(([(VARY, "accept")], Json(page)).into_response())
}

fn at_most(limit: Option<i64>) -> Result<usize, Problem> {
    Paging::limit(limit).map(|limit| usize::try_from(limit).unwrap_or(0))
}

impl Query {
    /// Everything that is asked for but how much of it. A cursor is good for the query that gave
    /// it, and carries this shortened, for a group may be long.
    fn shape(&self) -> String {
        let (interval, tz) = (self.interval.map(Interval::as_str), self.tz.as_deref());
        let merge = self.merge.unwrap_or(false);
        let windows = (&self.rollup, &self.from, &self.to, &self.group);
        let asked = format!(
            "{windows:?} {:?} {:?} {merge} {interval:?} {tz:?} {:?}",
            self.last,
            self.top,
            self.groups()
        );
        URL_SAFE_NO_PAD.encode(&Sha256::digest(asked)[..12])
    }

    fn groups(&self) -> Groups {
        self.groups.unwrap_or_default()
    }

    fn checked(self) -> Result<counts::Query, Problem> {
        if self
            .group
            .as_ref()
            .is_some_and(|group| group.contains('\0'))
        {
            return Err(bad("group: no group holds a NUL"));
        }
        for (name, number) in [("last", self.last), ("top", self.top)] {
            if number.is_some_and(|number| !(1..=1000).contains(&number)) {
                return Err(bad(format!("{name}: from 1 to 1000")));
            }
        }
        let groups = self.groups();
        if groups == Groups::Total && self.top.is_some() {
            return Err(bad("top: of all groups; groups=total leaves one"));
        }
        let from = time("from", self.from.as_deref())?;
        let to = time("to", self.to.as_deref())?;
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            return Err(bad("from: no time lies between it and to"));
        }
        let view = match (self.interval, self.tz, self.merge.unwrap_or(false)) {
            (Some(_), _, true) => {
                return Err(bad("merge: all windows together, or by interval; not both"));
            }
            (None, Some(_), _) => return Err(bad("tz: goes with interval")),
            (Some(interval), tz, false) => {
                let zone = tz.map_or(Ok(Zone::UTC), |name| Zone::named(&name));
                View::Calendar(interval, zone.map_err(|error| bad(format!("tz: {error}")))?)
            }
            (None, None, true) => View::Merged,
            (None, None, false) => View::Windows,
        };
        Ok(counts::Query {
            rollup: self.rollup,
            filter: Filter {
                from,
                to,
                group: self.group,
            },
            last: self.last,
            top: self.top,
            view,
            groups,
        })
    }
}

fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(Code::BadQuery, detail)
}

struct Listing {
    pool: PgPool,
    book: Uuid,
    query: counts::Query,
}

impl Listing {
    async fn read(&self, after: Option<&Place>, amount: Amount) -> Result<Part, CountsError> {
        let now = Timestamp::now();
        counts::read(&self.pool, self.book, &self.query, after, amount, now).await
    }

    /// All that is left, or at most `most`, part by part, so that no long answer is held in memory.
    /// The first part is read before the answer begins, so that a query can still be refused.
    async fn csv(self, after: Option<Place>, most: Option<usize>) -> Result<Response, Problem> {
        let mut rows = Rows {
            listing: self,
            left: most.unwrap_or(usize::MAX),
            after,
            ended: false,
        };
        let first = rows.next().await?;
        let begun = stream::once(async move { csv_rows(&first, true) });
        let rest = stream::try_unfold(rows, |mut rows| async move {
            if rows.ended {
                return Ok::<_, io::Error>(None);
            }
            let part = rows.next().await.map_err(|error| {
                tracing::warn!(error = %crate::telemetry::chain(&error), "a CSV answer broke off");
                io::Error::other(error)
            })?;
            Ok(Some((csv_rows(&part, false)?, rows)))
        });
        let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8"), (VARY, "accept")];
        let body = Body::from_stream(begun.chain(rest));
        Ok((headers, body).into_response())
    }
}

/// The rows of an answer in CSV.
struct Rows {
    listing: Listing,
    left: usize,
    after: Option<Place>,
    ended: bool,
}

impl Rows {
    async fn next(&mut self) -> Result<Vec<Listed>, CountsError> {
        let amount = Amount::AtLeast(self.left.min(CSV_ROWS));
        let mut part = self.listing.read(self.after.as_ref(), amount).await?;
        part.items.truncate(self.left);
        self.left -= part.items.len();
        self.ended = self.left == 0 || !part.more;
        if let Some(last) = part.items.last() {
            self.after = Some(last.place.clone());
        }
        Ok(part.items)
    }
}

fn csv_rows(items: &[Listed], header: bool) -> io::Result<Bytes> {
    let mut csv = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    if header {
        csv.write_record(["start", "end", "group", "value", "state"])?;
    }
    for Listed { count, .. } in items {
        // As text, for only JSON can be written number by number.
        let value = count.value.to_string();
        csv.serialize((&count.start, &count.end, &count.group, value, count.state))?;
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

/// What a client gets as `next_cursor`: the shape of the query, and the place of the last item.
struct Cursor;

impl Cursor {
    fn text(shape: &str, place: &Place) -> String {
        // Writing integers and text into memory does not fail.
        let json = serde_json::to_vec(&(shape, place)).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(json)
    }

    fn parse(text: &str, shape: &str) -> Result<Place, Problem> {
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad_cursor())?;
        let cursor: (String, Place) = serde_json::from_slice(&json).map_err(|_| bad_cursor())?;
        let (of, place) = cursor;
        if place.group().contains('\0') {
            return Err(bad_cursor());
        }
        if of != shape {
            let detail = "cursor: of a query with other last, top, merge, interval, tz or groups";
            return Err(bad(detail));
        }
        Ok(place)
    }
}
