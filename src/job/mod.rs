//! Jobs: each reads a source, hands its clicks to the write path, and keeps its place.
//!
//! **Promises.** A job of a book is run by one process at a time ([`lease`]). In the default mode its
//! clicks, their counts and its place commit together, so that whatever is killed, each line counts
//! once; [`CommitMode`] says what the others do. While the database is away it waits. A line that
//! cannot be counted never stops it.
//!
//! **Called by** `app` alone, for `pagetide consume`. Works beside servers and without one.

mod commit;
mod lease;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::lease::Lease;
use crate::book::directory::{Directory, Known, LookupError};
use crate::checkpoint::{Checkpoint, CommitMode, State, Stored};
use crate::ingest::admission::Circumstances;
use crate::ingest::commit::Batch;
use crate::ingest::lane::{LaneConfig, Lanes};
use crate::ingest::reading::{self, Format, Reading};
use crate::ingest::retry::Retries;
use crate::source::access_log::{Rule, Rules};
use crate::source::lines::Lines;
use crate::source::{Record, SourceError};
use crate::stream::announce;
use crate::stream::hub::Hub;
use crate::terminal::{self, Progress};
use crate::time::Timestamp;

/// Most lines that one transaction takes.
const MAX_LINES: usize = 1000;

/// How long the last step may take once the job is asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// Most bytes of a job's name.
const MAX_NAME_BYTES: usize = 100;

/// A job to run.
#[derive(Clone, Debug)]
pub struct JobConfig {
    /// Id or slug of the book.
    pub book: String,
    /// Name of the job, unique within the book.
    pub name: String,
    /// What is kept of its progress.
    pub mode: CommitMode,
    /// How the source is written.
    pub format: Format,
    /// Whether to wait for what is appended.
    pub follow: bool,
    /// After how many lines its place is kept.
    pub checkpoint_every: usize,
    /// The source; `-` is standard input.
    pub path: PathBuf,
}

/// Why a job ended before its source.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The name cannot be one.
    #[error("a job's name has 1 to {MAX_NAME_BYTES} bytes, none of them a control character")]
    Name,
    /// No such book.
    #[error("there is no book {0}")]
    NoSuchBook(String),
    /// The book takes no clicks.
    #[error("the book {0} is closed; reopen it, and the job goes on where it was")]
    Closed(String),
    /// The book cannot be read.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Another process has the job.
    #[error("the job {0} of this book is run by another process")]
    Taken(String),
    /// Another process has taken the job over.
    #[error("the job {0} was taken over by another process; nothing more was counted here")]
    Lost(String),
    /// The job was begun in another mode.
    #[error(
        "the job {job} was begun with --commit {mode}; go on with that, or give it another name"
    )]
    OtherMode {
        /// Its name.
        job: String,
        /// The mode of its first run.
        mode: String,
    },
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Lines cannot be committed, however often it is tried.
    #[error("the lines from byte {from} to {to} cannot be committed; the log says why")]
    Failed {
        /// First byte.
        from: u64,
        /// First byte after them.
        to: u64,
    },
    /// The place could not be kept.
    #[error("the database is away, so the place could not be kept: some lines will be read again")]
    NotKept,
    /// What the database says.
    #[error("the job's row cannot be written")]
    Database(#[from] sqlx::Error),
}

/// Runs a job to the end of its source, or until `stop`.
///
/// # Errors
/// It ended before; what it had taken is as its mode says.
pub async fn run(
    config: JobConfig,
    database: &PgConnectOptions,
    pool: &PgPool,
    stop: &CancellationToken,
) -> Result<(), JobError> {
    let fits = (1..=MAX_NAME_BYTES).contains(&config.name.len());
    if !fits || config.name.chars().any(char::is_control) {
        return Err(JobError::Name);
    }
    let directory = Directory::new(pool.clone());
    let known = directory.find(&config.book).await?;
    let known = known.ok_or_else(|| JobError::NoSuchBook(config.book.clone()))?;
    if known.book.closed {
        return Err(JobError::Closed(config.book));
    }
    let (lease, stored) = Lease::take(database, known.book.id, &config.name, config.mode).await?;
    if stored.mode != config.mode.name() {
        return Err(JobError::OtherMode {
            job: config.name,
            mode: stored.mode,
        });
    }
    let lines = Lines::open(&config.path, stored.offset, config.follow);
    let lines = tokio::select! {
        lines = lines => lines?,
        () = stop.cancelled() => return Ok(()),
    };
    let tasks = TaskTracker::new();
    let (end, hurry): (CancellationToken, CancellationToken) = Default::default();
    let hub = Arc::new(Hub::new(pool.clone(), pool.clone()));
    tasks.spawn(announce::announce(
        Arc::clone(&hub),
        database.clone(),
        end.clone(),
    ));
    let lane = LaneConfig {
        lanes: 1,
        gather: Duration::ZERO,
        queue_clicks: 10_000,
        retries: Retries::default(),
    };
    let length = lines.length().await.filter(|_| !config.follow);
    let job = Job {
        progress: Progress::start(format!("job {}", config.name), stored.offset, length),
        id_key: id_key(&config),
        lanes: Lanes::start(&lane, database, &hub, &tasks, &hurry),
        directory,
        known,
        pool: pool.clone(),
        stop: stop.clone(),
        since_kept: 0,
        rules: Rules::default(),
        stored,
        config,
    };
    let outcome = attended(job, lines, lease, &hurry).await;
    hurry.cancel();
    end.cancel();
    tasks.close();
    // What is committed is committed; a task that hangs must not hold the process up.
    let _ = tokio::time::timeout(GRACE, tasks.wait()).await;
    outcome
}

/// Runs the job while its lease holds, and a little longer than it is asked to end.
async fn attended(
    mut job: Job,
    lines: Lines,
    lease: Lease,
    hurry: &CancellationToken,
) -> Result<(), JobError> {
    let stop = job.stop.clone();
    let mut running = std::pin::pin!(job.run(lines));
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        outcome = &mut running => return outcome,
        lost = lease.keep() => return Err(lost),
        () = too_late => hurry.cancel(),
    }
    let last = tokio::time::timeout(GRACE, running).await;
    last.unwrap_or(Err(JobError::NotKept))
}

/// What ids are made of in the modes in which a line that is read again must be the same click. No
/// request can have it as its key, for a header holds no end of a line.
fn id_key(config: &JobConfig) -> Option<String> {
    match config.mode {
        CommitMode::Auto | CommitMode::CheckpointAdd => None,
        CommitMode::CheckpointPut | CommitMode::Transactional => {
            Some(format!("\njob:{}", config.name))
        }
    }
}

/// What became of lines.
enum Step {
    /// They were taken.
    Taken,
    /// The job was asked to end before they could be.
    Stopped,
}

/// A running job.
struct Job {
    config: JobConfig,
    id_key: Option<String>,
    rules: Rules,
    directory: Directory,
    known: Arc<Known>,
    lanes: Lanes,
    pool: PgPool,
    stop: CancellationToken,
    progress: Progress,
    /// Where it is: ahead of its row by what was taken since its place was kept.
    stored: Stored,
    since_kept: usize,
}

impl Job {
    fn book(&self) -> Uuid {
        self.known.book.id
    }

    async fn run(&mut self, mut lines: Lines) -> Result<(), JobError> {
        let outcome = self.take_all(&mut lines).await;
        let kept = match outcome {
            Err(JobError::Lost(_)) => Ok(()),
            _ => self.keep_place().await,
        };
        let has_state = self.config.mode != CommitMode::Auto;
        let in_all = has_state.then(|| in_all(&self.stored.state));
        self.progress.finish(&in_all.unwrap_or_default());
        outcome.and(kept)
    }

    async fn take_all(&mut self, lines: &mut Lines) -> Result<(), JobError> {
        loop {
            let left = self.config.checkpoint_every - self.since_kept;
            let Some(mut records) = self.next(lines, left.min(MAX_LINES)).await? else {
                return Ok(());
            };
            if let Some(torn) = records.pop_if(|record| record.torn && self.refuses(record)) {
                let reason = "the last line is not finished; it is left for the next run";
                self.progress.rejected(&at_byte(torn.line_offset), reason);
                if records.is_empty() {
                    return Ok(());
                }
            }
            if let Step::Stopped = self.take_in_parts(&records).await? {
                return Ok(());
            }
            if self.since_kept >= self.config.checkpoint_every {
                self.keep_place().await?;
            }
        }
    }

    /// The next lines; `None` at the end, or when the job is asked to end.
    async fn next(
        &mut self,
        lines: &mut Lines,
        most: usize,
    ) -> Result<Option<Vec<Record>>, JobError> {
        let mut gathering = std::pin::pin!(lines.gather(most));
        loop {
            self.progress.tell();
            tokio::select! {
                () = self.stop.cancelled() => return Ok(None),
                records = &mut gathering => {
                    let records = records?;
                    return Ok((!records.is_empty()).then_some(records));
                }
                () = self.progress.due() => {}
            }
        }
    }

    /// Takes the records; where they cannot be committed, in halves, until the one that stands in
    /// the way is alone and all before it are taken.
    async fn take_in_parts(&mut self, records: &[Record]) -> Result<Step, JobError> {
        let mut parts = vec![records];
        while let Some(part) = parts.pop() {
            match self.take(part).await {
                Err(JobError::Failed { .. }) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Ok(Step::Taken) => {}
                otherwise => return otherwise,
            }
        }
        Ok(Step::Taken)
    }

    /// Counts what the records hold.
    async fn take(&mut self, records: &[Record]) -> Result<Step, JobError> {
        if let Ok(Some(known)) = self.directory.find(&self.config.book).await {
            // Its settings may have changed. Whether it is still there, the commit says.
            if known.book.id == self.known.book.id {
                self.known = known;
            }
        }
        let (batch, state, rejections) = self.admit(records);
        let to = records
            .last()
            .map_or(self.stored.offset, |r| r.offset_after);
        let Some(state) = self.commit(batch, state, to).await? else {
            return Ok(Step::Stopped);
        };
        self.stored.state = state;
        self.stored.offset = to;
        self.since_kept += records.len();
        self.progress.taken(records.len(), to);
        for (offset, reason) in rejections {
            self.progress.rejected(&at_byte(offset), &reason);
        }
        Ok(Step::Taken)
    }

    fn circumstances(&self) -> Circumstances<'_> {
        Circumstances {
            book: &self.known,
            received_at: Timestamp::now(),
            idempotency_key: self.id_key.as_deref(),
            by_key: false,
            visitor: None,
            leave_out: None,
        }
    }

    /// Whether a record cannot be read, or is not let in.
    fn refuses(&self, record: &Record) -> bool {
        let format = self.config.format;
        let read = reading::read(record, format, &self.rules, self.circumstances());
        matches!(read, Reading::Rejected(_))
    }

    /// The clicks of the records, the job's state without them, and what is refused: where it begins,
    /// and why.
    fn admit(&self, records: &[Record]) -> (Batch, State, Vec<(u64, String)>) {
        let circumstances = self.circumstances();
        let mut batch = Batch::default();
        let mut state = self.stored.state;
        let mut rejections = Vec::new();
        for record in records {
            match reading::read(record, self.config.format, &self.rules, circumstances) {
                Reading::Blank => {}
                Reading::Click(click) => batch.clicks.push(click),
                Reading::Skipped(rule) => {
                    state.processed += 1;
                    let skipped = &mut state.skipped;
                    *match rule {
                        Rule::Methods => &mut skipped.methods,
                        Rule::Errors => &mut skipped.errors,
                        Rule::Assets => &mut skipped.assets,
                        Rule::Bots => &mut skipped.bots,
                    } += 1;
                }
                Reading::Rejected(reason) => {
                    batch.rejected += 1;
                    rejections.push((record.line_offset, reason));
                }
            }
        }
        if let (CommitMode::Transactional, Some(last)) = (self.config.mode, records.last()) {
            batch.checkpoint = Some(Checkpoint {
                job: self.config.name.clone(),
                epoch: self.stored.epoch,
                from: self.stored.offset,
                to: last.offset_after,
                state,
            });
        }
        (batch, state, rejections)
    }
}

/// What a job has counted since it was begun.
fn in_all(state: &State) -> String {
    let totals = state.totals;
    let left_out = terminal::left_out(state.skipped);
    format!(
        "; in all {} on time, {} late, {} dropped, {} duplicates, {} rejected{left_out}",
        totals.on_time, totals.late, totals.dropped, totals.duplicates, totals.rejected
    )
}

fn at_byte(offset: u64) -> String {
    format!("at byte {offset}")
}
