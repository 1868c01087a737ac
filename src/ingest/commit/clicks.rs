//! The log of clicks: the table `clicks`.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::click::Click;
use crate::engine::{Logged, Watermark};

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

/// Logs clicks that are not in the log.
///
/// # Errors
/// What the database says.
pub async fn insert(conn: &mut PgConnection, rows: &[Row<'_>]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let books: Vec<Uuid> = rows.iter().map(|r| r.book).collect();
    let ids: Vec<Uuid> = rows.iter().map(|r| r.logged.click.id.uuid).collect();
    let seqs: Vec<i64> = rows.iter().map(|r| r.logged.seq).collect();
    let at: Vec<i64> = rows.iter().map(|r| r.logged.click.at.millis()).collect();
    let received: Vec<i64> = rows
        .iter()
        .map(|r| r.logged.click.received_at.millis())
        .collect();
    let watermarks: Vec<Option<i64>> = rows.iter().map(|r| r.watermark_before.stored()).collect();
    let values: Vec<Option<i64>> = rows
        .iter()
        .map(|r| r.logged.click.value.map(|v| v.0))
        .collect();
    let pages: Vec<&str> = rows.iter().map(|r| r.logged.click.page.as_str()).collect();
    let optional = |of: fn(&Click) -> Option<&str>| -> Vec<Option<&str>> {
        rows.iter().map(|r| of(r.logged.click)).collect()
    };
    sqlx::query!(
        "INSERT INTO clicks (book_id, click_id, seq, at_ms, received_ms, watermark_before_ms,
                             value_micros, page, visitor, referrer, source)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[],
                              $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::text[],
                              $11::text[])",
        &books,
        &ids,
        &seqs,
        &at,
        &received,
        &watermarks as &[Option<i64>],
        &values as &[Option<i64>],
        &pages as &[&str],
        &optional(|c| c.visitor.as_deref()) as &[Option<&str>],
        &optional(|c| c.referrer.as_deref()) as &[Option<&str>],
        &optional(|c| c.source.as_deref()) as &[Option<&str>],
    )
    .execute(conn)
    .await?;
    Ok(())
}
