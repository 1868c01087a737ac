//! What one client may take of the server, and that the others go on meanwhile.

mod bodies;
mod half_open;
mod heads;
mod rates;
mod slow;
mod streams;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Api, PATIENCE};

/// A connection that speaks no more HTTP than the test wants.
async fn connect(api: &Api) -> TcpStream {
    let address = api.url.strip_prefix("http://").unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// A connection over which these bytes were sent.
async fn said(api: &Api, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(api).await;
    stream.write_all(bytes).await.unwrap();
    stream
}

/// All that the server says until it closes the connection, orderly or not.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await;
    // A connection that is reset is closed, too.
    drop(read.expect("the server did not close the connection"));
    String::from_utf8_lossy(&text).into_owned()
}

/// The head of a request for clicks with a body of so many bytes.
fn head(api: &Api, length: usize) -> String {
    format!(
        "POST /v1/books/b/clicks HTTP/1.1\r\nhost: b\r\nauthorization: Bearer {}\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {length}\r\n\r\n",
        api.token
    )
}
