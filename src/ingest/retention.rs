//! Retention: clicks and counts that a book keeps no longer are removed.
//!
//! **Promises.** A click goes by its time of receipt, a window only when both its end and its last
//! change are older than the book keeps counts: what was imported from long ago is not old because of
//! that. Nothing goes while a run is at work on the book. Commits hardly notice: what is to go is
//! looked for without a lock, and removed a few rows at a time in transactions that take the book's
//! row only if it is free, and change it, so that no lane goes on from what it remembers.
//!
//! A click that has gone is forgotten: sent again, it counts again.

use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::book::retention::{self, Limited, Taken};
use crate::rollup::MAX_ROLLUPS;
use crate::time::Timestamp;
use crate::{db, telemetry};

const DAY_MS: i64 = 24 * 3_600_000;

/// How many rows are looked at at a time, and so the most that one transaction looks at again.
const LOOKED_AT_ONCE: i64 = 5000;

/// Most clicks that one transaction removes.
const CLICKS_AT_ONCE: usize = 1000;

/// Most windows that one transaction removes: their rows are larger.
const WINDOWS_AT_ONCE: usize = 300;

/// How often a row is asked for that somebody holds, before the book is left to the next sweep. Even
/// that of a book which is written all the time is free for moments between its commits.
const TRIES: u32 = 100;

/// Time between them.
const PAUSE: Duration = Duration::from_millis(10);

/// Stands for the sweep among the advisory locks: one process at a time is enough.
const SWEEP: i64 = i64::from_be_bytes(*b"pt sweep");

/// Sweeps at the start and `every` so often, until `stop`.
pub async fn run(
    pool: PgPool,
    database: PgConnectOptions,
    every: Duration,
    stop: CancellationToken,
) {
    let mut sweeps = tokio::time::interval(every);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = sweeps.tick() => {}
        }
        let swept = tokio::select! {
            () = stop.cancelled() => return,
            swept = sweep(&pool, &database, Timestamp::now()) => swept,
        };
        if let Err(error) = swept {
            let error = telemetry::chain(&error);
            tracing::warn!(%error, "clicks and counts are kept for longer than they should be");
        }
    }
}

/// Removes what books keep no longer, unless another process does so.
///
/// # Errors
/// The database is out of reach. What else goes wrong with a book is logged, and the others go on.
pub async fn sweep(
    pool: &PgPool,
    database: &PgConnectOptions,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let books = retention::limited(pool).await?;
    if books.is_empty() {
        return Ok(());
    }
    // It finds rows by key, whatever the statistics say, as commits do.
    let mut conn = db::write_connection(database).await?;
    // What is lost of it in a crash is removed again, so no row has to be held while a disk writes.
    let settings = sqlx::raw_sql("SET synchronous_commit = off");
    settings.execute(&mut conn).await?;
    let mine = sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "taken!""#, SWEEP);
    if !mine.fetch_one(&mut conn).await? {
        return Ok(());
    }
    for book in books {
        match sweep_book(&mut conn, &book, now).await {
            Ok(()) => {}
            Err(error) if db::is_unreachable(&error) => return Err(error),
            Err(error) => {
                let error = telemetry::chain(&error);
                tracing::warn!(book = %book.id, %error, "a book keeps more than it should; it is tried again later");
            }
        }
    }
    conn.close().await
}

async fn sweep_book(
    conn: &mut PgConnection,
    book: &Limited,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if let Some(days) = book.click_days {
        sweep_clicks(conn, book, now.millis() - days * DAY_MS).await?;
    }
    if let Some(days) = book.count_days {
        for rollup in (0_i16..).take(MAX_ROLLUPS) {
            sweep_windows(conn, (book, rollup), now.millis() - days * DAY_MS).await?;
        }
    }
    Ok(())
}

/// A stretch of a book's rows, both ends in it, within which some are kept no longer. Whatever the
/// statistics say, the key's index leads to it and to nothing else.
enum Stretch {
    /// Of its clicks.
    Clicks(Uuid, Uuid),
    /// Of the windows of one rollup.
    Windows(i16, Key, Key),
}

/// Start, end and group of a window.
type Key = (i64, i64, String);

/// Removes the clicks of a book that were received before `bound_ms`. They are found by walking the
/// log in the order of its key: an index on the time of receipt would cost every click a fifth.
async fn sweep_clicks(
    conn: &mut PgConnection,
    book: &Limited,
    bound_ms: i64,
) -> Result<(), sqlx::Error> {
    let mut next = Some(Uuid::nil());
    while let Some(from) = next {
        let began = Instant::now();
        let looked_at = sqlx::query!(
            r#"SELECT click_id, received_ms < $3 AS "old!" FROM clicks
               WHERE book_id = $1 AND click_id >= $2 ORDER BY click_id LIMIT $4"#,
            book.id,
            from,
            bound_ms,
            LOOKED_AT_ONCE,
        );
        let looked_at = looked_at.fetch_all(&mut *conn).await?;
        next = looked_at.last().and_then(|last| after(last.click_id));
        let old = looked_at.iter().filter(|click| click.old);
        let old: Vec<Uuid> = old.map(|click| click.click_id).collect();
        rest(began).await;
        for some in old.chunks(CLICKS_AT_ONCE) {
            let stretch = Stretch::Clicks(some[0], some[some.len() - 1]);
            let Some(clicks) = remove(conn, book, &stretch, bound_ms).await? else {
                return Ok(());
            };
            telemetry::clicks_removed(clicks);
        }
    }
    Ok(())
}

/// The id that comes next.
fn after(id: Uuid) -> Option<Uuid> {
    id.as_u128().checked_add(1).map(Uuid::from_u128)
}

/// Removes the windows of a book's rollup that ended and were changed last before `bound_ms`.
async fn sweep_windows(
    conn: &mut PgConnection,
    (book, rollup): (&Limited, i16),
    bound_ms: i64,
) -> Result<(), sqlx::Error> {
    let mut last = Some((i64::MIN, i64::MIN, String::new()));
    while let Some((start_ms, end_ms, group)) = last {
        let began = Instant::now();
        let looked_at = sqlx::query!(
            r#"SELECT start_ms, end_ms, group_key,
                      end_ms < $4 AND changed_ms < $4 AS "old!"
               FROM windows
               WHERE book_id = $1 AND generation = $2 AND rollup = $3 AND start_ms < $4
                 AND (start_ms, end_ms, group_key) > ($5, $6, $7)
               ORDER BY start_ms, end_ms, group_key LIMIT $8"#,
            book.id,
            book.generation,
            rollup,
            bound_ms,
            start_ms,
            end_ms,
            group,
            LOOKED_AT_ONCE,
        );
        let looked_at = looked_at.fetch_all(&mut *conn).await?;
        let reached = looked_at.last();
        last = reached.map(|row| (row.start_ms, row.end_ms, row.group_key.clone()));
        let old = looked_at.into_iter().filter(|window| window.old);
        let old = old.map(|window| (window.start_ms, window.end_ms, window.group_key));
        let old: Vec<Key> = old.collect();
        rest(began).await;
        for some in old.chunks(WINDOWS_AT_ONCE) {
            let (first, last) = (some[0].clone(), some[some.len() - 1].clone());
            let stretch = Stretch::Windows(rollup, first, last);
            let Some(windows) = remove(conn, book, &stretch, bound_ms).await? else {
                return Ok(());
            };
            telemetry::windows_removed(windows);
        }
    }
    Ok(())
}

/// Removes what is old of a stretch, in a transaction that holds the book's row, once that is free;
/// says how many rows there were. What was changed since it was looked at, or went and came again,
/// stays. `None`: not now.
async fn remove(
    conn: &mut PgConnection,
    book: &Limited,
    stretch: &Stretch,
    bound_ms: i64,
) -> Result<Option<u64>, sqlx::Error> {
    for _ in 0..TRIES {
        let began = Instant::now();
        let mut tx = conn.begin().await?;
        match retention::take(&mut tx, book).await? {
            Taken::Free => {
                let removed = match stretch {
                    Stretch::Clicks(first, last) => {
                        remove_clicks(&mut tx, book, (*first, *last), bound_ms).await?
                    }
                    Stretch::Windows(rollup, first, last) => {
                        remove_windows(&mut tx, (book, *rollup), (first, last), bound_ms).await?
                    }
                };
                tx.commit().await?;
                rest(began).await;
                return Ok(Some(removed));
            }
            Taken::Changed => {
                tx.rollback().await?;
                return Ok(None);
            }
            Taken::Held => {
                tx.rollback().await?;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    tracing::debug!(book = %book.id, "the row of the book is held; what it keeps no longer goes later");
    Ok(None)
}

async fn remove_clicks(
    conn: &mut PgConnection,
    book: &Limited,
    (first, last): (Uuid, Uuid),
    bound_ms: i64,
) -> Result<u64, sqlx::Error> {
    let gone = sqlx::query_scalar!(
        "DELETE FROM clicks
         WHERE book_id = $1 AND click_id >= $2 AND click_id <= $3 AND received_ms < $4
         RETURNING at_ms",
        book.id,
        first,
        last,
        bound_ms,
    );
    let gone = gone.fetch_all(&mut *conn).await?;
    if let Some(newest_ms) = gone.iter().max() {
        retention::clicks_went(conn, book.id, *newest_ms).await?;
    }
    Ok(gone.len() as u64)
}

async fn remove_windows(
    conn: &mut PgConnection,
    (book, rollup): (&Limited, i16),
    (first, last): (&Key, &Key),
    bound_ms: i64,
) -> Result<u64, sqlx::Error> {
    let gone = sqlx::query!(
        "DELETE FROM windows
         WHERE book_id = $1 AND generation = $2 AND rollup = $3
           AND (start_ms, end_ms, group_key) >= ($4, $5, $6)
           AND (start_ms, end_ms, group_key) <= ($7, $8, $9)
           AND end_ms < $10 AND changed_ms < $10",
        book.id,
        book.generation,
        rollup,
        first.0,
        first.1,
        first.2,
        last.0,
        last.1,
        last.2,
        bound_ms,
    );
    let gone = gone.execute(&mut *conn).await?.rows_affected();
    if gone > 0 {
        retention::windows_went(conn, book.id).await?;
    }
    Ok(gone)
}

/// Leaves the database to others for as long as a step took.
async fn rest(began: Instant) {
    tokio::time::sleep(began.elapsed()).await;
}
