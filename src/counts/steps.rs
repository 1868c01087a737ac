//! The statements that find windows without reading all their groups.

use sqlx::PgConnection;

use super::select::{Edge, Range, Selection, Stored, Stretch, sql_number};
use crate::calendar::Bucket;

/// Up to `limit` windows from `from` on, whatever groups they have, by start and end.
pub(super) async fn windows(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    from: Edge,
    limit: usize,
) -> Result<Vec<Edge>, sqlx::Error> {
    let mut windows = Vec::new();
    for range in selection.ranges() {
        let left = limit - windows.len();
        let stretch = Stretch {
            from: range.stretch.from.max(from),
            ..range.stretch
        };
        let range = Range { stretch, ..range };
        if left == 0 || stretch.is_empty() {
            continue;
        }
        let left = sql_number(left);
        let found = if range.straddling {
            straddling_windows(conn, selection, &range, 1, left).await?
        } else {
            windows_in(conn, selection, &range, left).await?
        };
        windows.extend(found);
    }
    Ok(windows)
}

/// The `last` newest windows; `None` if there is none at all.
pub(super) async fn newest(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    last: i64,
) -> Result<Option<Stretch>, sqlx::Error> {
    let mut windows: Vec<Edge> = Vec::new();
    for range in selection.ranges().rev() {
        let left = last - sql_number(windows.len());
        if left == 0 {
            break;
        }
        let found = if range.straddling {
            straddling_windows(conn, selection, &range, -1, left).await?
        } else {
            newest_in(conn, selection, &range, left).await?
        };
        windows.extend(found);
    }
    let (newest, oldest) = (windows.first(), windows.last());
    Ok(newest.zip(oldest).map(|(newest, oldest)| Stretch {
        from: *oldest,
        until: (newest.0, newest.1.saturating_add(1)),
    }))
}

struct Found {
    start_ms: i64,
    end_ms: i64,
}

fn edges(found: Vec<Found>) -> Vec<Edge> {
    let edges = found.into_iter().map(|w| (w.start_ms, w.end_ms));
    edges.collect()
}

/// One step along the index a window, however many groups each has.
async fn windows_in(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    range: &Range,
    limit: i64,
) -> Result<Vec<Edge>, sqlx::Error> {
    let found = sqlx::query_as!(
        Found,
        r#"WITH RECURSIVE steps AS (
               (SELECT start_ms, end_ms, 1::bigint AS step
                FROM windows
                WHERE book_id = $1 AND generation = $2 AND rollup = $3
                  AND (start_ms, end_ms) >= ($4, $5)
                  AND (start_ms, end_ms) < ($6, $7) AND end_ms > $8
                  AND ($9::text IS NULL OR group_key = $9) AND (NOT $10 OR session)
                ORDER BY start_ms, end_ms LIMIT 1)
               UNION ALL
               SELECT next.start_ms, next.end_ms, s.step + 1
               FROM steps s
               CROSS JOIN LATERAL (
                   SELECT w.start_ms, w.end_ms
                   FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                     AND (w.start_ms, w.end_ms) > (s.start_ms, s.end_ms)
                     AND (w.start_ms, w.end_ms) < ($6, $7) AND w.end_ms > $8
                     AND ($9::text IS NULL OR w.group_key = $9) AND (NOT $10 OR w.session)
                   ORDER BY w.start_ms, w.end_ms LIMIT 1) next
               WHERE s.step < $11)
           SELECT start_ms AS "start_ms!", end_ms AS "end_ms!" FROM steps
           ORDER BY start_ms, end_ms"#,
        selection.book,
        selection.generation,
        selection.rollup,
        range.stretch.from.0,
        range.stretch.from.1,
        range.stretch.until.0,
        range.stretch.until.1,
        range.ends_after_ms,
        selection.group,
        selection.of_sessions(),
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(edges(found))
}

/// As [`windows_in`], from the newest backwards.
async fn newest_in(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    range: &Range,
    limit: i64,
) -> Result<Vec<Edge>, sqlx::Error> {
    let found = sqlx::query_as!(
        Found,
        r#"WITH RECURSIVE steps AS (
               (SELECT start_ms, end_ms, 1::bigint AS step
                FROM windows
                WHERE book_id = $1 AND generation = $2 AND rollup = $3
                  AND (start_ms, end_ms) >= ($4, $5)
                  AND (start_ms, end_ms) < ($6, $7) AND end_ms > $8
                  AND ($9::text IS NULL OR group_key = $9) AND (NOT $10 OR session)
                ORDER BY start_ms DESC, end_ms DESC LIMIT 1)
               UNION ALL
               SELECT next.start_ms, next.end_ms, s.step + 1
               FROM steps s
               CROSS JOIN LATERAL (
                   SELECT w.start_ms, w.end_ms
                   FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                     AND (w.start_ms, w.end_ms) < (s.start_ms, s.end_ms)
                     AND (w.start_ms, w.end_ms) >= ($4, $5) AND w.end_ms > $8
                     AND ($9::text IS NULL OR w.group_key = $9) AND (NOT $10 OR w.session)
                   ORDER BY w.start_ms DESC, w.end_ms DESC LIMIT 1) next
               WHERE s.step < $11)
           SELECT start_ms AS "start_ms!", end_ms AS "end_ms!" FROM steps
           ORDER BY start_ms DESC, end_ms DESC"#,
        selection.book,
        selection.generation,
        selection.rollup,
        range.stretch.from.0,
        range.stretch.from.1,
        range.stretch.until.0,
        range.stretch.until.1,
        range.ends_after_ms,
        selection.group,
        selection.of_sessions(),
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(edges(found))
}

/// The windows of sessions that began before `from` and ended after it, found as
/// [`super::select::rows`] finds them. `direction` is 1 for the oldest first, −1 for the newest.
async fn straddling_windows(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    range: &Range,
    direction: i64,
    limit: i64,
) -> Result<Vec<Edge>, sqlx::Error> {
    let found = sqlx::query_as!(
        Found,
        "SELECT start_ms, end_ms
         FROM (SELECT start_ms, end_ms
               FROM windows
               WHERE session AND end_ms > start_ms AND book_id = $1 AND generation = $2 AND rollup = $3 AND end_ms > $4
                 AND ($5::text IS NULL OR group_key = $5)
               OFFSET 0) w
         WHERE (start_ms, end_ms) >= ($6, $7) AND (start_ms, end_ms) < ($8, $9)
         GROUP BY start_ms, end_ms
         ORDER BY start_ms * $10::bigint, end_ms * $10::bigint LIMIT $11",
        selection.book,
        selection.generation,
        selection.rollup,
        range.ends_after_ms,
        selection.group,
        range.stretch.from.0,
        range.stretch.from.1,
        range.stretch.until.0,
        range.stretch.until.1,
        direction,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(edges(found))
}

/// The `top` greatest groups of each of these windows, the greatest first.
pub(super) async fn greatest(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    windows: &[Edge],
    top: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    let (starts_ms, ends_ms): (Vec<i64>, Vec<i64>) = windows.iter().copied().unzip();
    sqlx::query_as!(
        Stored,
        r#"SELECT b.start_ms AS "start_ms!", b.end_ms AS "end_ms!", g.group_key, g.fired, g.weight,
                  g.state
           FROM unnest($4::bigint[], $5::bigint[]) AS b(start_ms, end_ms)
           CROSS JOIN LATERAL (
               SELECT w.group_key, w.fired, w.weight, w.state
               FROM windows w
               WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                 AND w.start_ms = b.start_ms AND w.end_ms = b.end_ms
                 AND ($6::text IS NULL OR w.group_key = $6)
               ORDER BY w.weight DESC, w.group_key LIMIT $7) g
           ORDER BY b.start_ms, b.end_ms, g.weight DESC, g.group_key"#,
        selection.book,
        selection.generation,
        selection.rollup,
        &starts_ms,
        &ends_ms,
        selection.group,
        top,
    )
    .fetch_all(conn)
    .await
}

/// The starts of those of these buckets, which lie within the selection, that hold a window.
pub(super) async fn occupied(
    conn: &mut PgConnection,
    selection: &Selection<'_>,
    buckets: &[Bucket],
) -> Result<Vec<i64>, sqlx::Error> {
    let mut occupied = Vec::new();
    for range in selection.ranges() {
        let stretch = range.stretch;
        let starts_ms: Vec<i64> = buckets.iter().map(|b| b.start_ms).collect();
        let ends_ms: Vec<i64> = buckets.iter().map(|b| b.end_ms).collect();
        let found = sqlx::query_scalar!(
            r#"SELECT b.start_ms AS "start_ms!"
               FROM unnest($4::bigint[], $5::bigint[]) AS b(start_ms, end_ms)
               CROSS JOIN LATERAL (
                   SELECT w.start_ms
                   FROM windows w
                   WHERE w.book_id = $1 AND w.generation = $2 AND w.rollup = $3
                     AND w.start_ms >= greatest(b.start_ms, $6)
                     AND w.start_ms < least(b.end_ms, $7) AND w.end_ms > $8
                     AND ($9::text IS NULL OR w.group_key = $9)
                   ORDER BY w.start_ms LIMIT 1) w"#,
            selection.book,
            selection.generation,
            selection.rollup,
            &starts_ms,
            &ends_ms,
            stretch.from.0,
            stretch.until.0,
            range.ends_after_ms,
            selection.group,
        )
        .fetch_all(&mut *conn)
        .await?;
        occupied.extend(found);
    }
    Ok(occupied)
}
