//! The table `windows`, as commits load and put it. Reading it for people: [`crate::counts`].

use std::borrow::Cow;
use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::CommitError;
use crate::book::hot::LockedBook;
use crate::engine::aggregate::State;
use crate::engine::{Plan, Reach, Window, WindowKey, Windows};
use crate::ingest::pulse::Pulse;
use crate::time::Timestamp;

/// A window as it is stored.
#[derive(Debug)]
pub struct Row<'a> {
    /// Which book.
    pub book: Uuid,
    /// Which set of windows.
    pub generation: i32,
    /// Which window and group.
    pub key: WindowKey<'a>,
    /// What it is now.
    pub window: Window,
}

/// The windows that are touched, column by column.
#[derive(Default)]
struct Keys<'a> {
    books: Vec<Uuid>,
    generations: Vec<i32>,
    rollups: Vec<i16>,
    starts_ms: Vec<i64>,
    ends_ms: Vec<i64>,
    groups: Vec<Cow<'a, str>>,
}

/// Up to when windows are due, column by column.
#[derive(Default)]
struct Due {
    books: Vec<Uuid>,
    generations: Vec<i32>,
    watermarks_ms: Vec<i64>,
}

/// Loads, for each book, the windows that its batch touches and those that are due to fire.
///
/// # Errors
/// What the database says, or a stored state cannot be read.
pub async fn load<'a, 'b>(
    conn: &mut PgConnection,
    reaches: Vec<(&'b LockedBook, &'b Plan, Reach<'a>)>,
) -> Result<HashMap<Uuid, Windows<'a>>, CommitError> {
    let mut due = Due::default();
    let mut keys = Keys::default();
    let mut plans: HashMap<Uuid, &Plan> = HashMap::new();
    for (book, plan, reach) in reaches {
        plans.insert(book.id, plan);
        if let Some(watermark_ms) = reach.due.stored() {
            due.books.push(book.id);
            due.generations.push(book.generation);
            due.watermarks_ms.push(watermark_ms);
        }
        for key in reach.touched {
            keys.books.push(book.id);
            keys.generations.push(book.generation);
            keys.rollups.push(stored_rollup(key.rollup));
            keys.starts_ms.push(key.start_ms);
            keys.ends_ms.push(key.end_ms);
            keys.groups.push(key.group);
        }
    }
    let mut loaded: HashMap<Uuid, Windows<'a>> = HashMap::new();
    if due.books.is_empty() {
        // No clicks at all: nothing is touched, and the watermark stands.
        return Ok(loaded);
    }
    let group_texts: Vec<&str> = keys.groups.iter().map(|g| &**g).collect();
    let rows = sqlx::query!(
        r#"SELECT w.book_id AS "book_id!", w.rollup AS "rollup!", w.start_ms AS "start_ms!",
                  w.end_ms AS "end_ms!", w.group_key AS "group_key!", w.fired AS "fired!",
                  w.state AS "state!"
           FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[],
                       $6::text[]) AS k(book_id, generation, rollup, start_ms, end_ms, group_key)
           JOIN windows w ON w.book_id = k.book_id AND w.generation = k.generation
                AND w.rollup = k.rollup AND w.start_ms = k.start_ms AND w.end_ms = k.end_ms
                AND w.group_key = k.group_key
           UNION ALL
           SELECT w.book_id, w.rollup, w.start_ms, w.end_ms, w.group_key, w.fired, w.state
           FROM unnest($7::uuid[], $8::int[], $9::bigint[]) AS d(book_id, generation, watermark_ms)
           JOIN windows w ON w.book_id = d.book_id AND w.generation = d.generation
                AND NOT w.fired AND w.end_ms <= d.watermark_ms"#,
        &keys.books,
        &keys.generations,
        &keys.rollups,
        &keys.starts_ms,
        &keys.ends_ms,
        &group_texts as &[&str],
        &due.books,
        &due.generations,
        &due.watermarks_ms,
    )
    .fetch_all(conn)
    .await?;
    for row in rows {
        let rollup = u16::try_from(row.rollup).unwrap_or(u16::MAX);
        // A row of a rollup that the book no longer has is nobody's.
        let Some(kind) = plans
            .get(&row.book_id)
            .and_then(|plan| plan.rollups.get(usize::from(rollup)))
            .map(|rollup| rollup.aggregate)
        else {
            continue;
        };
        let key = WindowKey {
            start_ms: row.start_ms,
            end_ms: row.end_ms,
            rollup,
            group: Cow::Owned(row.group_key),
        };
        let window = Window {
            fired: row.fired,
            state: State::from_bytes(kind, &row.state)?,
        };
        loaded.entry(row.book_id).or_default().insert(key, window);
    }
    Ok(loaded)
}

/// Most rows that one statement puts: a book may have very many windows to fire at once.
const PUT_ROWS: usize = 10_000;

/// Puts windows by value: what is there is replaced.
///
/// # Errors
/// What the database says.
pub async fn put(
    conn: &mut PgConnection,
    rows: &[Row<'_>],
    now: Timestamp,
    pulse: &Pulse,
) -> Result<(), sqlx::Error> {
    for rows in rows.chunks(PUT_ROWS) {
        put_some(conn, rows, now).await?;
        pulse.beat();
    }
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
    let fired: Vec<bool> = rows.iter().map(|r| r.window.fired).collect();
    let weights: Vec<i64> = rows.iter().map(|r| r.window.state.weight()).collect();
    let states: Vec<Vec<u8>> = rows.iter().map(|r| r.window.state.to_bytes()).collect();
    sqlx::query!(
        "INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired,
                              weight, state, changed_ms)
         SELECT u.*, $10::bigint
         FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[],
                     $6::text[], $7::boolean[], $8::bigint[], $9::bytea[]) AS u
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
