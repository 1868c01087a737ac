//! What a recount reads: the log as it found it, and what came since.

use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use crate::book::hot::LockedBook;
use crate::click::{Click, ClickId, Micros};
use crate::engine::Logged;
use crate::time::Timestamp;

/// A click of the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    /// Its place in the log.
    pub seq: i64,
    /// What it says.
    pub click: Click,
}

struct Row {
    seq: i64,
    click_id: Uuid,
    at_ms: i64,
    received_ms: i64,
    value_micros: Option<i64>,
    page: String,
    visitor: Option<String>,
    referrer: Option<String>,
    source: Option<String>,
}

impl From<Row> for Kept {
    fn from(row: Row) -> Self {
        Self {
            seq: row.seq,
            click: Click {
                id: ClickId {
                    uuid: row.click_id,
                    sent: None,
                    fresh: false,
                },
                at: Timestamp::saturating_from_millis(row.at_ms),
                received_at: Timestamp::saturating_from_millis(row.received_ms),
                page: row.page,
                visitor: row.visitor,
                referrer: row.referrer,
                source: row.source,
                value: row.value_micros.map(Micros),
            },
        }
    }
}

/// How many clicks a book's log holds.
///
/// # Errors
/// What the database says.
pub async fn clicks(db: impl PgExecutor<'_>, book: Uuid) -> Result<i64, sqlx::Error> {
    let clicks = sqlx::query_scalar!(
        r#"SELECT count(*) AS "clicks!" FROM clicks WHERE book_id = $1"#,
        book
    );
    clicks.fetch_one(db).await
}

/// Up to `limit` clicks of a book's log after the id `after`, in the order of ids, of those that were
/// logged before `first_seq`.
///
/// # Errors
/// What the database says.
pub async fn log_page(
    db: impl PgExecutor<'_>,
    book: Uuid,
    after: Option<Uuid>,
    first_seq: i64,
    limit: usize,
) -> Result<Vec<Kept>, sqlx::Error> {
    // An id may be of any value, the least among them.
    let from = match after {
        None => Some(Uuid::nil()),
        Some(after) => after.as_u128().checked_add(1).map(Uuid::from_u128),
    };
    let Some(from) = from else {
        return Ok(Vec::new());
    };
    let rows = sqlx::query_as!(
        Row,
        "SELECT seq, click_id, at_ms, received_ms, value_micros, page, visitor, referrer, source
         FROM clicks
         WHERE book_id = $1 AND click_id >= $2 AND seq < $3
         ORDER BY click_id LIMIT $4",
        book,
        from,
        first_seq,
        i64::try_from(limit).unwrap_or(i64::MAX),
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Kept::from).collect())
}

/// Up to `limit` clicks that came to a book since its recount began, after the place `after` in the
/// log, in the order of the log.
///
/// # Errors
/// What the database says.
pub async fn tail_page(
    db: impl PgExecutor<'_>,
    book: Uuid,
    after: i64,
    limit: usize,
) -> Result<Vec<Kept>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT t.seq, c.click_id, c.at_ms, c.received_ms, c.value_micros, c.page, c.visitor,
                c.referrer, c.source
         FROM (SELECT book_id, seq, click_id FROM recount_tail
               WHERE book_id = $1 AND seq > $2 ORDER BY seq LIMIT $3) t
         JOIN clicks c ON c.book_id = t.book_id AND c.click_id = t.click_id
         ORDER BY t.seq",
        book,
        after,
        i64::try_from(limit).unwrap_or(i64::MAX),
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Kept::from).collect())
}

/// Notes the clicks that a transaction logs of books that are being counted again.
pub(in crate::ingest) async fn note<'l>(
    conn: &mut PgConnection,
    logged: impl Iterator<Item = (&'l LockedBook, &'l [Logged<'l>])>,
) -> Result<(), sqlx::Error> {
    let (mut books, mut seqs, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (book, clicks) in logged.filter(|(book, _)| book.recounting) {
        for Logged { seq, click } in clicks {
            books.push(book.id);
            seqs.push(*seq);
            ids.push(click.id.uuid);
        }
    }
    if books.is_empty() {
        return Ok(());
    }
    let noted = sqlx::query!(
        "INSERT INTO recount_tail (book_id, seq, click_id)
         SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::uuid[])",
        &books,
        &seqs,
        &ids,
    );
    noted.execute(conn).await?;
    Ok(())
}
