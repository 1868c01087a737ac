//! The book's row as the write path uses it: locked at the start of a transaction, moved at its end.
//!
//! The row is the lock: whoever holds it is the only one, over all processes, that mints positions,
//! gives out sequence numbers and moves the watermark of that book.

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Settings, Totals};
use crate::engine::{Progress, Watermark};
use crate::rollup::RollupSpec;

/// When something is to be done for a book that is idle, in event time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Due {
    /// Somebody has to look.
    #[default]
    Unknown,
    /// When the watermark comes here.
    At(i64),
    /// Nothing is left to fire or close.
    Never,
}

impl Due {
    /// Whether it is when the watermark has come to `to`.
    #[must_use]
    pub fn by(self, to: Watermark) -> bool {
        match self {
            Self::Unknown => true,
            Self::At(due_ms) => to.ended(due_ms),
            Self::Never => false,
        }
    }

    /// As it is stored: null for unknown, and the greatest number for never.
    #[must_use]
    pub fn stored(self) -> Option<i64> {
        match self {
            Self::Unknown => None,
            Self::At(due_ms) => Some(due_ms),
            Self::Never => Some(i64::MAX),
        }
    }
}

/// Which version of a row it is: the transaction that wrote it (`xmin`), which changes with every
/// change of the row, whoever makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(pub i64);

/// A book's row, held until the transaction ends.
#[derive(Clone, Debug)]
pub struct LockedBook {
    /// Which book.
    pub id: Uuid,
    /// As it was locked.
    pub version: Version,
    /// Whether its input has ended.
    pub closed: bool,
    /// The first sequence number of its log that is not taken.
    pub next_seq: i64,
    /// The newest position minted.
    pub position: i64,
    /// The newest position when the row was locked.
    pub locked_at: i64,
    /// One more than the highest position that was pruned away.
    pub oldest: i64,
    /// Frames up to this position have been merged, as far as they could be.
    pub merged: i64,
    /// Grows by one with each transaction that changes anything a snapshot shows.
    pub revision: i64,
    /// Version of the chapters.
    pub structure_version: i64,
    /// Which set of windows counts.
    pub generation: i32,
    /// The highest generation that was ever given out.
    pub last_generation: i32,
    /// The position of the last wholesale replacement.
    pub barrier: i64,
    /// The run that is live.
    pub live_run: Option<Uuid>,
    /// Whether that is a recount: commits note their clicks for it.
    pub recounting: bool,
    /// The greatest event time of a click that retention has removed.
    pub clicks_removed_to_ms: Option<i64>,
    /// Where event time stands.
    pub progress: Progress,
    /// The watermark that `reopen` goes back to.
    pub before_close: Watermark,
    /// Time of the last receipt, in milliseconds since the epoch.
    pub last_received_ms: Option<i64>,
    /// What the watermark must come to before a window fires or closes while the book is idle;
    /// whoever does not say so leaves it unknown.
    pub due: Due,
    /// How its clicks fared.
    pub totals: Totals,
    /// For people.
    pub title: String,
    /// Hold from the next click.
    pub settings: Settings,
    /// In the order in which windows name them.
    pub rollups: Vec<RollupSpec>,
    /// Origins whose pages may call.
    pub origins: Vec<String>,
}

/// Some of a book's windows: those that count, or those that a recount makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowSet {
    /// Of which book.
    pub book: Uuid,
    /// Which of its sets.
    pub generation: i32,
}

impl LockedBook {
    /// The windows that count.
    #[must_use]
    pub fn windows(&self) -> WindowSet {
        WindowSet {
            book: self.id,
            generation: self.generation,
        }
    }

    /// A new set of windows, in which there are none.
    pub fn new_windows(&mut self) -> WindowSet {
        self.last_generation = self.last_generation.max(self.generation) + 1;
        WindowSet {
            book: self.id,
            generation: self.last_generation,
        }
    }
}

/// Locks the rows of `ids`. Books that do not exist or were deleted are left out.
///
/// A `SELECT … FOR NO KEY UPDATE` that stands alone: it gives the rows as the last holder committed them,
/// and under READ COMMITTED every later statement then sees what came with that. The rows are taken
/// in the order of their ids (`ORDER BY` goes before the lock), so that two processes that share
/// books do not deadlock. Unlike an `UPDATE` that does nothing, it leaves no version of the row
/// behind.
///
/// # Errors
/// What the database says.
pub async fn lock(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<LockedBook>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT id, xmin::text::bigint AS "version!", closed, next_seq, position, oldest, merged, revision,
                  structure_version, generation, last_generation, barrier, live_run, recounting,
                  clicks_removed_to_ms, watermark_ms, newest_event_ms,
                  watermark_before_close_ms, last_received_ms,
                  received, on_time, late, dropped, duplicates, filtered, rejected, title,
                  settings AS "settings: Json<Settings>",
                  rollups AS "rollups: Json<Vec<RollupSpec>>", origins
           FROM books
           WHERE id = ANY($1) AND NOT deleted
           ORDER BY id
           FOR NO KEY UPDATE"#,
        ids,
    )
    .fetch_all(conn)
    .await?;
    let books = rows.into_iter().map(|row| LockedBook {
        id: row.id,
        version: Version(row.version),
        closed: row.closed,
        next_seq: row.next_seq,
        position: row.position,
        locked_at: row.position,
        oldest: row.oldest,
        merged: row.merged,
        revision: row.revision,
        structure_version: row.structure_version,
        generation: row.generation,
        last_generation: row.last_generation,
        barrier: row.barrier,
        live_run: row.live_run,
        recounting: row.recounting,
        clicks_removed_to_ms: row.clicks_removed_to_ms,
        progress: Progress {
            watermark: Watermark::from_stored(row.watermark_ms),
            newest_event_ms: row.newest_event_ms,
        },
        before_close: Watermark::from_stored(row.watermark_before_close_ms),
        last_received_ms: row.last_received_ms,
        due: Due::Unknown,
        totals: Totals {
            received: row.received,
            on_time: row.on_time,
            late: row.late,
            dropped: row.dropped,
            duplicates: row.duplicates,
            filtered: row.filtered,
            rejected: row.rejected,
        },
        title: row.title,
        settings: row.settings.0,
        rollups: row.rollups.0,
        origins: row.origins,
    });
    Ok(books.collect())
}

/// Takes the row of `id` if nobody holds it; says whether it did. For work that can be left to
/// another time: whoever waits for a row keeps a lane waiting.
///
/// # Errors
/// What the database says.
pub async fn take_if_free(conn: &mut PgConnection, id: Uuid) -> Result<bool, sqlx::Error> {
    let row = sqlx::query!(
        "SELECT id FROM books WHERE id = $1 FOR UPDATE SKIP LOCKED",
        id
    );
    Ok(row.fetch_optional(conn).await?.is_some())
}

/// Writes back what a command changes besides what [`crate::frame::store`] writes.
///
/// # Errors
/// What the database says.
pub async fn reconfigure(conn: &mut PgConnection, book: &LockedBook) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE books
         SET closed = $2, watermark_before_close_ms = $3, title = $4, settings = $5, rollups = $6,
             origins = $7, structure_version = $8, generation = $9, last_generation = $10,
             barrier = $11, live_run = $12, recounting = $13
         WHERE id = $1",
        book.id,
        book.closed,
        book.before_close.stored(),
        book.title,
        Json(&book.settings) as _,
        Json(&book.rollups) as _,
        &book.origins,
        book.structure_version,
        book.generation,
        book.last_generation,
        book.barrier,
        book.live_run,
        book.recounting,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes to the book's log what happened to it besides clicks.
///
/// # Errors
/// What the database says.
pub async fn log(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    kind: &str,
    received_ms: i64,
    body: &serde_json::Value,
) -> Result<(), sqlx::Error> {
    let seq = book.next_seq;
    book.next_seq += 1;
    sqlx::query!(
        "INSERT INTO book_log (book_id, seq, kind, received_ms, body) VALUES ($1, $2, $3, $4, $5)",
        book.id,
        seq,
        kind,
        received_ms,
        body,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether anything happened to the book from `seq` on that makes a recount begin anew: its chapters
/// were changed, or it was reopened, which moves the watermark back.
///
/// # Errors
/// What the database says.
pub async fn unsettled_since(
    conn: &mut PgConnection,
    id: Uuid,
    seq: i64,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM book_log WHERE book_id = $1 AND seq >= $2
                            AND kind IN ('chapters', 'reopened')) AS "any!""#,
        id,
        seq
    )
    .fetch_one(conn)
    .await
}

/// Whether the book was ever reopened.
///
/// # Errors
/// What the database says.
pub async fn was_reopened(conn: &mut PgConnection, id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM book_log WHERE book_id = $1 AND kind = 'reopened')
           AS "ever!""#,
        id
    )
    .fetch_one(conn)
    .await
}
