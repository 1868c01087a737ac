//! The process that started this one as its child.

use std::io;
use std::pin::Pin;

use tokio::sync::oneshot;

/// Returns when standard input ends, which is when whoever holds its other end is gone, however they
/// went; never, if that is not to be `watched`. What comes in is passed over.
pub(super) fn gone(watched: bool) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    if !watched {
        return Box::pin(std::future::pending());
    }
    let (tell, ended) = oneshot::channel::<()>();
    // A thread of its own, for it blocks until the end, and nobody waits for it at ours.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(tell);
    });
    Box::pin(async move {
        let _ = ended.await;
    })
}
