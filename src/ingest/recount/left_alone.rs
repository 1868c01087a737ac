//! Windows that a recount leaves alone: those that begin at or before the newest click that retention
//! has removed, for what is left of the log would make them smaller. They are taken over as they are.

use sqlx::PgConnection;

use crate::book::hot::LockedBook;
use crate::ingest::commit::CommitError;
use crate::rollup::{Rollup, RollupSpec, WindowSpec};
use crate::run::recount::Recount;

/// Most windows, more or less, that one statement copies.
const COPIED_AT_ONCE: i64 = 10_000;

/// A rollup that the book has and will have.
pub(super) struct Kept {
    /// Its place in the book's list.
    pub(super) from: i16,
    /// Its place in the list that the book is counted by anew.
    pub(super) to: i16,
    /// How it counts.
    rollup: Rollup,
}

/// The rollups that the book has and will have. One by another name, or that counts in another way,
/// has no windows to take over.
pub(super) fn kept(book: &LockedBook, recount: &Recount) -> Result<Vec<Kept>, CommitError> {
    let will_be = recount.rollups.as_ref().unwrap_or(&book.rollups);
    let plan = crate::book::plan(&book.settings, &book.rollups)?;
    let same = |a: &RollupSpec, b: &RollupSpec| {
        let lateness_ms = None;
        let (a, b) = (a.clone(), b.clone());
        RollupSpec { lateness_ms, ..a } == RollupSpec { lateness_ms, ..b }
    };
    let all = (0..).zip(&book.rollups).zip(plan.rollups);
    let kept = all.filter_map(|((from, spec), rollup)| {
        let to = will_be.iter().position(|other| same(spec, other))?;
        let to = i16::try_from(to).unwrap_or(i16::MAX);
        Some(Kept { from, to, rollup })
    });
    Ok(kept.collect())
}

/// Takes over all that are to be left alone, a bit at a time; whatever interrupts it, it can be done
/// again.
///
/// # Errors
/// What the database says.
pub async fn copy(
    conn: &mut PgConnection,
    book: &LockedBook,
    recount: &Recount,
) -> Result<(), CommitError> {
    let Some(to_ms) = book.clicks_removed_to_ms else {
        return Ok(());
    };
    for Kept { from, to, .. } in kept(book, recount)? {
        let mut after_ms = i64::MIN;
        while after_ms < to_ms {
            // Windows that begin at the same moment go together.
            let upto_ms = sqlx::query_scalar!(
                "SELECT start_ms FROM windows
                 WHERE book_id = $1 AND generation = $2 AND rollup = $3 AND start_ms > $4
                   AND start_ms <= $5
                 ORDER BY start_ms OFFSET $6 LIMIT 1",
                book.id,
                book.generation,
                from,
                after_ms,
                to_ms,
                COPIED_AT_ONCE,
            );
            let upto_ms = upto_ms.fetch_optional(&mut *conn).await?.unwrap_or(to_ms);
            let some = (after_ms, upto_ms, i64::MIN);
            copy_some(conn, (book, recount), (from, to), some).await?;
            after_ms = upto_ms;
        }
    }
    Ok(())
}

/// Takes over once more those that have changed since, or may have: those that had not closed when the
/// recount began.
///
/// # Errors
/// What the database says.
pub(super) async fn copy_open(
    conn: &mut PgConnection,
    book: &LockedBook,
    recount: &Recount,
) -> Result<(), CommitError> {
    let Some(to_ms) = book.clicks_removed_to_ms else {
        return Ok(());
    };
    for Kept { from, to, rollup } in kept(book, recount)? {
        let watermark_ms = recount.first_watermark.stored().unwrap_or(i64::MIN);
        let closed_until_ms = watermark_ms.saturating_sub(rollup.closes_after_ms());
        let ends_after_ms = closed_until_ms;
        let starts_after_ms = match rollup.window {
            WindowSpec::Session { .. } => i64::MIN,
            _ => closed_until_ms.saturating_sub(rollup.window.span_ms()),
        };
        let some = (starts_after_ms, to_ms, ends_after_ms);
        copy_some(conn, (book, recount), (from, to), some).await?;
        if matches!(rollup.window, WindowSpec::Session { .. }) {
            remove_overlapping(conn, (book, recount), to, to_ms).await?;
        }
    }
    Ok(())
}

/// Removes sessions that overlap one that was taken over: its clicks are in that, which has grown since
/// it was taken over first.
async fn remove_overlapping(
    conn: &mut PgConnection,
    (book, recount): (&LockedBook, &Recount),
    to: i16,
    to_ms: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM windows n
         USING windows o
         WHERE o.book_id = $1 AND o.generation = $2 AND o.rollup = $3 AND o.session
           AND o.start_ms <= $4 AND o.end_ms > $4
           AND n.book_id = o.book_id AND n.generation = o.generation AND n.rollup = o.rollup
           AND n.session AND n.group_key = o.group_key AND n.start_ms > $4
           AND n.start_ms < o.end_ms",
        book.id,
        recount.generation,
        to,
        to_ms,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes over the windows of a rollup that begin after one moment and not after the next, and end after
/// a third. Sessions that went into others since are taken away.
async fn copy_some(
    conn: &mut PgConnection,
    (book, recount): (&LockedBook, &Recount),
    (from, to): (i16, i16),
    (after_ms, upto_ms, ends_after_ms): (i64, i64, i64),
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM windows n
         WHERE n.book_id = $1 AND n.generation = $2 AND n.rollup = $3 AND n.session
           AND n.start_ms > $4 AND n.start_ms <= $5 AND n.end_ms > $6",
        book.id,
        recount.generation,
        to,
        after_ms,
        upto_ms,
        ends_after_ms,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired,
                              weight, state, session, changed_ms)
         SELECT book_id, $3, $5, start_ms, end_ms, group_key, fired, weight, state, session,
                changed_ms
         FROM windows
         WHERE book_id = $1 AND generation = $2 AND rollup = $4 AND start_ms > $6
           AND start_ms <= $7 AND end_ms > $8
         ON CONFLICT ON CONSTRAINT windows_pkey DO UPDATE
         SET fired = excluded.fired, weight = excluded.weight, state = excluded.state,
             changed_ms = excluded.changed_ms",
        book.id,
        book.generation,
        recount.generation,
        from,
        to,
        after_ms,
        upto_ms,
        ends_after_ms,
    )
    .execute(conn)
    .await?;
    Ok(())
}
