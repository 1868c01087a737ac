//! A client for one connection that is kept, so cheap that it takes little of the cores that are
//! measured.

use std::io::Write as _;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Error;

/// A connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    address: String,
    headers: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// Connects to `address`, host and port; `headers`, lines, go with every request.
    pub(crate) async fn connect(address: &str, headers: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            address: address.to_owned(),
            headers: headers.to_owned(),
            request: Vec::new(),
            answer: Vec::new(),
        })
    }

    /// As many of them as are asked for.
    pub(crate) async fn several(
        address: &str,
        headers: &str,
        number: usize,
    ) -> Result<Vec<Self>, Error> {
        let mut clients = Vec::with_capacity(number);
        for _ in 0..number {
            clients.push(Self::connect(address, headers).await?);
        }
        Ok(clients)
    }

    /// Sends JSON, `method` as `POST`, and gives the body of the answer.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        json: &[u8],
    ) -> Result<&[u8], Error> {
        self.request.clear();
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            self.headers,
            json.len(),
        )?;
        self.request.extend_from_slice(json);
        self.stream.write_all(&self.request).await?;
        let body = self.receive().await?;
        Ok(&self.answer[body..])
    }

    /// Reads an answer; gives where its body begins.
    async fn receive(&mut self) -> Result<usize, Error> {
        self.answer.clear();
        let body = loop {
            if let Some(end) = memmem::find(&self.answer, b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.answer[..body]).into_owned();
        let length = content_length(&head).ok_or("an answer without a length")?;
        while self.answer.len() < body + length {
            self.more().await?;
        }
        let status = head.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            let body = String::from_utf8_lossy(&self.answer[body..]);
            return Err(format!("{status}: {body}").into());
        }
        Ok(body)
    }

    async fn more(&mut self) -> Result<(), Error> {
        match self.stream.read_buf(&mut self.answer).await? {
            0 => Err("the server closed a connection that was to be kept".into()),
            _ => Ok(()),
        }
    }
}

fn content_length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let named = name.eq_ignore_ascii_case("content-length");
        named.then(|| value.trim().parse().ok()).flatten()
    })
}

/// The number that follows the first `marker`.
pub(crate) fn number_after(text: &[u8], marker: &[u8]) -> Option<i64> {
    let begin = memmem::find(text, marker)? + marker.len();
    number(&text[begin..])
}

/// The number that `text` begins with.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let value = |value: Option<i64>, digit: &u8| {
        let value = value.unwrap_or(0).checked_mul(10)?;
        value.checked_add(i64::from(digit - b'0'))
    };
    digits.fold(None, value)
}
