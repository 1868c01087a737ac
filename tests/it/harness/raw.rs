//! A connection that is read byte by byte, and only when the test says so.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{Api, PATIENCE};

/// An HTTP/1.1 request and what has come of its answer.
pub(crate) struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    /// Asks for `path`; `headers` are whole lines, each with its CRLF. Nothing is read yet.
    pub(crate) async fn get(api: &Api, path: &str, headers: &str) -> Self {
        Self::get_through(TcpSocket::new_v4().unwrap(), api, path, headers).await
    }

    /// The same with room for no more than a few kilobytes on this side.
    pub(crate) async fn get_narrow(api: &Api, path: &str, headers: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self::get_through(socket, api, path, headers).await
    }

    async fn get_through(socket: TcpSocket, api: &Api, path: &str, headers: &str) -> Self {
        let address = api.url.strip_prefix("http://").unwrap();
        let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n{headers}\r\n",
            api.token
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let unread = Vec::new();
        Self { stream, unread }
    }

    /// Reads what there is; false at the end of the connection, orderly or not.
    async fn more(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.unread);
        let read = tokio::time::timeout(PATIENCE, read).await;
        read.expect("waited in vain for bytes").unwrap_or(0) > 0
    }

    async fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.unread.len() < count {
            if !self.more().await {
                return None;
            }
        }
        let rest = self.unread.split_off(count);
        Some(std::mem::replace(&mut self.unread, rest))
    }

    /// Everything through `end`, as text.
    async fn through(&mut self, end: &[u8]) -> Option<String> {
        loop {
            let found = self.unread.windows(end.len()).position(|w| w == end);
            if let Some(at) = found {
                let bytes = self.bytes(at + end.len()).await?;
                return Some(String::from_utf8(bytes).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Status line and headers.
    pub(crate) async fn head(&mut self) -> String {
        self.through(b"\r\n\r\n").await.expect("no answer")
    }

    /// The next chunk of the body: what the server wrote at once. `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let size = self.through(b"\r\n").await?;
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = self.bytes(size + 2).await?;
        chunk.truncate(size);
        (size > 0).then(|| String::from_utf8(chunk).unwrap())
    }
}
