//! `COPY`, the fastest way into a table of Postgres: the limit of a batch.

use std::path::Path;
use std::time::Instant;

use tokio::process::Command;

use crate::Error;
use crate::context::Context;
use crate::service::Database;

/// Takes all clicks out of the log, as text, and copies the very same ones, in the same order and
/// with the same ids, back into the same table, empty again; says how many a second. Fails unless
/// there are `clicks` of them.
///
/// The time is that of a `psql` from its start to its end.
pub(crate) async fn clicks_a_second(
    context: &Context,
    database: &Database,
    clicks: u64,
) -> Result<f64, Error> {
    let file = context.folder.join("clicks.copy");
    let url = database.url()?;
    let taken_out = psql(&url, "TO", &file).await?;
    if taken_out != clicks {
        return Err(format!("{clicks} clicks were acknowledged, {taken_out} are there").into());
    }
    database.take_clicks().await?;
    let begin = Instant::now();
    let copied = psql(&url, "FROM", &file).await?;
    let took = begin.elapsed();
    database.take_clicks().await?;
    std::fs::remove_file(&file)?;
    if copied != clicks {
        return Err(format!("{copied} of {clicks} clicks were copied").into());
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(copied as f64 / took.as_secs_f64())
}

/// Copies the table to or from a file; says how many rows.
async fn psql(url: &str, direction: &str, file: &Path) -> Result<u64, Error> {
    let copy = format!(r"\copy clicks {direction} '{}'", file.display());
    let mut psql = Command::new("psql");
    psql.args(["-X", "-v", "ON_ERROR_STOP=1", "-c", &copy, url]);
    let output = psql.output().await?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rows = said
        .trim()
        .strip_prefix("COPY ")
        .and_then(|n| n.parse().ok());
    rows.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned().into())
}
