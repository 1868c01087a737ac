//! The end of the show: everything is acknowledged, the book is finished, and the database is asked
//! what it holds.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::time::sleep;

use super::DemoError;
use super::courier::Courier;
use crate::db::embedded::Embedded;
use crate::demo::book::{ADDED_UP, SLUG};
use crate::demo::show::End;
use crate::demo::tally::Tally;

/// How long clicks on the server's disk may take to be counted.
const DRAIN: Duration = Duration::from_secs(30);

/// What the tables say.
struct Counted {
    clicks: i64,
    windows: i64,
    dropped: i64,
    duplicates: i64,
    position: i64,
}

/// Finishes the book, once every sender has its answer, and adds up.
pub(super) async fn add_up(
    courier: &Courier,
    tally: &Tally,
    data_dir: &Path,
) -> Result<End, DemoError> {
    let path = format!("/v1/books/{SLUG}");
    // It may not be there yet.
    courier.manage("GET", &path, None).await?;
    let asked = Instant::now();
    // Clicks that only the server's disk has are not in the queue which the end of the book goes
    // through.
    while courier.spooled() && asked.elapsed() < DRAIN {
        let counted = count(data_dir).await?;
        if u64::try_from(counted.clicks).is_ok_and(|clicks| clicks >= tally.acknowledged()) {
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    courier
        .manage("POST", &format!("{path}/close"), None)
        .await?;
    let counted = count(data_dir).await?;
    Ok(End {
        acknowledged: tally.acknowledged(),
        clicks: counted.clicks,
        windows: counted.windows,
        dropped: counted.dropped,
        duplicates: counted.duplicates,
        position: counted.position,
    })
}

/// Asks the database itself, past the server. The weight of a window that counts clicks is how many
/// it has.
async fn count(data_dir: &Path) -> Result<Counted, DemoError> {
    let options = Embedded::running(data_dir)?.ok_or(DemoError::Over)?;
    let mut connection: PgConnection = options.connect().await?;
    let counted = sqlx::query_as!(
        Counted,
        r#"SELECT (SELECT count(*) FROM clicks WHERE book_id = book.id) AS "clicks!",
                  (SELECT coalesce(sum(weight), 0)::bigint FROM windows
                   WHERE book_id = book.id AND generation = book.generation AND rollup = $2) AS "windows!",
                  book.dropped, book.duplicates, book.position
           FROM books book JOIN book_slugs slug ON slug.book_id = book.id
           WHERE slug.slug = $1"#,
        SLUG,
        ADDED_UP,
    )
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    Ok(counted)
}
