//! Work that takes the processor for long is done aside, so that nobody else waits for it.
//!
//! A task that reads a large body would keep the thread it runs on from all other tasks, streams and
//! small requests alike. Done aside, and by few at a time, it competes with them by the rules of the
//! system.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::problem::Problem;

/// As many at a time as half of the cores.
#[derive(Clone, Debug)]
pub(crate) struct Aside(Arc<Semaphore>);

impl Default for Aside {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self(Arc::new(Semaphore::new((cores / 2).max(1))))
    }
}

impl Aside {
    /// Does `work` when its turn has come, and to its end even if nobody waits any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = Arc::clone(&self.0).acquire_owned().await;
        let turn = turn.map_err(|error| Problem::internal(&error))?;
        let work = move || {
            let _turn = turn;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| Problem::internal(&error))
    }
}
