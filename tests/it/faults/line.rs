//! A slow line to Postgres: what is on its way when it is cut is lost, such as the word that a
//! transaction was committed.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) struct Line {
    pub(super) port: u16,
    cut: watch::Sender<()>,
    passing: JoinHandle<()>,
}

impl Line {
    /// To this port; every answer takes so long.
    pub(super) async fn start(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = SocketAddr::from(([127, 0, 0, 1], port));
        let port = listener.local_addr().unwrap().port();
        let cut = watch::Sender::new(());
        let cuts = cut.clone();
        let passing = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let mut cut = cuts.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = pass(client, server, delay) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { port, cut, passing }
    }

    /// Breaks all connections; new ones can be made.
    pub(super) fn cut(&self) {
        self.cut.send_replace(());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

async fn pass(client: TcpStream, server: SocketAddr, delay: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let down = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from_server.read(&mut buffer).await? {
                0 => return Ok(()),
                read => {
                    tokio::time::sleep(delay).await;
                    to_client.write_all(&buffer[..read]).await?;
                }
            }
        }
    };
    tokio::select! {
        copied = copy(&mut from_client, &mut to_server) => copied.map(drop),
        ended = down => ended,
    }
}
