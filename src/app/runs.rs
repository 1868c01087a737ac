//! `pagetide import` and `pagetide recount`: runs straight in the database, beside a server or without
//! one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{AppError, Database, asked_to_end, catch, embedded_end, join_database};
use crate::book::directory::{Directory, Known, LookupError};
use crate::config::DatabaseConfig;
use crate::config::runs::{ImportConfig, RecountConfig};
use crate::ingest::lane::{LaneConfig, Lanes};
use crate::ingest::retry::Retries;
use crate::run::{Run, State};
use crate::runs::import::ImportOptions;
use crate::runs::{RunError, Runs};
use crate::source::SourceError;
use crate::source::lines::Lines;
use crate::stream::announce;
use crate::stream::hub::Hub;
use crate::terminal::{self, Clicks, Progress};
use crate::{db, telemetry};

/// Connections besides those of the lane and of the runs.
const CONNECTIONS: u32 = 3;

/// How long the last steps may take.
const GRACE: Duration = Duration::from_secs(10);

/// How often a recount is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Why a command did not do what it was to do.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No such book.
    #[error("there is no book {0}")]
    NoSuchBook(String),
    /// The book cannot be read.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The log cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The run was not begun, or is lost.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It ended early.
    #[error("{0}")]
    Failed(String),
    /// Somebody ended it.
    #[error("the run was cancelled")]
    Cancelled,
    /// It was asked to end.
    #[error("asked to end; what was done so far is kept, and the same command goes on")]
    Stopped,
}

/// What runs need of a process.
struct Station {
    runs: Arc<Runs>,
    directory: Arc<Directory>,
    tasks: TaskTracker,
    /// Begins the end.
    stop: CancellationToken,
    /// Ends what serves others.
    end: CancellationToken,
}

impl Station {
    fn open(database: &Database) -> Self {
        let options = &database.options;
        let pool = db::read_pool(options, CONNECTIONS);
        let (stop, end): (CancellationToken, CancellationToken) = Default::default();
        let tasks = TaskTracker::new();
        let hub = Arc::new(Hub::new(pool.clone(), pool.clone()));
        let announcing = announce::announce(Arc::clone(&hub), options.clone(), end.clone());
        tasks.spawn(announcing);
        let lane = LaneConfig {
            lanes: 1,
            gather: Duration::ZERO,
            queue_clicks: 100,
            retries: Retries::default(),
        };
        let lanes = Arc::new(Lanes::start(&lane, options, &hub, &tasks, &end));
        let directory = Arc::new(Directory::new(pool.clone()));
        let known = Arc::clone(&directory);
        let runs = Runs::new(pool, options.clone(), lanes, known, stop.clone());
        Self {
            runs: Arc::new(runs),
            directory,
            tasks,
            stop,
            end,
        }
    }

    async fn book(&self, name: &str) -> Result<Arc<Known>, CommandError> {
        let known = self.directory.find(name).await?;
        known.ok_or_else(|| CommandError::NoSuchBook(name.to_owned()))
    }

    async fn close(self) {
        self.stop.cancel();
        self.end.cancel();
        self.tasks.close();
        drop(self.runs);
        // What is committed is committed; a task that hangs must not hold the process up.
        let _ = tokio::time::timeout(GRACE, self.tasks.wait()).await;
    }
}

/// Does `work` with a database, to its end or until the process is asked to end.
async fn with_station<W>(
    config: &DatabaseConfig,
    work: impl FnOnce(Arc<Station>) -> W,
) -> Result<(), AppError>
where
    W: Future<Output = Result<(), CommandError>>,
{
    telemetry::start_logging(&config.log, config.log_format);
    let mut signals = (
        catch(SignalKind::terminate())?,
        catch(SignalKind::interrupt())?,
    );
    let prepared = tokio::select! {
        prepared = join_database(config) => prepared?,
        () = asked_to_end(&mut signals) => return Ok(()),
    };
    let mut database = prepared;
    let station = Arc::new(Station::open(&database));
    let stop = station.stop.clone();
    let mut working = Box::pin(work(Arc::clone(&station)));
    let outcome = tokio::select! {
        outcome = &mut working => outcome.map_err(AppError::from),
        () = asked_to_end(&mut signals) => {
            stop.cancel();
            let last = tokio::time::timeout(GRACE, &mut working).await;
            last.unwrap_or(Err(CommandError::Stopped)).map_err(AppError::from)
        }
        status = embedded_end(&mut database.embedded) => Err(AppError::PostgresEnded(status)),
    };
    drop(working);
    if let Some(station) = Arc::into_inner(station) {
        station.close().await;
    }
    if let Some(embedded) = database.embedded {
        embedded.stop().await?;
    }
    outcome
}

/// Imports logs, one after the other.
///
/// # Errors
/// One of them could not be imported to its end.
pub async fn import(config: ImportConfig) -> Result<(), AppError> {
    let database = config.database.clone();
    with_station(&database, move |station| async move {
        for file in &config.files {
            import_file(&station, &config, file).await?;
        }
        Ok(())
    })
    .await
}

async fn import_file(
    station: &Station,
    config: &ImportConfig,
    file: &Path,
) -> Result<(), CommandError> {
    let book = station.book(&config.book).await?;
    let lines = Lines::open(file, 0, false).await?;
    let length = lines.length().await;
    let options = ImportOptions {
        format: config.format,
        rules: config.rules(),
        source: config.source.clone().unwrap_or_else(|| source_of(file)),
    };
    let mut progress = Progress::start(format!("import {}", file.display()), 0, length);
    let import = station.runs.import(book, options).await?;
    let mut told = 0;
    let run = import
        .run(lines, |at| {
            let lines = usize::try_from(at.lines - told).unwrap_or(0);
            told = at.lines;
            progress.taken(lines, at.offset);
            progress.tell();
        })
        .await?;
    for rejected in run.rejections.iter().flatten() {
        progress.rejected(&rejected.line.to_string(), &rejected.reason);
    }
    let left_out = terminal::left_out(run.skipped);
    progress.finish(&format!(
        "; {} counted, {} known already, {} rejected{left_out}",
        run.counted, run.duplicates, run.rejected
    ));
    ended(run)
}

/// The name of a source that was given none.
fn source_of(file: &Path) -> String {
    let name = file.file_name().map(|name| name.to_string_lossy());
    let name = name.unwrap_or_default();
    name.strip_suffix(".gz").unwrap_or(&name).to_owned()
}

fn ended(run: Run) -> Result<(), CommandError> {
    match run.state {
        State::Done => Ok(()),
        State::Cancelled => Err(CommandError::Cancelled),
        State::Running => Err(CommandError::Stopped),
        State::Failed => Err(CommandError::Failed(run.error.unwrap_or_default())),
    }
}

/// Counts a book again.
///
/// # Errors
/// It could not be done to its end.
pub async fn recount(config: RecountConfig) -> Result<(), AppError> {
    let database = config.database.clone();
    with_station(&database, move |station| async move {
        let book = station.book(&config.book).await?.book.id;
        let mut run = station.runs.recount(book).await?;
        let id = run.id;
        let progress = Clicks::start(format!("recount {}", config.book));
        let done = async {
            while run.state == State::Running && !station.stop.is_cancelled() {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = station.stop.cancelled() => {}
                }
                run = station.runs.find(book, id).await?;
                progress.at(run.processed, run.total);
            }
            Ok::<Run, CommandError>(run)
        };
        // A server beside it may take it first; either way it is done.
        let run = tokio::select! {
            run = done => run?,
            () = Arc::clone(&station.runs).keep() => station.runs.find(book, id).await?,
        };
        if run.state != State::Running {
            station.runs.sweep(book, id).await.map_err(RunError::from)?;
        }
        progress.finish(&format!("{} clicks counted again", run.processed));
        ended(run)
    })
    .await
}
