//! `progress` frames: how far a run is. Each replaces the one before it in the buffer.

use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{NewFrame, Stamp, mint};
use crate::book::hot::LockedBook;
use crate::run::Run;
use crate::time::Timestamp;

/// Mints a `progress` frame: a run has begun, has moved or has ended.
///
/// # Errors
/// It cannot be written as JSON.
pub fn mint_progress(
    book: &mut LockedBook,
    now: Timestamp,
    run: &Run,
) -> Result<NewFrame, serde_json::Error> {
    #[derive(Serialize)]
    struct ProgressBody<'a> {
        #[serde(flatten)]
        stamp: Stamp,
        run: &'a Run,
    }
    mint(book, now, "progress", |stamp| {
        serde_json::to_string(&ProgressBody { stamp, run })
    })
}

/// Removes a frame that a newer one has replaced: whoever has not got it yet gets that.
///
/// # Errors
/// What the database says.
pub async fn forget(conn: &mut PgConnection, book: Uuid, position: i64) -> Result<(), sqlx::Error> {
    let forgotten = sqlx::query!(
        "DELETE FROM frames WHERE book_id = $1 AND position = $2",
        book,
        position
    );
    forgotten.execute(conn).await?;
    Ok(())
}
