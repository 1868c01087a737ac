//! The table `windows`, as commits load and put it, and with it the log of clicks. Reading it for
//! people: [`crate::counts`].

mod due;
mod load;

use sqlx::PgConnection;
use uuid::Uuid;

pub use due::{fires_from, next_due};
pub use load::load;

use super::clicks;
use crate::book::hot::WindowSet;
use crate::engine::{Changed, Plan, Window, WindowKey};
use crate::ingest::pulse::Pulse;
use crate::rollup::WindowSpec;
use crate::time::Timestamp;

/// What a transaction does to the windows of all its books.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    put: Vec<Row<'a>>,
    /// Sessions that went into others.
    removed: Vec<Removed<'a>>,
}

#[derive(Debug)]
struct Row<'a> {
    book: Uuid,
    generation: i32,
    key: WindowKey<'a>,
    session: bool,
    window: Window,
}

#[derive(Debug)]
struct Removed<'a> {
    book: Uuid,
    generation: i32,
    key: WindowKey<'a>,
}

impl<'a> Changes<'a> {
    /// Notes what the engine changed of these windows, which count by `plan`.
    pub fn note(&mut self, set: WindowSet, plan: &Plan, changed: Vec<Changed<'a>>) {
        let WindowSet {
            book: id,
            generation,
        } = set;
        for changed in changed {
            let Changed {
                key,
                window,
                replaces,
                ..
            } = changed;
            self.removed
                .extend(replaces.into_iter().map(|bounds| Removed {
                    book: id,
                    generation,
                    key: WindowKey::new(key.rollup, bounds, key.group.clone()),
                }));
            let spec = plan.rollups[usize::from(key.rollup)].window;
            self.put.push(Row {
                book: id,
                generation,
                session: matches!(spec, WindowSpec::Session { .. }),
                key,
                window,
            });
        }
    }
}

impl Changes<'_> {
    /// The windows that are put, if one statement puts them and nothing is removed.
    pub(super) fn columns(&self) -> Option<Columns<'_>> {
        let one = self.removed.is_empty() && self.put.len() <= PUT_ROWS;
        one.then(|| Columns::of(&self.put))
    }

    /// When the first of them ends that has not fired, of whatever kind; the end of all numbers if
    /// there is none.
    pub(super) fn first_unfired_ms(&self) -> i64 {
        let unfired = self.put.iter().filter(|row| !row.window.fired);
        unfired.map(|row| row.key.end_ms).min().unwrap_or(i64::MAX)
    }

    /// The tumbling and sliding windows that are put, as they then are.
    pub(super) fn aligned(&self) -> impl Iterator<Item = (&WindowKey<'_>, &Window)> {
        let rows = self.put.iter().filter(|row| !row.session);
        rows.map(|row| (&row.key, &row.window))
    }
}

/// Most rows that one statement puts: a book may have very many windows to fire at once.
const PUT_ROWS: usize = 10_000;

/// Logs clicks that are not in the log, removes the sessions that went into others, and puts windows
/// by value: what is there is replaced.
///
/// # Errors
/// What the database says; that a click's id is taken ([`super::clicks::is_known`]) among it.
pub async fn write(
    conn: &mut PgConnection,
    clicks: &[clicks::Row<'_>],
    changes: &Changes<'_>,
    now: Timestamp,
    pulse: &Pulse,
) -> Result<(), sqlx::Error> {
    remove(conn, &changes.removed).await?;
    // Most transactions need one statement: each way to the server and back takes as long as the
    // logging of dozens of clicks.
    let (first, more) = changes.put.split_at(changes.put.len().min(PUT_ROWS));
    if !clicks.is_empty() || !first.is_empty() {
        log_and_put(conn, clicks, first, now).await?;
    }
    for rows in more.chunks(PUT_ROWS) {
        pulse.beat();
        log_and_put(conn, &[], rows, now).await?;
    }
    Ok(())
}

async fn remove(conn: &mut PgConnection, removed: &[Removed<'_>]) -> Result<(), sqlx::Error> {
    if removed.is_empty() {
        return Ok(());
    }
    let books: Vec<Uuid> = removed.iter().map(|r| r.book).collect();
    let generations: Vec<i32> = removed.iter().map(|r| r.generation).collect();
    let rollups: Vec<i16> = removed
        .iter()
        .map(|r| stored_rollup(r.key.rollup))
        .collect();
    let starts: Vec<i64> = removed.iter().map(|r| r.key.start_ms).collect();
    let ends: Vec<i64> = removed.iter().map(|r| r.key.end_ms).collect();
    let groups: Vec<&str> = removed.iter().map(|r| &*r.key.group).collect();
    sqlx::query!(
        "DELETE FROM windows w
         USING unnest($1::uuid[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[],
                      $6::text[]) AS k(book_id, generation, rollup, start_ms, end_ms, group_key)
         WHERE w.book_id = k.book_id AND w.generation = k.generation AND w.rollup = k.rollup
           AND w.start_ms = k.start_ms AND w.end_ms = k.end_ms AND w.group_key = k.group_key",
        &books,
        &generations,
        &rollups,
        &starts,
        &ends,
        &groups as &[&str],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Windows column by column, as the statements that put them want them.
pub(super) struct Columns<'a> {
    books: Vec<Uuid>,
    generations: Vec<i32>,
    pub(super) rollups: Vec<i16>,
    pub(super) starts_ms: Vec<i64>,
    pub(super) ends_ms: Vec<i64>,
    pub(super) groups: Vec<&'a str>,
    pub(super) fired: Vec<bool>,
    pub(super) weights: Vec<i64>,
    pub(super) states: Vec<Vec<u8>>,
    sessions: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn of(rows: &'a [Row<'_>]) -> Self {
        Self {
            books: rows.iter().map(|r| r.book).collect(),
            generations: rows.iter().map(|r| r.generation).collect(),
            rollups: rows.iter().map(|r| stored_rollup(r.key.rollup)).collect(),
            starts_ms: rows.iter().map(|r| r.key.start_ms).collect(),
            ends_ms: rows.iter().map(|r| r.key.end_ms).collect(),
            groups: rows.iter().map(|r| &*r.key.group).collect(),
            fired: rows.iter().map(|r| r.window.fired).collect(),
            weights: rows.iter().map(|r| r.window.state.weight()).collect(),
            states: rows.iter().map(|r| r.window.state.to_bytes()).collect(),
            sessions: rows.iter().map(|r| r.session).collect(),
        }
    }
}

/// `unnest` stands in the list of columns, not in `FROM`: there, Postgres would first write each array
/// out as a table.
async fn log_and_put(
    conn: &mut PgConnection,
    clicks: &[clicks::Row<'_>],
    rows: &[Row<'_>],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let clicks = clicks::Columns::of(clicks);
    let windows = Columns::of(rows);
    sqlx::query!(
        "WITH logged AS (
             INSERT INTO clicks (book_id, click_id, seq, at_ms, received_ms, watermark_before_ms,
                                 value_micros, page, visitor, referrer, source)
             SELECT unnest($12::uuid[]), unnest($13::uuid[]), unnest($14::bigint[]),
                    unnest($15::bigint[]), unnest($16::bigint[]), unnest($17::bigint[]),
                    unnest($18::bigint[]), unnest($19::text[]), unnest($20::text[]),
                    unnest($21::text[]), unnest($22::text[]))
         INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired,
                              weight, state, session, changed_ms)
         SELECT unnest($1::uuid[]), unnest($2::int[]), unnest($3::smallint[]), unnest($4::bigint[]),
                unnest($5::bigint[]), unnest($6::text[]), unnest($7::boolean[]),
                unnest($8::bigint[]), unnest($9::bytea[]), unnest($10::boolean[]), $11::bigint
         ON CONFLICT ON CONSTRAINT windows_pkey DO UPDATE
         SET fired = excluded.fired, weight = excluded.weight, state = excluded.state,
             changed_ms = excluded.changed_ms",
        &windows.books,
        &windows.generations,
        &windows.rollups,
        &windows.starts_ms,
        &windows.ends_ms,
        &windows.groups as &[&str],
        &windows.fired,
        &windows.weights,
        &windows.states,
        &windows.sessions,
        now.millis(),
        &clicks.books,
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
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A book has at most [`crate::rollup::MAX_ROLLUPS`] rollups, so their places fit.
fn stored_rollup(place: u16) -> i16 {
    i16::try_from(place).unwrap_or(i16::MAX)
}
