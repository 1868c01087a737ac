//! An import: lines of a log become clicks of long ago.
//!
//! Lines are read, understood aside, and committed by the book's lane a few thousand at a time, each
//! part with the run's place; while one is committed the next is read. An import that ended early
//! leaves what it has brought in, and the same source sent again goes on: what is known falls out by
//! its ids.

use std::sync::Arc;

use uuid::Uuid;

pub use super::parse::ImportOptions;

use super::parse::Read;
use super::{Held, RunError, Runs, passes, stopped_within};
use crate::book::directory::Known;
use crate::ingest::commit::import::Part;
use crate::ingest::lane::{SubmitError, Work};
use crate::run::moving::Ending;
use crate::run::{Run, Spec, State};
use crate::source::Record;
use crate::source::lines::Lines;
use crate::telemetry;
use crate::time::Timestamp;

/// Most lines that one transaction takes, and most windows that their clicks may touch.
const LINES: (usize, usize) = (4000, 40_000);

/// Tries to commit a part while the database is away, before the import ends as failed.
const TRIES: u32 = 20;

/// An import that has begun.
#[derive(Debug)]
pub struct Import {
    held: Held,
    book: Arc<Known>,
    options: ImportOptions,
}

/// How far an import is, for whoever watches it.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Lines that it is done with.
    pub lines: i64,
    /// Bytes.
    pub offset: u64,
}

/// Why an import ends.
enum End {
    Ending(Ending),
    /// It is not ours any more: somebody has cancelled it.
    Over,
}

impl Runs {
    /// Begins an import; [`Import::run`] does it.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn import(
        self: &Arc<Self>,
        book: Arc<Known>,
        options: ImportOptions,
    ) -> Result<Import, RunError> {
        let source = options.source.clone();
        let held = self.begin(book.book.id, Spec::Import { source }).await?;
        Ok(Import {
            held,
            book,
            options,
        })
    }
}

impl Import {
    /// Imports the lines, to their end, and says how that went; `tell` is told how far it is.
    ///
    /// # Errors
    /// It could not even be ended; whoever looks after runs does that.
    pub async fn run(
        self,
        mut lines: Lines,
        mut tell: impl FnMut(Progress),
    ) -> Result<Run, RunError> {
        let (runs, book, run) = (Arc::clone(&self.held.runs), self.held.book, self.held.run);
        let ending = match self.take_all(&mut lines, &mut tell).await {
            End::Ending(ending) => ending,
            End::Over => return runs.find(book, run).await,
        };
        let epoch = Some(self.held.epoch);
        runs.end(book, run, epoch, ending).await?;
        runs.find(book, run).await
    }

    async fn take_all(&self, lines: &mut Lines, tell: &mut impl FnMut(Progress)) -> End {
        let mut read = Read::default();
        let mut next = match self.next(lines, &mut read).await {
            Ok(next) => next,
            Err(end) => return end,
        };
        while let Some((part, offset)) = next.take() {
            let lines_done = part.step.to;
            let committing = self.commit(part);
            // The error of a line that cannot be read comes after what was read before it.
            let (committed, following) = tokio::join!(committing, self.next(lines, &mut read));
            if let Err(end) = committed {
                return end;
            }
            tell(Progress {
                lines: lines_done,
                offset,
            });
            match following {
                Ok(following) => next = following,
                Err(end) => return end,
            }
        }
        End::Ending(Ending::Done)
    }

    /// The next lines, understood, and the byte after them; `None` at the end.
    async fn next(&self, lines: &mut Lines, read: &mut Read) -> Result<Option<(Part, u64)>, End> {
        let failed = |why: String| End::Ending(Ending::Failed(why));
        let most = (LINES.1 / self.book.plan.windows_per_click()).clamp(1, LINES.0);
        let records = tokio::select! {
            records = lines.gather(most) => records,
            () = self.held.runs.stop.cancelled() => {
                return Err(failed("the process was asked to end; send it again, and it goes on".into()));
            }
        };
        let records = records.map_err(|error| failed(telemetry::chain(&error)))?;
        let Some(last) = records.last() else {
            return Ok(None);
        };
        let offset = last.offset_after;
        let book = self.known().await;
        let parsed = parse(records, *read, self.options.clone(), book).await;
        let (part, now_read) = parsed.ok_or_else(|| failed("a line could not be read".into()))?;
        *read = now_read;
        Ok(Some((part, offset)))
    }

    /// The book, whose settings may have changed.
    async fn known(&self) -> Arc<Known> {
        let id = self.book.book.id.to_string();
        match self.held.runs.directory.find(&id).await {
            Ok(Some(book)) => book,
            // Whether it is still there, the commit says.
            Ok(None) | Err(_) => Arc::clone(&self.book),
        }
    }

    async fn commit(&self, part: Part) -> Result<(), End> {
        let (from, to) = (part.step.from, part.step.to);
        let part = Part {
            run: self.held.run,
            epoch: self.held.epoch,
            ..part
        };
        let runs = &self.held.runs;
        let failed = |error: &SubmitError| {
            let why = telemetry::chain(error);
            End::Ending(Ending::Failed(format!(
                "{why}; send it again, and it goes on"
            )))
        };
        let mut failures = 0;
        loop {
            let work = Work::Import(Box::new(part.clone()));
            match runs.lanes.submit(self.held.book, work).await {
                Ok(_) => {
                    telemetry::imported(to - from);
                    return Ok(());
                }
                Err(SubmitError::LostLease) => return self.is_taken(to).await,
                Err(error) if !passes(&error) || failures == TRIES => return Err(failed(&error)),
                Err(error) => {
                    failures += 1;
                    if stopped_within(&runs.stop, failures).await {
                        return Err(failed(&error));
                    }
                }
            }
        }
    }

    /// A part was refused: either an earlier try of it was committed without our knowing it, or the run
    /// has ended.
    async fn is_taken(&self, to: i64) -> Result<(), End> {
        let mut failures = 0;
        loop {
            match self.held.runs.find(self.held.book, self.held.run).await {
                Ok(run) if run.state == State::Running && run.processed == to => return Ok(()),
                Err(RunError::Database(_)) if failures < TRIES => failures += 1,
                _ => return Err(End::Over),
            }
            if stopped_within(&self.held.runs.stop, failures).await {
                return Err(End::Over);
            }
        }
    }

    /// Which run it is.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.held.run
    }
}

/// Understands lines aside: thousands take longer than others should wait for the thread. `None`: it
/// panicked.
async fn parse(
    records: Vec<Record>,
    read: Read,
    options: ImportOptions,
    book: Arc<Known>,
) -> Option<(Part, Read)> {
    let parsing = tokio::task::spawn_blocking(move || {
        let mut read = read;
        let part = read.part(&records, &options, &book, Timestamp::now());
        (part, read)
    });
    parsing.await.ok()
}
