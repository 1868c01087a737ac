//! The views of a page, added up of the windows that are kept.
//!
//! Windows that are closed change no more, so what was added up of them is taken over from one reading
//! to the next.

use std::time::{Duration, Instant};

use sqlx::PgConnection;
use uuid::Uuid;

use crate::book::{self, Book};
use crate::rollup::{AggregateKind, GroupBy, Rollup, WindowSpec};

/// How many windows one statement looks into.
const WINDOWS: i64 = 10_000;

/// How many windows one reading looks into: those of almost three years of quarters of an hour.
const MOST_WINDOWS: i64 = 100_000;

/// For how long what was added up of closed windows is taken over. What is kept of a book goes when it is
/// old, and the barrier stays where it is.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// What was added up of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    of: Counted,
    /// As of which revision of the book.
    revision: i64,
    pub(super) views: i64,
    /// Of them in windows that do not change any more.
    closed_views: i64,
    /// Where the other windows begin.
    open_from_ms: i64,
    /// When the first of its parts was read.
    begun_at: Instant,
}

/// The windows that a sum is of. Imports and recounts change closed ones, and move the barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    book: Uuid,
    generation: i32,
    rollup: i16,
    /// How long after its end a window closes: with more of it, those that were closed are open again.
    closes_after_ms: i64,
    barrier: i64,
}

/// The rollup whose windows hold each view of a page once: of those that count all clicks by page, side
/// by side, the one that takes late clicks for longest; of these the one of the longest windows, for they
/// are fewest.
pub(super) fn rollup_of<'a>(
    rollups: impl Iterator<Item = (i16, &'a Rollup)>,
) -> Option<(i16, &'a Rollup)> {
    let sized = rollups.filter_map(|(place, rollup)| match rollup.window {
        WindowSpec::Tumbling { size_ms }
            if rollup.aggregate == AggregateKind::Count
                && rollup.of.is_none()
                && rollup.group_by == GroupBy::Page =>
        {
            Some(((rollup.lateness_ms, size_ms), (place, rollup)))
        }
        _ => None,
    });
    sized
        .max_by_key(|(order, _)| *order)
        .map(|(_, found)| found)
}

/// The views of `page`, beginning with what was added up `before`; `None`: they stand in more windows than
/// one reading looks into.
pub(super) async fn add_up(
    conn: &mut PgConnection,
    book: &Book,
    (place, rollup): (i16, &Rollup),
    page: &str,
    before: Option<Sum>,
) -> Result<Option<Sum>, sqlx::Error> {
    let of = Counted {
        book: book.id,
        generation: book.generation,
        rollup: place,
        closes_after_ms: rollup.closes_after_ms(),
        barrier: book::table::barrier(&mut *conn, book.id).await?,
    };
    let before = before.filter(|sum| sum.of == of && sum.begun_at.elapsed() < KEPT_FOR);
    if let Some(sum) = before.filter(|sum| sum.revision == book.revision) {
        return Ok(Some(sum));
    }
    // While a run is live any window may change. Those of a closed book may once it is reopened.
    let before = before.filter(|_| book.live_run.is_none());
    let settled = !book.closed && book.live_run.is_none();
    let watermark_ms = book.watermark.stored().filter(|_| settled);
    let closed_until = watermark_ms.map_or(i64::MIN, |ms| ms.saturating_sub(of.closes_after_ms));
    let mut sum = before.unwrap_or(Sum {
        of,
        revision: 0,
        views: 0,
        closed_views: 0,
        open_from_ms: i64::MIN,
        begun_at: Instant::now(),
    });
    sum.revision = book.revision;
    sum.views = sum.closed_views;
    let mut from_ms = sum.open_from_ms;
    for _ in 0..MOST_WINDOWS / WINDOWS {
        let part = part(conn, &of, page, from_ms, closed_until).await?;
        sum.views = sum.views.saturating_add(part.views);
        sum.closed_views = sum.closed_views.saturating_add(part.closed_views);
        sum.open_from_ms = part.closed_before_ms.unwrap_or(sum.open_from_ms);
        match part.next_ms {
            Some(next_ms) if part.windows == WINDOWS => from_ms = next_ms,
            _ => return Ok(Some(sum)),
        }
    }
    Ok(None)
}

/// What some windows hold of a page.
struct Part {
    windows: i64,
    views: i64,
    /// Of them in closed windows.
    closed_views: i64,
    /// Where the windows begin behind the last closed one, if there is one.
    closed_before_ms: Option<i64>,
    /// Where those begin that were not looked into.
    next_ms: Option<i64>,
}

/// One step along the index a window, however many pages it has, and one to the page.
async fn part(
    conn: &mut PgConnection,
    of: &Counted,
    page: &str,
    from_ms: i64,
    closed_until: i64,
) -> Result<Part, sqlx::Error> {
    sqlx::query_as!(
        Part,
        r#"WITH RECURSIVE steps AS (
               (SELECT start_ms, end_ms, 1::bigint AS step
                FROM windows
                WHERE book_id = $1 AND generation = $2 AND rollup = $3 AND start_ms >= $4
                ORDER BY start_ms, end_ms LIMIT 1)
               UNION ALL
               SELECT next.start_ms, next.end_ms, s.step + 1
               FROM steps s
               CROSS JOIN LATERAL (
                   SELECT w.start_ms, w.end_ms
                   FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                     AND w.start_ms > s.start_ms
                   ORDER BY w.start_ms, w.end_ms LIMIT 1) next
               WHERE s.step < $7)
           SELECT count(*) AS "windows!",
                  coalesce(sum(w.weight), 0)::bigint AS "views!",
                  coalesce(sum(w.weight) FILTER (WHERE s.end_ms <= $6), 0)::bigint AS "closed_views!",
                  max(s.start_ms) FILTER (WHERE s.end_ms <= $6) + 1 AS closed_before_ms,
                  max(s.start_ms) + 1 AS next_ms
           FROM steps s
           LEFT JOIN LATERAL (
               SELECT weight FROM windows w
               WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                 AND w.start_ms = s.start_ms AND w.end_ms = s.end_ms AND w.group_key = $5
               LIMIT 1) w ON true"#,
        of.book,
        of.generation,
        of.rollup,
        from_ms,
        page,
        closed_until,
        WINDOWS,
    )
    .fetch_one(conn)
    .await
}
