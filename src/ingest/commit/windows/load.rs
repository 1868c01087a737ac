//! Loading the windows that a batch needs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use sqlx::PgConnection;
use uuid::Uuid;

use super::stored_rollup;
use crate::book::hot::WindowSet;
use crate::engine::aggregate::State;
use crate::engine::{Plan, Reach, Span, Window, WindowKey, Windows};
use crate::ingest::commit::CommitError;
use crate::ingest::pulse::Pulse;

/// Most windows, or spans, that one statement looks for: one click may fall into a hundred.
const LOADED_AT_ONCE: usize = 10_000;

/// The windows that are touched, column by column.
#[derive(Default)]
struct Keys<'a> {
    books: Vec<Uuid>,
    generations: Vec<i32>,
    rollups: Vec<i16>,
    starts_ms: Vec<i64>,
    ends_ms: Vec<i64>,
    groups: Vec<&'a str>,
}

/// The stretches of time whose sessions are needed, column by column.
#[derive(Default)]
struct Spans<'a> {
    books: Vec<Uuid>,
    generations: Vec<i32>,
    rollups: Vec<i16>,
    groups: Vec<&'a str>,
    starts_ms: Vec<i64>,
    ends_ms: Vec<i64>,
}

impl<'a> Spans<'a> {
    fn push(&mut self, set: WindowSet, span: Span<'a>) {
        self.books.push(set.book);
        self.generations.push(set.generation);
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

/// Loads, for each book, of this set of its windows those that its batch touches and those that are due
/// to fire.
///
/// # Errors
/// What the database says, or a stored state cannot be read.
pub async fn load<'a>(
    conn: &mut PgConnection,
    reaches: &[(WindowSet, &Plan, &Reach<'_>)],
    pulse: &Pulse,
) -> Result<HashMap<Uuid, Windows<'a>>, CommitError> {
    let mut due = DueBooks::default();
    let mut keys = Keys::default();
    let mut spans = Spans::default();
    let mut plans: HashMap<Uuid, &Plan> = HashMap::new();
    for (set, plan, reach) in reaches.iter().copied() {
        plans.insert(set.book, plan);
        if let Some(watermark_ms) = reach.due.stored() {
            due.books.push(set.book);
            due.generations.push(set.generation);
            due.watermarks_ms.push(watermark_ms);
        }
        for key in reach.touched() {
            keys.books.push(set.book);
            keys.generations.push(set.generation);
            keys.rollups.push(stored_rollup(key.rollup));
            keys.starts_ms.push(key.bounds.start_ms);
            keys.ends_ms.push(key.bounds.end_ms);
            keys.groups.push(key.group);
        }
        for span in reach.spans() {
            spans.push(set, span);
        }
    }
    let mut rows = Vec::new();
    // Without clicks nothing is touched, and the watermark stands.
    if !due.books.is_empty() {
        let first = 0..keys.books.len().min(LOADED_AT_ONCE);
        rows = touched_or_due(conn, &keys, first, &due).await?;
        pulse.beat();
    }
    for from in (LOADED_AT_ONCE..keys.books.len()).step_by(LOADED_AT_ONCE) {
        let next = from..keys.books.len().min(from + LOADED_AT_ONCE);
        rows.extend(touched_or_due(conn, &keys, next, &DueBooks::default()).await?);
        pulse.beat();
    }
    for from in (0..spans.books.len()).step_by(LOADED_AT_ONCE) {
        let next = from..spans.books.len().min(from + LOADED_AT_ONCE);
        rows.extend(sessions(conn, &spans, next).await?);
        pulse.beat();
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
        loaded.entry(row.book_id).or_default().push((key, window));
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
    some: Range<usize>,
    due: &DueBooks,
) -> Result<Vec<Stored>, sqlx::Error> {
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
        &keys.books[some.clone()],
        &keys.generations[some.clone()],
        &keys.rollups[some.clone()],
        &keys.starts_ms[some.clone()],
        &keys.ends_ms[some.clone()],
        &keys.groups[some] as &[&str],
        &due.books,
        &due.generations,
        &due.watermarks_ms,
    )
    .fetch_all(conn)
    .await
}

/// The sessions that overlap the spans: those that began within one, and the one that began last
/// before it.
async fn sessions(
    conn: &mut PgConnection,
    spans: &Spans<'_>,
    some: Range<usize>,
) -> Result<Vec<Stored>, sqlx::Error> {
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
        &spans.books[some.clone()],
        &spans.generations[some.clone()],
        &spans.rollups[some.clone()],
        &spans.groups[some.clone()] as &[&str],
        &spans.starts_ms[some.clone()],
        &spans.ends_ms[some],
    )
    .fetch_all(conn)
    .await
}
