//! Bytes in pieces: of a file, or of a pipe, whose reading must not keep the process from ending.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::mpsc;

use super::SourceError;

/// How much is read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Pieces of a pipe that wait to be taken.
const PIECES: usize = 4;

/// Where bytes come from.
#[derive(Debug)]
pub(super) enum Input {
    /// Can be sought, and may grow.
    File(File, PathBuf),
    /// Read by a thread of its own: a runtime would wait for a reading that never ends.
    Pipe(mpsc::Receiver<io::Result<Vec<u8>>>, PathBuf),
    /// Sent by somebody who receives it.
    Body(Body),
}

/// What is being received. An empty piece is its end.
#[derive(Debug)]
pub(super) struct Body {
    pieces: mpsc::Receiver<Bytes>,
    come: u64,
    ended: bool,
}

impl Body {
    pub(super) fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self {
            pieces,
            come: 0,
            ended: false,
        }
    }

    async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize, SourceError> {
        if self.ended {
            return Ok(0);
        }
        let piece = self.pieces.recv().await;
        let piece = piece.ok_or(SourceError::BrokeOff(self.come))?;
        self.come += piece.len() as u64;
        self.ended = piece.is_empty();
        buffer.extend_from_slice(&piece);
        Ok(piece.len())
    }
}

impl Input {
    /// Opens `path`, `-` for standard input, at byte `offset` if it can be sought. Says where it
    /// stands.
    pub(super) async fn open(path: &Path, offset: u64) -> Result<(Self, u64), SourceError> {
        let failed = |error| SourceError::Open(path.to_owned(), error);
        if path == Path::new("-") {
            return Ok((Self::pipe(io::stdin(), path), 0));
        }
        let mut file = File::open(path).await.map_err(failed)?;
        let metadata = file.metadata().await.map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        if path.extension().is_some_and(|end| end == "gz") {
            let packed = file.into_std().await;
            return Ok((Self::pipe(MultiGzDecoder::new(packed), path), 0));
        }
        if !metadata.is_file() {
            return Ok((Self::pipe(file.into_std().await, path), 0));
        }
        if metadata.len() < offset {
            return Err(SourceError::Shrank {
                path: path.to_owned(),
                length: metadata.len(),
                offset,
            });
        }
        let at = file.seek(io::SeekFrom::Start(offset)).await;
        Ok((Self::File(file, path.to_owned()), at.map_err(failed)?))
    }

    fn pipe(mut from: impl Read + Send + 'static, path: &Path) -> Self {
        let (sender, receiver) = mpsc::channel(PIECES);
        std::thread::spawn(move || {
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = match from.read(&mut piece) {
                    Ok(0) => return,
                    Ok(length) => {
                        piece.truncate(length);
                        Ok(piece)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if sender.blocking_send(read).is_err() || failed {
                    return;
                }
            }
        });
        Self::Pipe(receiver, path.to_owned())
    }

    /// How long it is, if that can be known.
    pub(super) async fn length(&self) -> Option<u64> {
        match self {
            Self::File(file, _) => Some(file.metadata().await.ok()?.len()),
            Self::Pipe(..) | Self::Body(..) => None,
        }
    }

    /// Appends what comes next to `buffer`, waiting for it; 0 at the end. Dropping it loses nothing.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize, SourceError> {
        match self {
            Self::File(file, path) => {
                buffer.reserve(PIECE_BYTES);
                let mut limited = file.take(PIECE_BYTES as u64);
                let read = limited.read_buf(buffer).await;
                read.map_err(|error| SourceError::Read(path.clone(), error))
            }
            Self::Body(body) => body.read(buffer).await,
            Self::Pipe(pieces, path) => match pieces.recv().await {
                None => Ok(0),
                Some(piece) => {
                    let piece = piece.map_err(|error| SourceError::Read(path.clone(), error))?;
                    buffer.extend_from_slice(&piece);
                    Ok(piece.len())
                }
            },
        }
    }

    /// The same without waiting for anybody: 0 where nothing is there now.
    pub(super) async fn read_what_is_there(
        &mut self,
        buffer: &mut Vec<u8>,
    ) -> Result<usize, SourceError> {
        let empty = match self {
            Self::File(..) => false,
            Self::Pipe(pieces, _) => pieces.is_empty(),
            Self::Body(body) => body.pieces.is_empty(),
        };
        if empty {
            return Ok(0);
        }
        self.read(buffer).await
    }

    /// Whether more may come behind the end.
    pub(super) fn may_grow(&self) -> bool {
        matches!(self, Self::File(..))
    }

    /// Checks, at the end of a file that is followed, that it is still the one which it was.
    pub(super) async fn check(&self, offset: u64) -> Result<(), SourceError> {
        let Self::File(file, path) = self else {
            return Ok(());
        };
        let failed = |error| SourceError::Read(path.clone(), error);
        let ours = file.metadata().await.map_err(failed)?;
        if ours.len() < offset {
            return Err(SourceError::Shrank {
                path: path.clone(),
                length: ours.len(),
                offset,
            });
        }
        // Between the renaming of the old one and the making of the new one there is none.
        if ours.len() == offset
            && let Ok(there) = tokio::fs::metadata(path).await
            && (there.dev(), there.ino()) != (ours.dev(), ours.ino())
        {
            return Err(SourceError::Replaced(path.clone()));
        }
        Ok(())
    }
}
