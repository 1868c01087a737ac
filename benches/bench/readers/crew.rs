//! A thread, and those whose streams it reads.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio_util::sync::CancellationToken;

use super::seat::{Dialect, Seat};
use super::{Arrival, Tally, Wanted};
use crate::Error;

/// Most bytes that are read at once. A read that gives less has emptied the socket, so that no
/// second one is needed to find that out.
const BUFFER_BYTES: usize = 128 * 1024;

/// What a thread is to do.
pub(super) struct Orders {
    pub(super) address: String,
    pub(super) dialect: Dialect,
    pub(super) wanted: Vec<Wanted>,
    /// How many connect at a time.
    pub(super) at_once: usize,
    /// What arrivals are told from.
    pub(super) begin: Instant,
}

/// What a thread has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) seats: Vec<Seat>,
    pub(super) tally: Tally,
    /// None where nobody wants to know.
    pub(super) arrivals: Option<Vec<Arrival>>,
    /// Why the first stream that ended did so.
    pub(super) complaint: Option<String>,
}

/// A thread, and what it has seen.
#[derive(Debug)]
pub(super) struct Crew {
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

impl Crew {
    /// Sends it off, until `stop`.
    pub(super) fn send_off(orders: Orders, stop: CancellationToken) -> Result<Self, Error> {
        let seats = orders.wanted.iter();
        let seats = seats.map(|wanted| Seat::new(orders.dialect, wanted.cursor));
        let seen = Arc::new(Mutex::new(Seen {
            seats: seats.collect(),
            ..Seen::default()
        }));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let noted = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let tasks = LocalSet::new();
            runtime.block_on(async {
                tokio::select! {
                    () = tasks.run_until(read_all(orders, noted)) => {}
                    () = stop.cancelled() => {}
                }
            });
        });
        Ok(Self {
            seen,
            thread: Some(thread),
        })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Waits until the thread has ended.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read_all(orders: Orders, seen: Arc<Mutex<Seen>>) {
    let reading = Rc::new(Reading {
        address: orders.address,
        turns: Semaphore::new(orders.at_once.min(Semaphore::MAX_PERMITS)),
        buffer: RefCell::new(vec![0; BUFFER_BYTES]),
        seen,
        begin: orders.begin,
    });
    let mut tasks = JoinSet::new();
    for (place, wanted) in orders.wanted.into_iter().enumerate() {
        let reading = Rc::clone(&reading);
        tasks.spawn_local(async move {
            let Err(error) = reading.follow(&wanted, place).await;
            let mut seen = lock(&reading.seen);
            seen.tally.ended += 1;
            seen.complaint.get_or_insert_with(|| error.to_string());
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// What the readers of a thread share.
struct Reading {
    address: String,
    turns: Semaphore,
    buffer: RefCell<Vec<u8>>,
    seen: Arc<Mutex<Seen>>,
    begin: Instant,
}

impl Reading {
    /// Follows a stream until it ends, which it should not.
    async fn follow(&self, wanted: &Wanted, place: usize) -> Result<Infallible, Error> {
        let mut stream = self.open(wanted).await?;
        std::future::poll_fn(|cx| {
            loop {
                let mut buffer = self.buffer.borrow_mut();
                let mut received = ReadBuf::new(&mut buffer);
                ready!(Pin::new(&mut stream).poll_read(cx, &mut received))?;
                if received.filled().is_empty() {
                    return Poll::Ready(Err("the server closed it".into()));
                }
                self.take(received.filled(), place)?;
            }
        })
        .await
    }

    async fn open(&self, wanted: &Wanted) -> Result<TcpStream, Error> {
        let _turn = self.turns.acquire().await?;
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(wanted.request.as_bytes()).await?;
        // The answer belongs to the turn, so that no more are in the making than are to be.
        stream.readable().await?;
        Ok(stream)
    }

    fn take(&self, received: &[u8], place: usize) -> Result<(), Error> {
        let after = self.begin.elapsed();
        let mut seen = lock(&self.seen);
        let Seen {
            seats,
            tally,
            arrivals,
            ..
        } = &mut *seen;
        seats[place].take(received, tally, |position| {
            if let Some(arrivals) = arrivals {
                arrivals.push(Arrival { position, after });
            }
        })
    }
}
