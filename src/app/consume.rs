//! `pagetide consume`: one job, to the end of its source or until it is asked to end.

use std::time::Duration;

use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;

use super::{AppError, asked_to_end, catch, embedded_end, join_database};
use crate::config::ConsumeConfig;
use crate::job::{self, JobConfig};
use crate::{db, telemetry};

/// Connections besides the lane's and the lease's.
const CONNECTIONS: u32 = 2;

/// How long connections may take to be closed.
const LAST_STEP: Duration = Duration::from_secs(1);

/// Runs one job.
///
/// # Errors
/// It ended before its source.
pub async fn consume(config: ConsumeConfig) -> Result<(), AppError> {
    telemetry::start_logging(&config.database.log, config.database.log_format);
    let mut signals = (
        catch(SignalKind::terminate())?,
        catch(SignalKind::interrupt())?,
    );
    let prepared = tokio::select! {
        prepared = join_database(&config.database) => prepared?,
        () = asked_to_end(&mut signals) => return Ok(()),
    };
    let mut database = prepared;
    let pool = db::read_pool(&database.options, CONNECTIONS);
    let stop = CancellationToken::new();
    let job = JobConfig {
        book: config.book,
        name: config.job,
        mode: config.commit,
        format: config.format,
        follow: config.follow,
        checkpoint_every: usize::try_from(config.checkpoint_every).unwrap_or(usize::MAX),
        path: config.file,
    };
    let mut running = std::pin::pin!(job::run(job, &database.options, &pool, &stop));
    let outcome = tokio::select! {
        outcome = &mut running => outcome.map_err(AppError::from),
        () = asked_to_end(&mut signals) => {
            stop.cancel();
            running.await.map_err(AppError::from)
        }
        status = embedded_end(&mut database.embedded) => Err(AppError::PostgresEnded(status)),
    };
    // Where its Postgres has ended, the job still holds a connection that answers no more.
    let _ = tokio::time::timeout(LAST_STEP, pool.close()).await;
    if let Some(embedded) = database.embedded {
        embedded.stop().await?;
    }
    outcome
}
