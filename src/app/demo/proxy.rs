//! The line between the browser and the server: an address that outlives the server, and that can be
//! cut while everything else goes on.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long to wait after `accept` failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Carries what comes to `listener` to the server at `upstream`. While there is none, or `cut` says
/// so, connections are closed at once, those that are open too. Dropped, it takes all with it.
pub(super) async fn carry(
    listener: TcpListener,
    upstream: watch::Receiver<Option<SocketAddr>>,
    cut: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((reader, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (mut cut, server) = (cut.clone(), *upstream.borrow());
        connections.spawn(async move {
            tokio::select! {
                biased;
                // If nobody is left to cut it, it stays.
                Ok(_) = cut.wait_for(|cut| *cut) => {}
                () = connect(reader, server) => {}
            }
        });
    }
}

/// Carries bytes both ways until either side ends. Whatever goes wrong ends the connection, which is
/// all that the reader's side can be told.
async fn connect(mut reader: TcpStream, server: Option<SocketAddr>) {
    let Some(server) = server else {
        return;
    };
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = (reader.set_nodelay(true), server.set_nodelay(true));
    let _ = copy_bidirectional(&mut reader, &mut server).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn answer(stream: &mut TcpStream) -> Option<u8> {
        stream.write_all(&[7]).await.ok()?;
        stream.read_u8().await.ok()
    }

    #[tokio::test]
    async fn a_line_is_cut_and_whole_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let line = listener.local_addr().unwrap();
        let (upstream, server) = watch::channel(None);
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(carry(listener, server, is_cut));

        let mut early = TcpStream::connect(line).await.unwrap();
        assert_eq!(answer(&mut early).await, None, "there is no server");
        upstream.send_replace(Some(echo().await));
        let mut open = TcpStream::connect(line).await.unwrap();
        assert_eq!(answer(&mut open).await, Some(7));
        cut.send_replace(true);
        assert!(open.read_u8().await.is_err(), "it was open");
        let mut late = TcpStream::connect(line).await.unwrap();
        assert_eq!(answer(&mut late).await, None);
        cut.send_replace(false);
        let mut open = TcpStream::connect(line).await.unwrap();
        assert_eq!(answer(&mut open).await, Some(7));
    }
}
