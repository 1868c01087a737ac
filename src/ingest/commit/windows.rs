//! The table `windows`, as commits load and put it. Reading it for people: [`crate::counts`].

use std::borrow::Cow;
use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::CommitError;
use crate::book::hot::{Due, LockedBook};
use crate::engine::aggregate::State;
use crate::engine::{Changed, Plan, Reach, Span, Watermark, Window, WindowKey, Windows};
use crate::ingest::pulse::Pulse;
use crate::rollup::{Rollup, WindowSpec};
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

/// The stretches of time whose sessions are needed, column by column.
#[derive(Default)]
struct Spans<'a> {
    books: Vec<Uuid>,
    generations: Vec<i32>,
    rollups: Vec<i16>,
    groups: Vec<Cow<'a, str>>,
    starts_ms: Vec<i64>,
    ends_ms: Vec<i64>,
}

impl<'a> Spans<'a> {
    fn push(&mut self, book: &LockedBook, span: Span<'a>) {
        self.books.push(book.id);
        self.generations.push(book.generation);
        self.rollups.push(stored_rollup(span.rollup));
        self.groups.push(span.group);
        self.starts_ms.push(span.bounds.start_ms);
        self.ends_ms.push(span.bounds.end_ms);
    }
}

/// Up to when windows are due, column by column.
#[derive(Default)]
struct DueBooks {
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
    let mut due = DueBooks::default();
    let mut keys = Keys::default();
    let mut spans = Spans::default();
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
        for span in reach.spans {
            spans.push(book, span);
        }
    }
    let mut rows = Vec::new();
    // Without clicks nothing is touched, and the watermark stands.
    if !due.books.is_empty() {
        rows = touched_or_due(conn, &keys, &due).await?;
    }
    if !spans.books.is_empty() {
        rows.extend(sessions(conn, &spans).await?);
    }
    let mut loaded: HashMap<Uuid, Windows<'a>> = HashMap::new();
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

/// A row of `windows`, before its state becomes one.
struct Stored {
    book_id: Uuid,
    rollup: i16,
    start_ms: i64,
    end_ms: i64,
    group_key: String,
    fired: bool,
    state: Vec<u8>,
}

async fn touched_or_due(
    conn: &mut PgConnection,
    keys: &Keys<'_>,
    due: &DueBooks,
) -> Result<Vec<Stored>, sqlx::Error> {
    let groups: Vec<&str> = keys.groups.iter().map(|g| &**g).collect();
    sqlx::query_as!(
        Stored,
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
        &groups as &[&str],
        &due.books,
        &due.generations,
        &due.watermarks_ms,
    )
    .fetch_all(conn)
    .await
}

/// The sessions that overlap the spans: those that began within one, and the one that began last
/// before it.
async fn sessions(conn: &mut PgConnection, spans: &Spans<'_>) -> Result<Vec<Stored>, sqlx::Error> {
    let groups: Vec<&str> = spans.groups.iter().map(|g| &**g).collect();
    sqlx::query_as!(
        Stored,
        r#"SELECT s.book_id AS "book_id!", s.rollup AS "rollup!", w.start_ms AS "start_ms!",
                  w.end_ms AS "end_ms!", s.group_key AS "group_key!", w.fired AS "fired!",
                  w.state AS "state!"
           FROM unnest($1::uuid[], $2::int[], $3::smallint[], $4::text[], $5::bigint[],
                       $6::bigint[])
                AS s(book_id, generation, rollup, group_key, from_ms, to_ms)
           CROSS JOIN LATERAL (
               (SELECT w.start_ms, w.end_ms, w.fired, w.state FROM windows w
                WHERE w.session AND w.book_id = s.book_id AND w.generation = s.generation
                  AND w.rollup = s.rollup AND w.group_key = s.group_key
                  AND w.start_ms > s.from_ms AND w.start_ms < s.to_ms)
               UNION ALL
               (SELECT w.start_ms, w.end_ms, w.fired, w.state FROM windows w
                WHERE w.session AND w.book_id = s.book_id AND w.generation = s.generation
                  AND w.rollup = s.rollup AND w.group_key = s.group_key
                  AND w.start_ms <= s.from_ms
                ORDER BY w.start_ms DESC LIMIT 1)) w
           WHERE w.end_ms > s.from_ms"#,
        &spans.books,
        &spans.generations,
        &spans.rollups,
        &groups as &[&str],
        &spans.starts_ms,
        &spans.ends_ms,
    )
    .fetch_all(conn)
    .await
}

/// When the next window of the book fires or closes, once the watermark is past `after`.
///
/// # Errors
/// What the database says.
pub async fn next_due(
    conn: &mut PgConnection,
    book: &LockedBook,
    plan: &Plan,
    after: Watermark,
) -> Result<Due, sqlx::Error> {
    let after_ms = after.stored().unwrap_or(i64::MIN);
    let (mut fixed, mut sessions) = (Closing::default(), Closing::default());
    for (place, rollup) in (0_u16..).zip(&plan.rollups) {
        match rollup.window {
            WindowSpec::Session { .. } => &mut sessions,
            WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } => &mut fixed,
        }
        .push(place, rollup, after_ms);
    }
    let due_ms = sqlx::query_scalar!(
        r#"SELECT min(due_ms) FROM (
               (SELECT end_ms AS due_ms FROM windows
                WHERE book_id = $1 AND generation = $2 AND NOT fired AND end_ms > $3
                ORDER BY end_ms LIMIT 1)
               UNION ALL
               SELECT next.end_ms + r.closes_after_ms
               FROM unnest($4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[])
                    AS r(rollup, span_ms, closes_after_ms, closed_until_ms)
               CROSS JOIN LATERAL (
                   SELECT w.end_ms FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = r.rollup
                     AND w.start_ms > r.closed_until_ms - r.span_ms
                   ORDER BY w.start_ms LIMIT 1) next
               UNION ALL
               SELECT next.end_ms + r.closes_after_ms
               FROM unnest($8::smallint[], $9::bigint[], $10::bigint[])
                    AS r(rollup, closes_after_ms, closed_until_ms)
               CROSS JOIN LATERAL (
                   SELECT w.end_ms FROM windows w
                   WHERE w.session AND w.book_id = $1 AND w.generation = $2
                     AND w.rollup = r.rollup AND w.end_ms > r.closed_until_ms
                   ORDER BY w.end_ms LIMIT 1) next) AS all_due"#,
        book.id,
        book.generation,
        after_ms,
        &fixed.rollups,
        &fixed.spans_ms,
        &fixed.closes_after_ms,
        &fixed.closed_until_ms,
        &sessions.rollups,
        &sessions.closes_after_ms,
        &sessions.closed_until_ms,
    )
    .fetch_one(conn)
    .await?;
    Ok(due_ms.map_or(Due::Never, Due::At))
}

/// When the windows of rollups close, column by column.
#[derive(Default)]
struct Closing {
    rollups: Vec<i16>,
    spans_ms: Vec<i64>,
    closes_after_ms: Vec<i64>,
    /// Windows that end at or before this are closed.
    closed_until_ms: Vec<i64>,
}

impl Closing {
    fn push(&mut self, place: u16, rollup: &Rollup, after_ms: i64) {
        self.rollups.push(stored_rollup(place));
        self.spans_ms.push(rollup.window.span_ms());
        self.closes_after_ms.push(rollup.closes_after_ms());
        // Far enough from the least number that the span can be taken off as well.
        let until_ms = after_ms.max(Timestamp::MIN.millis());
        self.closed_until_ms
            .push(until_ms - rollup.closes_after_ms());
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
