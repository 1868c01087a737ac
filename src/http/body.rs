//! Bodies: received in a bounded time, and in a bounded memory over all connections.
//!
//! What is counted is what has arrived, so a client that announces a large body and sends none holds
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::MAX_BODY_BYTES;
use super::problem::{Code, Problem};
use super::state::AppState;

/// How much of a body that is too large is read over.
const DRAINED_BYTES: usize = 16 * MAX_BODY_BYTES;

/// The slowest that a body may come once its time to begin is over.
const BYTES_PER_SECOND: usize = 4 * 1024;

/// A body that comes in one piece of this size lies in the buffer that its connection has anyway.
const SMALL_BYTES: usize = 16 * 1024;

/// How long a body waits for room.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);

/// What receiving is held to.
#[derive(Clone, Debug)]
pub(crate) struct Receiving {
    /// How long a client has for a body of any size, besides what [`BYTES_PER_SECOND`] gives.
    patience: Duration,
    room: Arc<Semaphore>,
}

impl Receiving {
    /// `most_bytes` over all connections; they are held until the body has been read.
    pub(crate) fn new(patience: Duration, most_bytes: u32) -> Self {
        let room = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        Self {
            patience,
            room: Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// How long a client has for the next piece of a body of any size.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Room for `bytes` more, if there is some in time.
    async fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        let room = Arc::clone(&self.room).acquire_many_owned(bytes);
        timeout(ROOM_PATIENCE, room).await.ok()?.ok()
    }
}

/// A body as far as it has come. One that is refused is read over all the same, so that the client
/// gets to read the answer instead of a broken connection.
#[derive(Default)]
struct Received {
    first: Bytes,
    rest: Vec<u8>,
    bytes: usize,
    room: Option<OwnedSemaphorePermit>,
    /// There was no room for it.
    refused: bool,
}

impl Received {
    async fn take(&mut self, chunk: Bytes, receiving: &Receiving) {
        self.bytes += chunk.len();
        if self.refused || self.bytes > MAX_BODY_BYTES {
            self.let_go();
            return;
        }
        if self.bytes == chunk.len() && self.bytes <= SMALL_BYTES {
            // Mostly there is no other, and then it need not be copied.
            self.first = chunk;
            return;
        }
        let uncounted = self.bytes
            - self
                .room
                .as_ref()
                .map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = receiving.room_for(uncounted).await else {
            self.refused = true;
            self.let_go();
            return;
        };
        match &mut self.room {
            Some(room) => room.merge(more),
            None => self.room = Some(more),
        }
        if self.bytes == chunk.len() {
            self.first = chunk;
        } else {
            self.rest
                .extend_from_slice(&std::mem::take(&mut self.first));
            self.rest.extend_from_slice(&chunk);
        }
    }

    /// Nobody is going to read it.
    fn let_go(&mut self) {
        *self = Self {
            bytes: self.bytes,
            refused: self.refused,
            ..Self::default()
        };
    }

    /// All of it, which keeps its room for as long as anybody has it.
    fn whole(self) -> Result<Bytes, Problem> {
        if self.bytes > MAX_BODY_BYTES {
            let detail = format!("a body has at most {MAX_BODY_BYTES} bytes");
            return Err(Problem::new(Code::TooLarge, detail));
        }
        if self.refused {
            return Err(Problem::overloaded());
        }
        let bytes = if self.rest.is_empty() {
            self.first
        } else {
            self.rest.into()
        };
        Ok(match self.room {
            Some(room) => Bytes::from_owner(Held { bytes, _room: room }),
            None => bytes,
        })
    }
}

/// Bytes that take up room.
struct Held {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of a body.
pub(super) struct Raw(pub(super) Bytes);

impl FromRequest<AppState> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let body = request.into_body();
        if body.is_end_stream() {
            return Ok(Self(Bytes::new()));
        }
        let mut chunks = body.into_data_stream();
        let mut received = Received::default();
        let receiving = &state.receiving;
        let begun = Instant::now();
        while received.bytes <= DRAINED_BYTES {
            let earned = received.bytes.min(MAX_BODY_BYTES) / BYTES_PER_SECOND;
            let earned = Duration::from_secs(u64::try_from(earned).unwrap_or(0));
            let deadline = begun + receiving.patience + earned;
            let chunk = timeout_at(deadline, chunks.next()).await;
            let Some(chunk) = chunk.map_err(|_| too_slow())? else {
                break;
            };
            let broken =
                |error| Problem::new(Code::NotJson, format!("the body broke off: {error}"));
            received.take(chunk.map_err(broken)?, receiving).await;
        }
        received.whole().map(Self)
    }
}

fn too_slow() -> Problem {
    Problem::new(Code::Timeout, "the body came too slowly, or not at all")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiving(bytes: u32) -> Receiving {
        Receiving::new(Duration::ZERO, bytes)
    }

    impl Receiving {
        fn left(&self) -> usize {
            self.room.available_permits()
        }
    }

    #[tokio::test]
    async fn room_is_taken_for_what_has_come_and_given_back_with_the_last_of_it() {
        let receiving = receiving(100_000);
        let mut small = Received::default();
        small.take(vec![1; 500].into(), &receiving).await;
        assert_eq!(receiving.left(), 100_000, "one small piece costs nothing");
        small.take(vec![2; 500].into(), &receiving).await;
        assert_eq!(receiving.left(), 99_000);
        let mut large = Received::default();
        large.take(vec![3; 60_000].into(), &receiving).await;
        assert_eq!(receiving.left(), 39_000);
        let small = small.whole().unwrap();
        assert_eq!((small.len(), small[0], small[999]), (1000, 1, 2));
        let copy = small.clone();
        drop(small);
        assert_eq!(receiving.left(), 39_000);
        drop(copy);
        assert_eq!(receiving.left(), 40_000);
        assert_eq!(large.whole().unwrap().len(), 60_000);
        assert_eq!(receiving.left(), 100_000);
    }

    #[tokio::test]
    async fn what_is_refused_holds_no_room_while_it_is_read_over() {
        let receiving = receiving(2 * 1024 * 1024);
        let mut large = Received::default();
        for _ in 0..20 {
            large.take(vec![0; 100_000].into(), &receiving).await;
        }
        assert_eq!(receiving.left(), 2 * 1024 * 1024);
        assert!(large.whole().unwrap_err().is(Code::TooLarge));
    }

    #[tokio::test]
    async fn a_body_waits_a_while_for_room() {
        let receiving = receiving(100_000);
        let mut first = Received::default();
        first.take(vec![0; 90_000].into(), &receiving).await;
        let mut second = Received::default();
        second.take(vec![0; 20_000].into(), &receiving).await;
        second.take(vec![0; 20_000].into(), &receiving).await;
        assert_eq!(receiving.left(), 10_000);
        assert!(second.whole().unwrap_err().is(Code::Overloaded));
        let mut third = Received::default();
        let waiting = async {
            third.take(vec![0; 20_000].into(), &receiving).await;
            third.whole().unwrap().len()
        };
        let going = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        assert_eq!(tokio::join!(waiting, going).0, 20_000);
    }
}
