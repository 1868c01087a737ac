//! Looking after runs: those whose process has died, recounts to be done, and what is left of them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use uuid::Uuid;

use super::{RunError, Runs};
use crate::run::Kind;
use crate::run::moving::Ending;
use crate::run::table::{self, Pending};
use crate::telemetry;

/// How often runs are looked for that nobody told of.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Runs {
    /// Looks after runs until it is asked to end. Imports of the dead are ended at once, while a recount
    /// may take its time: one at a time.
    pub async fn keep(self: Arc<Self>) {
        let stop = self.stop.clone();
        let [imports, recounts] = &self.bells;
        let ending = self.looking(Kind::Import, imports);
        let recounting = self.looking(Kind::Recount, recounts);
        tokio::select! {
            () = stop.cancelled() => {}
            ((), ()) = async { tokio::join!(ending, recounting) } => {}
        }
    }

    async fn looking(self: &Arc<Self>, kind: Kind, bell: &Notify) {
        loop {
            let rung = bell.notified();
            match table::pending(&self.pool).await {
                Ok(pending) => {
                    for run in pending.into_iter().filter(|run| run.kind == kind) {
                        if let Err(error) = self.look_after(run).await {
                            let error = telemetry::chain(&error);
                            tracing::warn!(%error, run = %run.run, "a run could not be looked after");
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(error = %telemetry::chain(&error), "runs were not looked for");
                }
            }
            let _ = tokio::time::timeout(LOOK_EVERY, rung).await;
        }
    }

    async fn look_after(self: &Arc<Self>, run: Pending) -> Result<(), RunError> {
        let Pending {
            book,
            run,
            kind,
            live,
            ..
        } = run;
        let Some(mut held) = self.hold(book, run).await? else {
            return Ok(());
        };
        if live {
            let Some(epoch) = table::take_over(&self.pool, book, run).await? else {
                return Ok(());
            };
            held.epoch = epoch;
            match kind {
                Kind::Import => {
                    let why = "the process that ran it has ended; send it again, and it goes on";
                    let ending = Ending::Failed(why.to_owned());
                    return self.end(book, run, Some(epoch), ending).await;
                }
                Kind::Recount => {
                    // A panic over one book must not end the process for all.
                    let counting = AssertUnwindSafe(held.recount()).catch_unwind();
                    if let Ok(counted) = counting.await {
                        counted?;
                    } else {
                        let why = "the recount panicked; the server's log says more";
                        let ending = Ending::Failed(why.to_owned());
                        self.end(book, run, Some(epoch), ending).await?;
                    }
                }
            }
        }
        if kind == Kind::Recount {
            self.sweep(book, run).await?;
        }
        Ok(())
    }

    /// Ends what a dead process has left live of a book, so that another run can begin.
    pub(super) async fn settle(self: &Arc<Self>, book: Uuid) -> Result<(), RunError> {
        for run in table::pending(&self.pool).await? {
            if run.book == book && run.live && run.kind == Kind::Import {
                self.look_after(run).await?;
            }
        }
        Ok(())
    }
}
