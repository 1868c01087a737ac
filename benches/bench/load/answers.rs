//! Answers as they come over a connection that is kept.

use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Error;

/// Reads one answer after another.
#[derive(Default)]
pub(crate) struct Answers {
    buffer: Vec<u8>,
    /// How much of the buffer the last answer was.
    taken: usize,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    /// Fails unless it is a plain 200: what is refused, or put aside for later, must not count.
    pub(crate) fn accepted(self) -> Result<Self, Error> {
        if self.status == 200 {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(self.body);
        Err(format!("answered {}: {body}", self.status).into())
    }
}

impl Answers {
    /// The next answer on `stream`.
    pub(crate) async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Answer<'_>, Error> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let (status, body) = loop {
            if let Some(whole) = whole(&self.buffer)? {
                break whole;
            }
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed a connection".into());
            }
        };
        self.taken = body.end;
        Ok(Answer {
            status,
            body: &self.buffer[body],
        })
    }
}

/// Sends a request that is in two parts, in one go where the socket takes it.
pub(crate) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    [head, body]: [&[u8]; 2],
) -> Result<(), Error> {
    let parts = [head, body].map(std::io::IoSlice::new);
    let written = stream.write_vectored(&parts).await?;
    if written < head.len() {
        stream.write_all(&head[written..]).await?;
    }
    let of_body = written.saturating_sub(head.len());
    stream.write_all(&body[of_body..]).await?;
    Ok(())
}

/// Status and place of the body, if the answer is there in whole.
fn whole(bytes: &[u8]) -> Result<Option<(u16, Range<usize>)>, Error> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end])?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.get(9..12));
    let status: u16 = status.ok_or("no status line")?.parse()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then_some(value)
    });
    let length: usize = length
        .ok_or("an answer does not say how long it is")?
        .parse()?;
    let body = end + 4..end + 4 + length;
    Ok((bytes.len() >= body.end).then_some((status, body)))
}
