//! Connections: accepted, served over HTTP/1.1 and HTTP/2 with prior knowledge, and drained.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequest;

use super::client::Peer;
use crate::stream::stall::PATIENCE;

/// Most bytes of a request's head; and how much is held back for a client before its stream is not
/// asked for more.
const BUFFER_BYTES: usize = 64 * 1024;

/// How often a quiet HTTP/2 connection is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long to wait after `accept` failed: file descriptors may have run out, and connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers requests.
pub(crate) trait Service:
    tower::Service<
        Request<Body>,
        Response = Response<Self::Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// Of its answers.
    type Body: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> Service for S
where
    S: tower::Service<
            Request<Body>,
            Response = Response<B>,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static,
    B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
}

/// Serves `service` on `listener`; a client has `patience` for the head of each request. After `stop`
/// no connection is accepted any more, and this returns when those that were have ended, each after
/// the request that it is in. Dropped, it takes the connections with it.
pub(crate) async fn serve(
    listener: TcpListener,
    service: impl Service,
    patience: Duration,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    let graceful = GracefulShutdown::new();
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(BUFFER_BYTES);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_send_buf_size(BUFFER_BYTES);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let deadline = Instant::now() + patience;
        let asked = Arc::new(Notify::new());
        let service = {
            let (asked, peer) = (Arc::clone(&asked), Peer(peer.ip()));
            MapRequest::new(service.clone(), move |request| {
                asked.notify_one();
                boxed(request, peer)
            })
        };
        let service = TowerToHyperService::new(service);
        let (http, watcher, stop) = (http.clone(), graceful.watcher(), stop.clone());
        connections.spawn(async move {
            let begun = tokio::select! {
                () = stop.cancelled() => return,
                begun = begun(&stream, deadline) => begun,
            };
            let io = begun.and_then(|()| timed(stream));
            let ended = match io {
                Ok(io) => tokio::select! {
                    ended = watcher.watch(http.serve_connection(io, service)) => ended,
                    overdue = overdue(&asked, deadline) => Err(overdue.into()),
                },
                Err(error) => Err(error.into()),
            };
            if let Err(error) = ended {
                tracing::debug!(error = %error, "a connection ended");
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
    while connections.join_next().await.is_some() {}
}

/// A request as handlers take it; it says who is at the other end.
fn boxed<B>(mut request: Request<B>, peer: Peer) -> Request<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    request.extensions_mut().insert(peer);
    request.map(Body::new)
}

/// Waits until a client has said something: one that says nothing costs no more than its socket.
async fn begun(stream: &TcpStream, deadline: Instant) -> io::Result<()> {
    match timeout_at(deadline, stream.peek(&mut [0])).await {
        Ok(peeked) => peeked.map(|_| ()),
        Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
    }
}

/// Ends at `deadline` if no request has come by then, and never otherwise. Which protocol a client
/// speaks is told by its first bytes, and waiting for all of them has no end of its own; nor has
/// waiting for the first request of an HTTP/2 connection.
async fn overdue(asked: &Notify, deadline: Instant) -> io::Error {
    match timeout_at(deadline, asked.notified()).await {
        Ok(()) => std::future::pending().await,
        Err(elapsed) => io::Error::new(io::ErrorKind::TimedOut, elapsed),
    }
}

/// A socket on which a write that is blocked for long fails, so that a reader that never reads is
/// let go.
fn timed(stream: TcpStream) -> io::Result<TokioIo<std::pin::Pin<Box<TimeoutStream<TcpStream>>>>> {
    stream.set_nodelay(true)?;
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(PATIENCE));
    Ok(TokioIo::new(Box::pin(stream)))
}
