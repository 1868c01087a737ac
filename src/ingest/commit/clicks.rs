//! The log of clicks: the table `clicks`.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::click::Click;
use crate::engine::{Logged, Watermark};
use crate::time::Timestamp;

/// A click as it is logged.
#[derive(Debug)]
pub struct Row<'a> {
    /// Which book.
    pub book: Uuid,
    /// What was sent, and its place in the book's log.
    pub logged: Logged<'a>,
    /// The watermark that it was judged against.
    pub watermark_before: Watermark,
}

/// Which clicks of a transaction are looked for in the log before they are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookFor {
    /// None: if the id of one is taken, the transaction fails, and says so ([`is_known`]). Looking
    /// for a click costs as much as logging it, and few are sent twice.
    Nothing,
    /// Those whose ids were not made by this server for this very request.
    Sent,
    /// All: an earlier try may have been committed without our knowing it.
    All,
}

/// Whether a transaction failed because the id of a click was in the log.
#[must_use]
pub fn is_known(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    // A table that is spread over several servers has it with a number behind.
    let is_key = |name: &str| name.starts_with("clicks_pkey");
    error.is_some_and(|error| error.is_unique_violation() && error.constraint().is_some_and(is_key))
}

/// Which of the clicks (book, id) are in the log, by book and id, with their pages. The caller
/// holds the books' rows, so the answer stays true until it commits.
///
/// # Errors
/// What the database says.
pub async fn known(
    conn: &mut PgConnection,
    clicks: Vec<(Uuid, Uuid)>,
) -> Result<HashMap<Uuid, HashMap<Uuid, String>>, sqlx::Error> {
    let (books, ids): (Vec<Uuid>, Vec<Uuid>) = clicks.into_iter().unzip();
    let mut known: HashMap<Uuid, HashMap<Uuid, String>> = HashMap::new();
    if ids.is_empty() {
        return Ok(known);
    }
    let rows = sqlx::query!(
        "SELECT c.book_id, c.click_id, c.page
         FROM unnest($1::uuid[], $2::uuid[]) AS u(book_id, click_id)
         JOIN clicks c ON c.book_id = u.book_id AND c.click_id = u.click_id",
        &books,
        &ids,
    )
    .fetch_all(conn)
    .await?;
    for row in rows {
        let of_book = known.entry(row.book_id).or_default();
        of_book.insert(row.click_id, row.page);
    }
    Ok(known)
}

/// Clicks column by column, as the statement that logs them wants them.
pub(super) struct Columns<'a> {
    pub(super) books: Vec<Uuid>,
    pub(super) ids: Vec<Uuid>,
    pub(super) seqs: Vec<i64>,
    pub(super) at_ms: Vec<i64>,
    pub(super) received_ms: Vec<i64>,
    pub(super) watermarks_before_ms: Vec<Option<i64>>,
    pub(super) values: Vec<Option<i64>>,
    pub(super) pages: Vec<&'a str>,
    pub(super) visitors: Vec<Option<&'a str>>,
    pub(super) referrers: Vec<Option<&'a str>>,
    pub(super) sources: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    /// In the order of their ids, so that the index is walked once from left to right, and grows at
    /// its end where ids grow with time: requests that are read at the same time have ids that
    /// stand between one another.
    pub(super) fn of(rows: &[Row<'a>]) -> Self {
        let mut rows: Vec<&Row<'a>> = rows.iter().collect();
        rows.sort_unstable_by_key(|row| (row.book, row.logged.click.id.uuid));
        let rows = &rows;
        let millis = |of: fn(&Click) -> Timestamp| -> Vec<i64> {
            rows.iter().map(|r| of(r.logged.click).millis()).collect()
        };
        let optional = |of: fn(&Click) -> Option<&str>| sparse(rows, |r| of(r.logged.click));
        Self {
            books: rows.iter().map(|r| r.book).collect(),
            ids: rows.iter().map(|r| r.logged.click.id.uuid).collect(),
            seqs: rows.iter().map(|r| r.logged.seq).collect(),
            at_ms: millis(|c| c.at),
            received_ms: millis(|c| c.received_at),
            watermarks_before_ms: sparse(rows, |r| r.watermark_before.stored()),
            values: sparse(rows, |r| r.logged.click.value.map(|v| v.0)),
            pages: rows.iter().map(|r| r.logged.click.page.as_str()).collect(),
            visitors: optional(|c| c.visitor.as_deref()),
            referrers: optional(|c| c.referrer.as_deref()),
            sources: optional(|c| c.source.as_deref()),
        }
    }
}

/// A column that may hold nothing; then it is empty. `unnest` in a list of columns fills what is
/// missing at the end of one with null, and nothing is sent or read for it.
fn sparse<'a, T>(rows: &[&Row<'a>], of: impl Fn(&Row<'a>) -> Option<T>) -> Vec<Option<T>> {
    if rows.iter().all(|row| of(row).is_none()) {
        return Vec::new();
    }
    rows.iter().map(|row| of(row)).collect()
}
