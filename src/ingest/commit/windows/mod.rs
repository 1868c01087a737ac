//! The table `windows`, as commits load and put it. Reading it for people: [`crate::counts`].

mod due;
mod load;

use sqlx::PgConnection;
use uuid::Uuid;

pub use due::next_due;
pub use load::load;

use crate::book::hot::LockedBook;
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
    /// Notes what the engine changed of `book`, which counts by `plan`.
    pub fn note(&mut self, book: &LockedBook, plan: &Plan, changed: Vec<Changed<'a>>) {
        let (id, generation) = (book.id, book.generation);
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

/// Most rows that one statement puts: a book may have very many windows to fire at once.
const PUT_ROWS: usize = 10_000;

/// Removes the sessions that went into others, and puts windows by value: what is there is replaced.
///
/// # Errors
/// What the database says.
pub async fn write(
    conn: &mut PgConnection,
    changes: &Changes<'_>,
    now: Timestamp,
    pulse: &Pulse,
) -> Result<(), sqlx::Error> {
    remove(conn, &changes.removed).await?;
    for rows in changes.put.chunks(PUT_ROWS) {
        put_some(conn, rows, now).await?;
        pulse.beat();
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

async fn put_some(
    conn: &mut PgConnection,
    rows: &[Row<'_>],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let books: Vec<Uuid> = rows.iter().map(|r| r.book).collect();
    let generations: Vec<i32> = rows.iter().map(|r| r.generation).collect();
    let rollups: Vec<i16> = rows.iter().map(|r| stored_rollup(r.key.rollup)).collect();
    let starts: Vec<i64> = rows.iter().map(|r| r.key.start_ms).collect();
    let ends: Vec<i64> = rows.iter().map(|r| r.key.end_ms).collect();
    let groups: Vec<&str> = rows.iter().map(|r| &*r.key.group).collect();
    let sessions: Vec<bool> = rows.iter().map(|r| r.session).collect();
    let fired: Vec<bool> = rows.iter().map(|r| r.window.fired).collect();
    let weights: Vec<i64> = rows.iter().map(|r| r.window.state.weight()).collect();
    let states: Vec<Vec<u8>> = rows.iter().map(|r| r.window.state.to_bytes()).collect();
    sqlx::query!(
        "INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired,
                              weight, state, session, changed_ms)
         SELECT u.*, $11::bigint
         FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[],
                     $6::text[], $7::boolean[], $8::bigint[], $9::bytea[], $10::boolean[]) AS u
         ON CONFLICT ON CONSTRAINT windows_pkey DO UPDATE
         SET fired = excluded.fired, weight = excluded.weight, state = excluded.state,
             changed_ms = excluded.changed_ms",
        &books,
        &generations,
        &rollups,
        &starts,
        &ends,
        &groups as &[&str],
        &fired,
        &weights,
        &states,
        &sessions,
        now.millis(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A book has at most [`crate::rollup::MAX_ROLLUPS`] rollups, so their places fit.
fn stored_rollup(place: u16) -> i16 {
    i16::try_from(place).unwrap_or(i16::MAX)
}
