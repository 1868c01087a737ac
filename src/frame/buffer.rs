//! The buffers: bounded, and large ones with their older half merged.
//!
//! **Promises.** A buffer below [`MERGES_FROM`] frames holds, after each commit, exactly as many of
//! the newest as its book says. A larger one reaches back over at least as many positions, and holds
//! less than a quarter more frames: it is pruned when the positions have moved on by a quarter of it. Its frames that stand more than
//! half of it behind the newest are merged by [`merge`], a step at a time, so that most commits have
//! no statement for it; frames of other kinds are neither merged nor jumped over. `oldest` says what
//! was pruned.
//!
//! All of it under the row's lock, in the transaction that minted the newest frames.

use std::cmp::Reverse;

use sqlx::PgConnection;
use uuid::Uuid;

use super::MAX_FRAME_BYTES;
use super::merge::{Stored, merge};
use crate::book::hot::LockedBook;

/// Buffers of so many frames and more are merged.
const MERGES_FROM: i64 = 256;

/// Frames are merged when so many, or a quarter of the buffer if that is less, have come to stand in
/// its older half.
const STEP: i64 = 128;

/// Most frames that a step takes of one book: more than come, so that it catches up.
pub(super) const STEP_FRAMES: i64 = 2 * STEP;

/// Most bytes that a step takes of one book, less its last frame.
const STEP_BYTES: i64 = 1024 * 1024;

/// Most books that are merged in one transaction; the others come with their next commits.
const STEP_BOOKS: usize = 4;

/// When a buffer is pruned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pruning {
    /// When it may have grown too large.
    InTurn,
    /// At once: how large it may be was perhaps changed.
    Now,
}

/// What became of frames.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Pruned {
    /// How many went into newer ones.
    pub merged: u64,
    /// How many were removed.
    pub pruned: u64,
}

/// Merges what has come to stand in the older half of large buffers, and removes what the buffers
/// need not hold, moving each book's `oldest`.
///
/// # Errors
/// What the database says.
pub async fn prune(
    conn: &mut PgConnection,
    books: &mut [&mut LockedBook],
    when: Pruning,
) -> Result<Pruned, sqlx::Error> {
    let before: Vec<(i64, i64)> = books.iter().map(|b| (b.oldest, b.merged)).collect();
    let merged = merge_due(conn, books).await?;
    let mut to = Vec::with_capacity(books.len());
    let mut counted = Vec::new();
    for (place, book) in books.iter().enumerate() {
        to.push(book.oldest);
        if is_to_be_counted(book, when) {
            counted.push(place);
        }
    }
    let due: Vec<&LockedBook> = counted.iter().map(|place| &*books[*place]).collect();
    for (place, oldest) in by_count(conn, &due).await? {
        to[counted[place]] = oldest;
    }
    for (book, oldest) in books.iter_mut().zip(to) {
        book.oldest = book.oldest.max(oldest);
    }
    let moved = books.iter().zip(before);
    let moved = moved.filter(|(book, before)| (book.oldest, book.merged) != *before);
    let moved: Vec<(&LockedBook, i64)> = moved.map(|(b, (oldest, _))| (&**b, oldest)).collect();
    let pruned = forget(conn, &moved).await?;
    Ok(Pruned { merged, pruned })
}

fn merges(book: &LockedBook) -> bool {
    book.settings.buffer_frames >= MERGES_FROM
}

/// Whether [`prune`] has anything to do for a book, in turn.
#[must_use]
pub fn is_due(book: &LockedBook) -> bool {
    is_to_be_counted(book, Pruning::InTurn) || Stretch::due(book).is_some()
}

/// Whether the frames of a large buffer are to be counted.
pub(super) fn is_to_be_counted(book: &LockedBook, when: Pruning) -> bool {
    let most = book.settings.buffer_frames;
    if book.position - book.oldest < most {
        return false;
    }
    if !merges(book) {
        return true;
    }
    // Not all books at the same positions: those of one transaction often go on together.
    let [.., high, low] = *book.id.as_bytes();
    let turn = |position: i64| {
        let shifted = position + i64::from(u16::from_be_bytes([high, low]));
        shifted.div_euclid(most / 4)
    };
    when == Pruning::Now || turn(book.position) != turn(book.locked_at)
}

/// The `oldest` of buffers that hold more frames than they need, each with the book's place.
async fn by_count(
    conn: &mut PgConnection,
    books: &[&LockedBook],
) -> Result<Vec<(usize, i64)>, sqlx::Error> {
    if books.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = books.iter().map(|b| b.id).collect();
    let oldest: Vec<i64> = books.iter().map(|b| b.oldest).collect();
    let keep: Vec<i64> = books.iter().map(|b| b.settings.buffer_frames).collect();
    // From the newest backwards, and not beyond what was pruned before.
    let rows = sqlx::query!(
        r#"SELECT u.place AS "place!", f.position AS "position!"
           FROM unnest($1::uuid[], $2::bigint[], $3::bigint[])
                WITH ORDINALITY AS u(book_id, oldest, keep, place)
           CROSS JOIN LATERAL (
               SELECT position FROM frames
               WHERE book_id = u.book_id AND position >= u.oldest
               ORDER BY position DESC OFFSET u.keep LIMIT 1) f"#,
        &ids,
        &oldest,
        &keep,
    )
    .fetch_all(conn)
    .await?;
    let place = |place: i64| usize::try_from(place - 1).unwrap_or(usize::MAX);
    let rows = rows.into_iter();
    Ok(rows.map(|r| (place(r.place), r.position + 1)).collect())
}

/// Stretches of buffers: from a position on, and before another one.
#[derive(Default)]
struct Ranges {
    books: Vec<Uuid>,
    from: Vec<i64>,
    before: Vec<i64>,
}

impl Ranges {
    fn push(&mut self, book: Uuid, from: i64, before: i64) {
        self.books.push(book);
        self.from.push(from);
        self.before.push(before);
    }

    /// Removes the frames.
    async fn delete(&self, conn: &mut PgConnection) -> Result<u64, sqlx::Error> {
        if self.books.is_empty() {
            return Ok(0);
        }
        let deleted = sqlx::query!(
            r#"DELETE FROM frames f
               USING unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS u(book_id, first, before)
               WHERE f.book_id = u.book_id AND f.position >= u.first AND f.position < u.before"#,
            &self.books,
            &self.from,
            &self.before,
        )
        .execute(conn)
        .await?;
        Ok(deleted.rows_affected())
    }
}

/// Frames that have not been merged, and the one before them, which they may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Stretch {
    /// What is to be merged of a book, if it is enough for a step.
    pub(super) fn due(book: &LockedBook) -> Option<Self> {
        let size = book.settings.buffer_frames;
        let stretch = Self {
            first: book.merged.max(book.oldest - 1),
            last: book.position - size / 2 - 1,
        };
        let enough = stretch.frames() >= STEP.min(size / 4);
        (merges(book) && enough).then_some(stretch)
    }

    fn frames(self) -> i64 {
        self.last - self.first
    }
}

/// Takes a step in the books that are due, the furthest behind first. Says how many frames went into
/// others.
async fn merge_due(
    conn: &mut PgConnection,
    books: &mut [&mut LockedBook],
) -> Result<u64, sqlx::Error> {
    let due = books.iter_mut();
    let mut due: Vec<(&mut LockedBook, Stretch)> = due
        .filter_map(|book| Stretch::due(book).map(|stretch| (&mut **book, stretch)))
        .collect();
    if due.is_empty() {
        return Ok(0);
    }
    due.sort_by_key(|(_, stretch)| Reverse(stretch.frames()));
    due.truncate(STEP_BOOKS);
    let stretches: Vec<(Uuid, Stretch)> = due.iter().map(|(b, s)| (b.id, *s)).collect();
    let stored = read(conn, &stretches).await?;

    let mut gone = Ranges::default();
    let mut data = Vec::new();
    for ((book, stretch), frames) in due.iter_mut().zip(stored) {
        let rollups: Vec<&str> = book.rollups.iter().map(|r| r.name.as_str()).collect();
        // A mistake in here must not be one that no click of the book can be committed by.
        let merging = || merge(&frames, &rollups, MAX_FRAME_BYTES);
        let merging = std::panic::catch_unwind(std::panic::AssertUnwindSafe(merging));
        let merging = merging.unwrap_or_else(|_| {
            tracing::error!(book = %book.id, "frames could not be merged; they stay as they are");
            Vec::new()
        });
        for merged in merging {
            gone.push(book.id, merged.first, merged.position);
            data.push(merged.data);
        }
        book.merged = frames.last().map_or(stretch.last, |f| f.position);
    }
    let merged = gone.delete(conn).await?;
    rewrite(conn, &gone, &data).await?;
    Ok(merged)
}

/// The first frames of each stretch, in order.
async fn read(
    conn: &mut PgConnection,
    stretches: &[(Uuid, Stretch)],
) -> Result<Vec<Vec<Stored>>, sqlx::Error> {
    let ids: Vec<Uuid> = stretches.iter().map(|(id, _)| *id).collect();
    let first: Vec<i64> = stretches.iter().map(|(_, s)| s.first).collect();
    let last: Vec<i64> = stretches.iter().map(|(_, s)| s.last).collect();
    let rows = sqlx::query!(
        r#"SELECT u.place AS "place!", f.position AS "position!", f.event AS "event!",
                  f.data AS "data!"
           FROM unnest($1::uuid[], $2::bigint[], $3::bigint[])
                WITH ORDINALITY AS u(book_id, first, last, place)
           CROSS JOIN LATERAL (
               SELECT n.position, n.event, n.data
               FROM (SELECT position, event, data,
                            sum(octet_length(data)) OVER (ORDER BY position)
                            - octet_length(data) AS bytes_before
                     FROM frames
                     WHERE book_id = u.book_id AND position >= u.first AND position <= u.last
                     ORDER BY position LIMIT $4) n
               WHERE n.bytes_before < $5) f"#,
        &ids,
        &first,
        &last,
        STEP_FRAMES,
        STEP_BYTES,
    )
    .fetch_all(conn)
    .await?;
    let mut stored: Vec<Vec<Stored>> = stretches.iter().map(|_| Vec::new()).collect();
    for row in rows {
        let place = usize::try_from(row.place - 1).ok();
        if let Some(frames) = place.and_then(|place| stored.get_mut(place)) {
            frames.push(Stored {
                position: row.position,
                event: row.event,
                data: row.data,
            });
        }
    }
    for frames in &mut stored {
        frames.sort_unstable_by_key(|frame| frame.position);
    }
    Ok(stored)
}

/// Writes what merged frames say to the last frame of each range.
async fn rewrite(
    conn: &mut PgConnection,
    ranges: &Ranges,
    data: &[String],
) -> Result<(), sqlx::Error> {
    if data.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "UPDATE frames f SET data = u.data
         FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS u(book_id, position, data)
         WHERE f.book_id = u.book_id AND f.position = u.position",
        &ranges.books,
        &ranges.before,
        data,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes the frames of each book from what was its `oldest` up to what is, and writes down that and
/// how far its frames have been merged. Both ends of what is removed are known, so the dead rows
/// before it are not walked over again.
async fn forget(conn: &mut PgConnection, books: &[(&LockedBook, i64)]) -> Result<u64, sqlx::Error> {
    if books.is_empty() {
        return Ok(0);
    }
    let ids: Vec<Uuid> = books.iter().map(|(b, _)| b.id).collect();
    let were: Vec<i64> = books.iter().map(|(_, oldest)| *oldest).collect();
    let oldest: Vec<i64> = books.iter().map(|(b, _)| b.oldest).collect();
    let merged: Vec<i64> = books.iter().map(|(b, _)| b.merged).collect();
    let removed = sqlx::query_scalar!(
        r#"WITH moved AS (
               UPDATE books b SET oldest = u.oldest, merged = u.merged
               FROM unnest($1::uuid[], $3::bigint[], $4::bigint[]) AS u(id, oldest, merged)
               WHERE b.id = u.id),
           removed AS (
               DELETE FROM frames f
               USING unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS u(book_id, was, oldest)
               WHERE f.book_id = u.book_id AND f.position >= u.was AND f.position < u.oldest
               RETURNING 1)
           SELECT count(*) AS "removed!" FROM removed"#,
        &ids,
        &were,
        &oldest,
        &merged,
    )
    .fetch_one(conn)
    .await?;
    Ok(u64::try_from(removed).unwrap_or(0))
}
