//! The short way of a commit: one statement, which is its own transaction.
//!
//! Each way to Postgres and back takes as long as the logging of dozens of clicks, and a transaction
//! that locks, reads, counts and writes has seven. The lane that wrote a book last knows what it would
//! read; so it counts at once, and writes on the condition that the row is still the one it knows
//! (optimistic concurrency control). The row is moved first, if it is of that version, and whatever
//! else the statement writes, it writes for each row that was moved: either all or nothing.
//!
//! Whatever is out of the ordinary goes the long way: a click that has to be looked for, a window that
//! is not remembered or is about to fire, sessions, what the spool or a job brings, several books, a book that is
//! counted again, frames to prune (a buffer below 256 frames is pruned by each commit).
//!
//! A statement that is given up because Postgres does not answer may be carried out all the same, as a
//! lost COMMIT may: its requests were not acknowledged, and what has ids counts once.

use sqlx::PgConnection;
use uuid::Uuid;

use super::clicks;
use super::ledger::{Ledger, Written};
use super::{Batch, CommitError, Committed, Remember, settled, windows};
use crate::book::hot::{LockedBook, Version};
use crate::frame::{self, Pruned};
use crate::time::Timestamp;

/// Commits the clicks of one book, if that can be done in one statement. `None`: nothing was written.
///
/// # Errors
/// Nothing was written; that a click's id is taken ([`clicks::is_known`]) is an error too.
pub(super) async fn commit(
    conn: &mut PgConnection,
    now: Timestamp,
    requests: &[(Uuid, &Batch)],
    remember: &mut Remember<'_>,
) -> Result<Option<Committed>, CommitError> {
    let Some(Counted {
        ledger,
        written,
        fires_from_ms,
    }) = counted(now, requests, remember)?
    else {
        return Ok(None);
    };
    let Some(windows) = written.windows.columns() else {
        return Ok(None);
    };
    let locked = ledger.book.version;
    let Some(version) = write(conn, &ledger.book, &written, &windows, now).await? else {
        remember.memory.forget(ledger.book.id);
        return Ok(None);
    };
    let versions = (locked, version);
    let changes = &written.windows;
    remember
        .memory
        .keep(&ledger.book, versions, fires_from_ms, changes);
    let ledgers = [(ledger.book.id, ledger)].into();
    let mut committed = settled(requests, ledgers, written.frames, Pruned::default());
    committed.tally.single_statement = true;
    Ok(Some(committed))
}

/// What was counted without asking the database.
struct Counted<'a> {
    /// Of the book, as it is to be.
    ledger: Ledger<'a>,
    written: Written<'a>,
    /// See `Memory::fires_from`.
    fires_from_ms: i64,
}

/// Counts these clicks, if that can be done without asking the database.
fn counted<'a>(
    now: Timestamp,
    requests: &[(Uuid, &'a Batch)],
    remember: &Remember<'a>,
) -> Result<Option<Counted<'a>>, CommitError> {
    let Some((id, _)) = requests.first() else {
        return Ok(None);
    };
    // Nobody waits for what the spool or a job brings, and it comes in pieces so large that counting one
    // twice, where it has to go the long way after all, would cost more than the short way saves.
    let plain = |(book, batch): &(Uuid, &Batch)| {
        book == id && !batch.acknowledged && batch.checkpoint.is_none()
    };
    let Some(known) = remember
        .memory
        .get(*id)
        .filter(|known| !known.book.recounting && requests.iter().all(plain))
    else {
        return Ok(None);
    };
    let Some(structure) = remember.structures.at_hand(&known.book) else {
        return Ok(None);
    };
    let mut ledger = Ledger::open(known.book.clone(), structure, remember.debounce)?;
    if ledger.judge.may_filter() {
        return Ok(None);
    }
    for (_, batch) in requests {
        ledger.take(batch);
    }
    ledger.sort_out(None);
    let windows = known.windows(ledger.reach().2);
    let Some(windows) = windows.filter(|_| !ledger.fresh.is_empty()) else {
        return Ok(None);
    };
    let mut written = Written::default();
    ledger.count(windows, now, &mut written)?;
    let plain = !frame::is_due(&ledger.book);
    Ok(plain.then_some(Counted {
        ledger,
        written,
        fires_from_ms: known.fires_from_ms,
    }))
}

/// Writes everything, if the book's row is still of the version that `book` was read from; gives the
/// version that it then has.
async fn write(
    conn: &mut PgConnection,
    book: &LockedBook,
    written: &Written<'_>,
    windows: &windows::Columns<'_>,
    now: Timestamp,
) -> Result<Option<Version>, sqlx::Error> {
    let clicks = clicks::Columns::of(&written.clicks);
    let frames = frame::Columns::of(&written.frames);
    // Postgres tells of success only after the commit: sqlx reads on until it is ready for the next
    // query ("Extended Query" in the chapter on its protocol).
    let version = sqlx::query_scalar!(
        r#"WITH moved AS (
               UPDATE books
               SET position = $3, revision = $4, watermark_ms = $5, newest_event_ms = $6,
                   last_received_ms = $7, due_ms = $8, received = $9, on_time = $10, late = $11,
                   dropped = $12, duplicates = $13, filtered = $14, rejected = $15, next_seq = $16
               WHERE id = $1 AND xmin::text::bigint = $2 AND NOT deleted
               RETURNING id, generation, xmin::text::bigint AS version),
           logged AS (
               INSERT INTO clicks (book_id, click_id, seq, at_ms, received_ms,
                                   watermark_before_ms, value_micros, page, visitor, referrer,
                                   source)
               SELECT id, unnest($17::uuid[]), unnest($18::bigint[]), unnest($19::bigint[]),
                      unnest($20::bigint[]), unnest($21::bigint[]), unnest($22::bigint[]),
                      unnest($23::text[]), unnest($24::text[]), unnest($25::text[]),
                      unnest($26::text[])
               FROM moved),
           minted AS (
               INSERT INTO frames (book_id, position, event, data)
               SELECT id, unnest($27::bigint[]), unnest($28::text[]), unnest($29::text[])
               FROM moved),
           put AS (
               INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired,
                                    weight, state, session, changed_ms)
               SELECT id, generation, unnest($30::smallint[]), unnest($31::bigint[]),
                      unnest($32::bigint[]), unnest($33::text[]), unnest($34::boolean[]),
                      unnest($35::bigint[]), unnest($36::bytea[]), false, $37::bigint
               FROM moved
               ON CONFLICT ON CONSTRAINT windows_pkey DO UPDATE
               SET fired = excluded.fired, weight = excluded.weight, state = excluded.state,
                   changed_ms = excluded.changed_ms)
           SELECT version AS "version!" FROM moved"#,
        book.id,
        book.version.0,
        book.position,
        book.revision,
        book.progress.watermark.stored(),
        book.progress.newest_event_ms,
        book.last_received_ms,
        book.due.stored(),
        book.totals.received,
        book.totals.on_time,
        book.totals.late,
        book.totals.dropped,
        book.totals.duplicates,
        book.totals.filtered,
        book.totals.rejected,
        book.next_seq,
        &clicks.ids,
        &clicks.seqs,
        &clicks.at_ms,
        &clicks.received_ms,
        &clicks.watermarks_before_ms as &[Option<i64>],
        &clicks.values as &[Option<i64>],
        &clicks.pages as &[&str],
        &clicks.visitors as &[Option<&str>],
        &clicks.referrers as &[Option<&str>],
        &clicks.sources as &[Option<&str>],
        &frames.positions,
        &frames.events as &[&str],
        &frames.data as &[&str],
        &windows.rollups,
        &windows.starts_ms,
        &windows.ends_ms,
        &windows.groups as &[&str],
        &windows.fired,
        &windows.weights,
        &windows.states,
        now.millis(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(version.map(Version))
}
