//! Tumbling windows combined into the pieces of a local calendar.

use super::fold::{Fold, ROWS};
use super::select::{self, Edge, Stretch};
use super::{CountsError, Listed, Part, Place, Reading, Unanswerable, steps};
use crate::calendar::{Bucket, Interval, Zone};
use crate::rollup::{Rollup, WindowSpec};
use crate::stream::state::WindowState;
use crate::time::Timestamp;

/// How many buckets one statement looks into.
const BUCKETS: usize = 64;

/// A calendar that windows of one size are to make up.
#[derive(Clone, Copy)]
pub(super) struct Calendar<'a> {
    interval: Interval,
    zone: &'a Zone,
    size_ms: i64,
}

impl<'a> Calendar<'a> {
    /// The calendar that the windows of `rollup` may make up.
    pub(super) fn of(
        rollup: &Rollup,
        interval: Interval,
        zone: &'a Zone,
    ) -> Result<Self, Unanswerable> {
        match rollup.window {
            WindowSpec::Tumbling { size_ms } => Ok(Self {
                interval,
                zone,
                size_ms,
            }),
            WindowSpec::Sliding { .. } | WindowSpec::Session { .. } => {
                Err(Unanswerable::NotTumbling(rollup.name.clone()))
            }
        }
    }

    fn bucket(&self, at_ms: i64) -> Bucket {
        self.zone.bucket(self.interval, at_ms)
    }

    /// The bucket that holds `at_ms`, if windows make it up.
    fn filled_bucket(&self, at_ms: i64) -> Result<Bucket, Unanswerable> {
        let bucket = self.bucket(at_ms);
        if bucket.is_filled_by(self.size_ms) {
            return Ok(bucket);
        }
        Err(Unanswerable::Straddles {
            size_ms: self.size_ms,
            interval: self.interval,
            zone: self.zone.name().to_owned(),
            start: Timestamp::saturating_from_millis(bucket.start_ms),
            end: Timestamp::saturating_from_millis(bucket.end_ms),
        })
    }
}

/// A bucket whose windows are being combined.
struct Filling {
    bucket: Bucket,
    fold: Fold,
}

impl Filling {
    fn edge(&self) -> Edge {
        (self.bucket.start_ms, self.bucket.end_ms)
    }

    /// The groups of the bucket that come after the place where this part of the answer begins.
    fn list(self, size_ms: i64, reading: &Reading<'_>) -> Vec<Listed> {
        let edge = self.edge();
        let in_it = |place: &&Place| (place.start_ms, place.end_ms) == edge;
        let after = reading.after.filter(in_it);
        // As long as there can be more windows in it, it is not over.
        let end_ms = edge.1.min(reading.selection.newest_end_ms(size_ms));
        let over = reading.state(reading.book.watermark.ended(end_ms), end_ms);
        let state: WindowState = self.fold.state().min(over);
        self.fold.list((edge, state), after, reading)
    }
}

/// A part of the list of the buckets that are not empty.
pub(super) async fn list(
    reading: &mut Reading<'_>,
    calendar: &Calendar<'_>,
) -> Result<Part, CountsError> {
    let mut items: Vec<Listed> = Vec::new();
    let mut filling: Option<Filling> = None;
    let begin_ms = reading.after.map_or(i64::MIN, |place| place.start_ms);
    let mut from = select::beginning((begin_ms, i64::MIN));
    loop {
        let rows = select::rows(reading.conn, &reading.selection, &from, ROWS).await?;
        let last = rows.len() < ROWS;
        if let Some(row) = rows.last() {
            from = row.next();
        }
        for row in rows {
            let mut current = match filling.take() {
                Some(filling) if filling.bucket.holds(row.start_ms) => filling,
                full => {
                    items.extend(
                        full.into_iter()
                            .flat_map(|f| f.list(calendar.size_ms, reading)),
                    );
                    if items.len() >= reading.amount.counts() {
                        return Ok(Part::of(items, true, reading.amount));
                    }
                    Filling {
                        bucket: calendar.filled_bucket(row.start_ms)?,
                        fold: Fold::new(),
                    }
                }
            };
            current.fold.take(row, reading)?;
            filling = Some(current);
        }
        if last {
            break;
        }
    }
    let full = filling.take().into_iter();
    items.extend(full.flat_map(|f| f.list(calendar.size_ms, reading)));
    if items.is_empty() && reading.after.is_none() {
        // The same refusal as with windows.
        let at_ms = reading.selection.from().unwrap_or(reading.now).millis();
        calendar.filled_bucket(at_ms)?;
    }
    Ok(Part::of(items, false, reading.amount))
}

/// The windows of the `last` newest buckets that are not empty; `None` if all are.
pub(super) async fn newest(
    reading: &mut Reading<'_>,
    calendar: &Calendar<'_>,
    last: i64,
) -> Result<Option<Stretch>, CountsError> {
    let mut left = usize::try_from(last).unwrap_or(usize::MAX);
    let mut chosen: Option<Stretch> = None;
    let mut until = (i64::MAX, i64::MAX);
    while left > 0 {
        let older = reading.selection.narrowed(Stretch {
            from: (i64::MIN, i64::MIN),
            until,
        });
        // Straight to the next bucket that is not empty, however many there are in between; then
        // those before it, many at a time.
        let Some(newest) = steps::newest(reading.conn, &older, 1).await? else {
            break;
        };
        let buckets = before_and_with(calendar, newest.from.0, left.min(BUCKETS));
        let occupied = steps::occupied(reading.conn, &older, &buckets).await?;
        for bucket in buckets {
            until = (bucket.start_ms, i64::MIN);
            if left > 0 && occupied.contains(&bucket.start_ms) {
                left -= 1;
                chosen = Some(Stretch {
                    from: until,
                    until: chosen.map_or((bucket.end_ms, i64::MIN), |newer| newer.until),
                });
            }
        }
    }
    Ok(chosen)
}

/// So many buckets up to the one that holds `at_ms`, the newest first.
fn before_and_with(calendar: &Calendar<'_>, at_ms: i64, count: usize) -> Vec<Bucket> {
    let mut buckets = vec![calendar.bucket(at_ms)];
    while buckets.len() < count {
        let oldest = buckets[buckets.len() - 1];
        if oldest.start_ms <= Timestamp::MIN.millis() {
            break;
        }
        buckets.push(calendar.bucket(oldest.start_ms - 1));
    }
    buckets
}
