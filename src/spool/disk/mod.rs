//! The store on disk: a folder with a file for each segment, a line for each record.
//!
//! One thread writes (`writer`): while it syncs, appends gather, and the next sync is for all of
//! them. Reading (`segment`) is done beside it, of segments that grow no more. Which segments there
//! are is found out once, when the folder is opened (`folder`), and remembered from then on
//! (`index`).
//!
//! Only a file's last line can be torn by a crash, and no file is added to once it was found at a
//! start or a write to it has failed. So what is torn never stands before what is whole.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{io, thread};

use tokio::sync::{mpsc, oneshot};

use self::folder::Folder;
use self::index::Index;
pub use self::segment::DiskSegment;
use self::writer::{Append, Request, Writer};
use super::record::{self, Record};
use super::{AppendError, ReadError, SegmentKey, Store, Window};

#[cfg(test)]
mod damage_tests;
mod folder;
mod index;
#[cfg(test)]
mod scratch;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

/// Most requests that wait for the writer; more wait for their place among them.
const QUEUE_REQUESTS: usize = 1_024;

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody has it open: another process, or this one.
    #[error("the spool in {} is in use", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The file system does not let us.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Keeps segments in a folder. Dropping it waits for what is being written; the folder is free for
/// another once its opened segments are dropped too.
#[derive(Debug)]
pub struct DiskStore<R> {
    shared: Arc<Shared>,
    max_bytes: u64,
    /// `None` when the store is being dropped.
    queue: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
    records: PhantomData<fn() -> R>,
}

/// What the writer, the store and opened segments have in common.
#[derive(Debug)]
struct Shared {
    folder: Folder,
    index: Mutex<Index>,
}

impl Shared {
    /// Held for moments only, never while a file is read or written.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Record> DiskStore<R> {
    /// Opens `folder`, which is made if it is not there, and cuts off the lines that a crash has
    /// torn. It takes up to `max_bytes` of lines, and what an append has more; lines that were set
    /// aside do not count, since nothing takes them away again. Blocks while it reads the folder.
    ///
    /// # Errors
    /// The folder is in use, or cannot be used.
    pub fn open(folder: &Path, max_bytes: u64) -> Result<Self, OpenError> {
        let (folder, found) = Folder::open(folder)?;
        let shared = Arc::new(Shared {
            folder,
            index: Mutex::new(Index::new(found.segments)),
        });
        let (queue, requests) = mpsc::channel(QUEUE_REQUESTS);
        let writer = Writer::new(
            Arc::clone(&shared),
            requests,
            max_bytes,
            found.next_sequence,
        );
        let writer = thread::Builder::new()
            .name("spool".to_owned())
            .spawn(|| writer.run())
            .map_err(|source| OpenError::Io {
                what: "start a thread for",
                path: shared.folder.path().to_owned(),
                source,
            })?;
        Ok(Self {
            shared,
            max_bytes,
            queue: Some(queue),
            writer: Some(writer),
            records: PhantomData,
        })
    }

    /// How often files and the folder have been synced.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.shared.folder.syncs()
    }

    /// Hands the writer a request and waits for its answer. What is handed over is done even if
    /// nobody waits any more.
    async fn ask<A>(&self, request: impl FnOnce(oneshot::Sender<A>) -> Request) -> io::Result<A> {
        let ended = || io::Error::other("the spool's writer has ended");
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        let (reply, answer) = oneshot::channel();
        queue.send(request(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }
}

impl<R: Record> Store<R> for DiskStore<R> {
    type Segment = DiskSegment<R>;

    async fn append(&self, window: Window, records: Vec<R>) -> Result<(), AppendError> {
        let failed = |error| AppendError::Io(Arc::new(error));
        if records.is_empty() {
            return Ok(());
        }
        let lines = record::lines(&records).map_err(failed)?;
        drop(records);
        let request = |reply| {
            Request::Append(Append {
                window,
                lines,
                reply,
            })
        };
        self.ask(request).await.map_err(failed)?
    }

    async fn oldest(&self, after: Option<SegmentKey>) -> Result<Option<DiskSegment<R>>, ReadError> {
        loop {
            let Some(found) = self.shared.index().oldest(after) else {
                return Ok(None);
            };
            let key = found.key;
            let failed = |source| ReadError { key, source };
            if found.growing {
                let request = |reply| Request::Seal { key, reply };
                self.ask(request).await.map_err(failed)?;
                // How long it has become meanwhile, the index knows.
                continue;
            }
            let shared = Arc::clone(&self.shared);
            let read = move || segment::read(&shared, key, found.bytes);
            let read = tokio::task::spawn_blocking(read).await;
            return match read.map_err(io::Error::other).flatten() {
                Ok(segment) => Ok(Some(segment)),
                // It was committed meanwhile, perhaps by a caller who did not wait for the end.
                Err(_) if !self.shared.index().holds(key) => continue,
                Err(error) => Err(failed(error)),
            };
        }
    }

    fn bytes(&self) -> u64 {
        self.shared.index().bytes()
    }

    fn segments(&self) -> usize {
        self.shared.index().segments()
    }

    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }
}

impl<R> Drop for DiskStore<R> {
    fn drop(&mut self) {
        // The writer ends after what is queued, which nobody waits for any more.
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
