//! A reader of one book's stream, which notes when each frame came.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinHandle;

use crate::Error;
use crate::service::{ADMIN, Server};

/// A frame that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) position: i64,
    pub(crate) at: Instant,
}

/// A reader; it goes away when dropped.
pub(crate) struct Follower {
    seen: UnboundedReceiver<Seen>,
    reading: JoinHandle<Result<(), Error>>,
}

impl Follower {
    /// Follows `book` from now on.
    pub(crate) async fn start(server: &Server, book: &str) -> Result<Self, Error> {
        Self::open(server, &format!("books/{book}/events")).await
    }

    /// Follows it from a cursor on.
    pub(crate) async fn resume(server: &Server, book: &str, cursor: &str) -> Result<Self, Error> {
        Self::open(
            server,
            &format!("books/{book}/events?last_event_id={cursor}"),
        )
        .await
    }

    async fn open(server: &Server, path: &str) -> Result<Self, Error> {
        let mut stream = TcpStream::connect(&server.address).await?;
        let request = format!(
            "GET /v1/{path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {ADMIN}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut reading = Reading {
            stream,
            chunks: Chunks::Size(0),
            text: Vec::new(),
            event: String::new(),
            live: false,
            buffer: vec![0; 16 * 1024],
        };
        reading.head().await?;
        let (note, seen) = mpsc::unbounded_channel();
        // Nobody listens any more only when this is about to be ended.
        let note = move |frame| {
            let _ = note.send(frame);
        };
        while !reading.live {
            reading.more(&note).await?;
        }
        let reading = tokio::spawn(async move {
            loop {
                reading.more(&note).await?;
            }
        });
        Ok(Self { seen, reading })
    }

    /// The frames since this was last asked, up to one that tells of `position`, which is waited
    /// for. Fails if the stream has ended, or has left any out.
    pub(crate) async fn through(&mut self, position: i64) -> Result<Vec<Seen>, Error> {
        let mut frames = Vec::new();
        while frames
            .last()
            .is_none_or(|seen: &Seen| seen.position < position)
        {
            match self.seen.recv().await {
                Some(seen) => frames.push(seen),
                None => (&mut self.reading).await??,
            }
        }
        Ok(frames)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

struct Reading {
    stream: TcpStream,
    chunks: Chunks,
    /// What has come of a line.
    text: Vec<u8>,
    /// The name of the event that is being read.
    event: String,
    /// Whether `hello` has come: whatever is committed from then on will be read.
    live: bool,
    /// For what is read at once.
    buffer: Vec<u8>,
}

impl Reading {
    /// Reads status and headers.
    async fn head(&mut self) -> Result<(), Error> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await?);
        }
        if head.starts_with(b"HTTP/1.1 200") {
            return Ok(());
        }
        Err(format!("no stream: {}", String::from_utf8_lossy(&head)).into())
    }

    /// Reads what there is, and tells of the frames in it.
    async fn more(&mut self, note: &impl Fn(Seen)) -> Result<(), Error> {
        let read = self.stream.read(&mut self.buffer).await?;
        let at = Instant::now();
        if read == 0 {
            return Err("the stream ended".into());
        }
        let from = self.text.len();
        self.chunks.open(&self.buffer[..read], &mut self.text)?;
        let mut begin = 0;
        let mut look_from = from;
        while let Some(length) = self.text[look_from..].iter().position(|b| *b == b'\n') {
            let end = look_from + length;
            let line = &self.text[begin..end];
            if let Some(event) = line.strip_prefix(b"event: ") {
                self.event = String::from_utf8_lossy(event).into_owned();
                self.live |= self.event == "hello";
            } else if let Some(id) = line.strip_prefix(b"id: ")
                && self.event == "counts"
            {
                let position = std::str::from_utf8(id)?.parse()?;
                note(Seen { position, at });
            }
            begin = end + 1;
            look_from = begin;
        }
        self.text.drain(..begin);
        match self.event.as_str() {
            "bye" | "end" | "resync_required" => {
                Err(format!("the stream said {}", self.event).into())
            }
            _ => Ok(()),
        }
    }
}

/// Where in the chunks of the body (RFC 9112, 7.1) the reading is.
enum Chunks {
    /// In the line that says how many bytes follow; so many so far.
    Size(usize),
    /// So many bytes are still to come.
    Data(usize),
    /// In the line break after them.
    Break,
}

impl Chunks {
    /// Puts what is in the chunks behind `text`.
    fn open(&mut self, mut bytes: &[u8], text: &mut Vec<u8>) -> Result<(), Error> {
        while let Some(&first) = bytes.first() {
            match self {
                Self::Data(left) => {
                    let some = bytes.len().min(*left);
                    text.extend_from_slice(&bytes[..some]);
                    bytes = &bytes[some..];
                    *left -= some;
                    if *left == 0 {
                        *self = Self::Break;
                    }
                    continue;
                }
                Self::Size(size) => match first {
                    b'\r' => {}
                    b'\n' if *size == 0 => return Err("the stream ended".into()),
                    b'\n' => *self = Self::Data(*size),
                    digit => {
                        let digit = char::from(digit).to_digit(16).ok_or("no size of a chunk")?;
                        *size = *size * 16 + digit as usize;
                    }
                },
                Self::Break => {
                    if first == b'\n' {
                        *self = Self::Size(0);
                    }
                }
            }
            bytes = &bytes[1..];
        }
        Ok(())
    }
}
