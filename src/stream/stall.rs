//! Readers that take nothing are cut off, whatever holds them up.
//!
//! A blocked socket is seen where it is written to. An HTTP/2 reader that gives no room is not: its
//! body is simply not asked for more. So each stream notes when it handed a chunk out, and one look
//! a second for all streams of the process ends those that were not asked again for too long.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio_util::sync::CancellationToken;

use super::follow::{self, Delivered, Follow};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A reader that takes nothing for this long is cut off.
pub const PATIENCE: Duration = Duration::from_secs(10);

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, Infallible>> + Send>>;

/// The open streams of the process.
#[derive(Debug, Default)]
pub struct Stalls {
    open: Mutex<Vec<Weak<Mutex<State>>>>,
}

struct State {
    chunks: Chunks,
    delivered: Delivered,
    /// When the last chunk was handed out, unless more was asked for since.
    handed_out_at: Option<Instant>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("handed_out_at", &self.handed_out_at)
            .finish_non_exhaustive()
    }
}

/// The body of a stream that is looked after.
#[derive(Debug)]
pub struct Watched(Arc<Mutex<State>>);

impl Stalls {
    /// Looks after `follow`; `alive` is dropped with it.
    pub fn watch<T: Send + 'static>(&self, follow: Follow, alive: T) -> Watched {
        let delivered = follow.delivered();
        let state = Arc::new(Mutex::new(State {
            chunks: Box::pin(chunks(follow, alive)),
            delivered,
            handed_out_at: None,
        }));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push(Arc::downgrade(&state));
        Watched(state)
    }

    /// Looks again and again, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.look(),
            }
        }
    }

    fn look(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|state| {
            let Some(state) = state.upgrade() else {
                return false;
            };
            let mut state = match state.try_lock() {
                Ok(state) => state,
                // It is being asked for more right now.
                Err(TryLockError::WouldBlock) => return true,
                Err(TryLockError::Poisoned(_)) => return false,
            };
            let stalled = state
                .handed_out_at
                .is_some_and(|at| at.elapsed() > PATIENCE);
            if stalled {
                // What the stream held is let go; the goodbye is for a reader that wakes up.
                let bye = follow::bye("slow_reader", state.delivered.position());
                state.chunks = Box::pin(stream::iter([Ok(bye)]));
            }
            !stalled
        });
    }
}

/// All chunks of a stream. What this takes in memory, it takes for each reader.
fn chunks<T>(follow: Follow, alive: T) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((follow, alive), |(mut follow, alive)| async move {
        let chunk = follow.next().await?;
        Some((Ok(chunk), (follow, alive)))
    })
}

impl Stream for Watched {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.handed_out_at = None;
        let chunk = state.chunks.as_mut().poll_next(cx);
        if let Poll::Ready(Some(_)) = chunk {
            state.handed_out_at = Some(Instant::now());
        }
        chunk
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgPoolOptions;
    use tokio::sync::watch;
    use uuid::Uuid;

    use super::*;
    use crate::stream::cursor::{Asked, Start};
    use crate::stream::feed::Head;
    use crate::stream::follow::Options;
    use crate::stream::hub::Hub;

    #[tokio::test]
    async fn a_stream_takes_little_room() {
        let pool = PgPoolOptions::new().connect_lazy("postgres:///").unwrap();
        let hub = Arc::new(Hub::new(pool.clone(), pool));
        let (_never, session) = watch::channel(None);
        let options = Options {
            snapshot: false,
            heartbeat_events: false,
            heartbeat: Duration::from_secs(15),
            max_age: None,
            drain: CancellationToken::new(),
            drain_after: Duration::ZERO,
            session,
        };
        let watch = hub.watch(Uuid::nil());
        let follow = Follow::new(watch, options, &Asked::Live, Start::Live, Head::NOWHERE);
        let bytes = size_of_val(&chunks(follow, ()));
        assert!(bytes < 2048, "{bytes} bytes");
    }
}
