//! Load, made by the bench itself: requests are prepared before, and a connection writes bytes and
//! reads bytes, so that it takes little of the processors that it shares with what is measured.

pub(crate) mod answers;
pub(crate) mod clicks;
pub(crate) mod closed;
pub(crate) mod follower;
pub(crate) mod mix;
pub(crate) mod open;

use std::future::Future;

use crate::Error;

/// Runs `work` on a thread of its own, whose tasks never move to another.
pub(crate) async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>>,
{
    let working = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(work())
    });
    working.await?
}
