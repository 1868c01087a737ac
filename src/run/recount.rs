//! What only recounts have in their rows: how far they are, and the windows that they make.

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::Spec;
use crate::book::hot::LockedBook;
use crate::engine::Watermark;
use crate::rollup::RollupSpec;

/// A live recount as it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Recount {
    /// Which run.
    pub run: Uuid,
    /// Under which it is written.
    pub epoch: i64,
    /// By which rollups it counts, if not by the book's.
    pub rollups: Option<Vec<RollupSpec>>,
    /// The windows that it makes.
    pub generation: i32,
    /// Clicks below this sequence number are in the log as it found it; the others came since.
    pub first_seq: i64,
    /// The watermark when it began.
    pub first_watermark: Watermark,
    /// How far it is.
    pub place: Place,
    /// Clicks that it is done with.
    pub processed: i64,
    /// Of how many, if that was counted.
    pub total: Option<i64>,
}

/// Where a recount begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// The windows that it is to make.
    pub generation: i32,
    /// The first click that is not in the log yet.
    pub first_seq: i64,
    /// The book's watermark.
    pub watermark: Watermark,
}

impl Beginning {
    /// Of a recount of this book, which begins now.
    pub fn of(book: &mut LockedBook) -> Self {
        Self {
            generation: book.new_windows().generation,
            first_seq: book.next_seq,
            watermark: book.progress.watermark,
        }
    }
}

/// How far a recount is: first in the log as it found it, in the order of ids, for which there is an
/// index; then in what came since, in the order of the sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The last id that it is done with.
    pub after_click: Option<Uuid>,
    /// Once it is through with those: the last sequence number that it is done with.
    pub after_seq: Option<i64>,
}

/// The live recount `run` of a book; `None`: it is not live, or not of this epoch any more.
///
/// # Errors
/// What the database says.
pub async fn find(
    conn: &mut PgConnection,
    book: Uuid,
    (run, epoch): (Uuid, i64),
) -> Result<Option<Recount>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT spec AS "spec: Json<Spec>", generation AS "generation!", first_seq AS "first_seq!",
                  first_watermark_ms, after_click, after_seq, processed, total
           FROM runs
           WHERE book_id = $1 AND id = $2 AND epoch = $3 AND state = 'running'
             AND kind = 'recount'"#,
        book,
        run,
        epoch
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Recount {
        run,
        epoch,
        rollups: match row.spec.0 {
            Spec::Recount { rollups } => rollups,
            Spec::Import { .. } => None,
        },
        generation: row.generation,
        first_seq: row.first_seq,
        first_watermark: Watermark::from_stored(row.first_watermark_ms),
        place: Place {
            after_click: row.after_click,
            after_seq: row.after_seq,
        },
        processed: row.processed,
        total: row.total,
    }))
}

/// Moves a recount from where it stands to `place`, in the transaction that writes what was counted on
/// the way. False: it is not live, or not of this epoch any more, or is there already.
///
/// # Errors
/// What the database says.
pub async fn step(
    conn: &mut PgConnection,
    book: Uuid,
    from: &Recount,
    place: Place,
    processed: i64,
) -> Result<bool, sqlx::Error> {
    let moved = sqlx::query!(
        "UPDATE runs SET after_click = $6, after_seq = $7, processed = $8, total = $9
         WHERE book_id = $1 AND id = $2 AND epoch = $3 AND state = 'running'
           AND after_click IS NOT DISTINCT FROM $4 AND after_seq IS NOT DISTINCT FROM $5",
        book,
        from.run,
        from.epoch,
        from.place.after_click,
        from.place.after_seq,
        place.after_click,
        place.after_seq,
        processed,
        from.total,
    )
    .execute(conn)
    .await?;
    Ok(moved.rows_affected() == 1)
}

/// Has a recount begin anew, into another generation: what it counted by has changed.
///
/// # Errors
/// What the database says.
pub async fn begin_anew(
    conn: &mut PgConnection,
    book: Uuid,
    run: Uuid,
    beginning: Beginning,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE runs SET generation = $3, first_seq = $4, first_watermark_ms = $5,
                         after_click = NULL, after_seq = NULL, processed = 0, total = NULL
         WHERE book_id = $1 AND id = $2",
        book,
        run,
        beginning.generation,
        beginning.first_seq,
        beginning.watermark.stored(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes that a run has left nothing behind any more.
///
/// # Errors
/// What the database says.
pub async fn swept(conn: &mut PgConnection, book: Uuid, run: Uuid) -> Result<(), sqlx::Error> {
    let swept = sqlx::query!(
        "UPDATE runs SET swept = true WHERE book_id = $1 AND id = $2",
        book,
        run
    );
    swept.execute(conn).await?;
    Ok(())
}
