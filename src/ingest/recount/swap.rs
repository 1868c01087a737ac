//! The swap: what a recount has counted takes the place of what the book has, in one short transaction.

use serde_json::json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::fold::{Counting, fold};
use super::{left_alone, tail};
use crate::book::hot::{self, LockedBook};
use crate::book::{self, chapters};
use crate::engine::{Plan, Watermark};
use crate::frame;
use crate::ingest::command::Done;
use crate::ingest::commit::{CommitError, Committed, Refusal};
use crate::ingest::pulse::Pulse;
use crate::ingest::runs;
use crate::run::moving::{self, Ending};
use crate::run::recount::{self, Beginning, Recount};
use crate::structure::Structure;
use crate::time::Timestamp;

/// How a recount of this book counts.
///
/// # Errors
/// The rollups cannot be counted by, or what the database says.
pub async fn counting(
    conn: &mut PgConnection,
    book: &LockedBook,
    recount: &Recount,
) -> Result<Counting, CommitError> {
    let rollups = recount.rollups.as_ref().unwrap_or(&book.rollups);
    let plan = book::plan(&book.settings, rollups)?;
    let chapters = chapters::of_book(conn, book.id).await?.unwrap_or_default();
    let structure = Structure::new(&chapters.list, book.settings.canonical_pages);
    Ok(Counting {
        windows: hot::WindowSet {
            book: book.id,
            generation: recount.generation,
        },
        plan: Plan {
            structure: structure.into(),
            ..plan
        }
        .bounded(),
        watermark: book.progress.watermark,
        left_alone_to_ms: book.clicks_removed_to_ms,
    })
}

/// Swaps, once little is left: takes that in, fires what has ended meanwhile, and has the book count by
/// the new windows. Readers are not told what is different, but to begin anew. `Err` holds the answer
/// where nothing is done.
pub(in crate::ingest) async fn swap(
    conn: &mut PgConnection,
    book: &mut LockedBook,
    (run, epoch): (Uuid, i64),
    now: Timestamp,
    pulse: &Pulse,
) -> Result<Result<Done, Committed>, CommitError> {
    let recount = recount::find(conn, book.id, (run, epoch)).await?;
    let recount = recount.ok_or(CommitError::LostLease)?;
    book.revision += 1;
    if hot::unsettled_since(conn, book.id, recount.first_seq).await? {
        let beginning = Beginning::of(book);
        recount::begin_anew(conn, book.id, run, beginning).await?;
        return Ok(Ok(Done {
            entry: None,
            frames: vec![runs::tell(conn, book, run, now).await?],
            chapters: None,
            note: None,
        }));
    }
    let Some(after_seq) = recount.place.after_seq else {
        return Ok(Err(Committed::refused(Refusal::NotYet)));
    };
    let counting = counting(conn, book, &recount).await?;
    let little = counting.little();
    let rest = tail::tail_page(&mut *conn, book.id, after_seq, little + 1).await?;
    if rest.len() > little {
        return Ok(Err(Committed::refused(Refusal::NotYet)));
    }
    left_alone::copy_open(conn, book, &recount).await?;
    fold(conn, &counting, &rest, now, pulse).await?;
    fire(conn, book, &recount).await?;
    pulse.beat();
    let place = recount::Place {
        after_seq: rest.last().map_or(Some(after_seq), |kept| Some(kept.seq)),
        ..recount.place
    };
    let rest = i64::try_from(rest.len()).unwrap_or(i64::MAX);
    let processed = recount.processed + rest;
    if rest > 0 && !recount::step(conn, book.id, &recount, place, processed).await? {
        return Err(CommitError::LostLease);
    }
    let ended = moving::end(conn, book.id, (run, Some(epoch)), &Ending::Done, now).await?;
    ended.ok_or(CommitError::LostLease)?;
    book.generation = recount.generation;
    if let Some(rollups) = recount.rollups {
        book.rollups = rollups;
    }
    book.live_run = None;
    book.recounting = false;
    let frames = vec![
        runs::tell(conn, book, run, now).await?,
        frame::mint_status(book, now, "recounted")?,
    ];
    book.barrier = book.position;
    let body = json!({ "run": run, "rollups": book.rollups });
    Ok(Ok(Done {
        entry: Some(("recounted", body)),
        frames,
        chapters: None,
        note: None,
    }))
}

/// Fires, in windows that do not count yet, what has ended since it was written, and what had fired
/// before a book was reopened.
async fn fire(
    conn: &mut PgConnection,
    book: &LockedBook,
    recount: &Recount,
) -> Result<(), CommitError> {
    let watermark_ms = book.progress.watermark.stored().unwrap_or(i64::MIN);
    sqlx::query!(
        "UPDATE windows SET fired = true
         WHERE book_id = $1 AND generation = $2 AND NOT fired AND end_ms <= $3",
        book.id,
        recount.generation,
        watermark_ms,
    )
    .execute(&mut *conn)
    .await?;
    if book.progress.watermark == Watermark::END_OF_TIME {
        return Ok(());
    }
    // Beyond the watermark have fired sessions of which a part had, and whatever the close of a book that
    // was reopened has fired.
    let reopened = hot::was_reopened(conn, book.id).await?;
    let kept = left_alone::kept(book, recount)?;
    let (from, to): (Vec<i16>, Vec<i16>) = kept.iter().map(|kept| (kept.from, kept.to)).unzip();
    // OFFSET keeps it a look-up by key for each open window: joined, and without statistics yet, all of
    // one set was walked for each window of the other.
    sqlx::query!(
        "UPDATE windows n SET fired = true
         WHERE n.book_id = $1 AND n.generation = $2 AND NOT n.fired AND n.end_ms > $4
           AND (n.session OR $7::boolean)
           AND EXISTS (
               SELECT FROM unnest($5::smallint[], $6::smallint[]) AS k(from_rollup, to_rollup)
               JOIN windows o ON o.book_id = $1 AND o.generation = $3
                    AND o.rollup = k.from_rollup AND o.start_ms = n.start_ms
                    AND o.end_ms = n.end_ms AND o.group_key = n.group_key
               WHERE k.to_rollup = n.rollup AND o.fired
               OFFSET 0)",
        book.id,
        recount.generation,
        book.generation,
        watermark_ms,
        &from,
        &to,
        reopened,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes what a recount that has ended has left: windows that count no more, or never did, and the
/// notes of what came while it went on. Of one that is live, whoever does it, nothing. A bit at a time; whatever interrupts it, the next call goes on.
///
/// # Errors
/// What the database says.
pub async fn sweep(pool: &PgPool, book: Uuid, run: Uuid) -> Result<(), sqlx::Error> {
    const BIT: i64 = 5000;
    let generations = sqlx::query!(
        r#"SELECT b.generation AS counts, r.generation AS "made!"
           FROM books b JOIN runs r ON r.book_id = b.id AND r.id = $2 AND r.generation IS NOT NULL
                AND r.state <> 'running'
           WHERE b.id = $1"#,
        book,
        run
    );
    let Some(generations) = generations.fetch_optional(pool).await? else {
        return Ok(());
    };
    // A recount that began later makes windows of a higher generation than this one did.
    let before = (0, generations.counts - 1);
    let behind = (generations.counts + 1, generations.made);
    for (from, to) in [before, behind] {
        loop {
            let removed = sqlx::query!(
                "DELETE FROM windows WHERE book_id = $1 AND ctid = ANY(ARRAY(
                     SELECT ctid FROM windows
                     WHERE book_id = $1 AND generation >= $2 AND generation <= $3
                     ORDER BY book_id, generation, rollup, start_ms LIMIT $4))",
                book,
                from,
                to,
                BIT,
            );
            if removed.execute(pool).await?.rows_affected() == 0 {
                break;
            }
        }
    }
    loop {
        let removed = sqlx::query!(
            "DELETE FROM recount_tail WHERE book_id = $1 AND seq IN (
                 SELECT t.seq FROM recount_tail t
                 WHERE t.book_id = $1
                   AND t.seq < coalesce((SELECT l.first_seq FROM runs l
                                         WHERE l.book_id = $1 AND l.state = 'running'
                                           AND l.kind = 'recount'),
                                        (SELECT b.next_seq FROM books b WHERE b.id = $1))
                 ORDER BY t.seq LIMIT $2)",
            book,
            BIT,
        );
        if removed.execute(pool).await?.rows_affected() == 0 {
            break;
        }
    }
    let mut conn = pool.acquire().await?;
    recount::swept(&mut conn, book, run).await
}
