//! A load of connections of which each sends its next request when the last one is answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::answers::{Answers, send};
use super::apart;
use super::mix::Mix;
use crate::Error;

/// Who sends what to whom.
#[derive(Clone)]
pub(crate) struct Load {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) connections: usize,
    pub(crate) mix: Arc<Mix>,
}

/// What was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) clicks: u64,
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
}

impl Done {
    /// Clicks a second.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn rate(&self) -> f64 {
        self.clicks as f64 / self.elapsed.as_secs_f64()
    }
}

impl Load {
    /// Sends for this long, and waits for the last answers. Fails if one is not a 200.
    pub(crate) async fn run(&self, time: Duration) -> Result<Done, Error> {
        let load = self.clone();
        apart(move || async move { load.run_here(time).await }).await
    }

    async fn run_here(&self, time: Duration) -> Result<Done, Error> {
        // All are connected before the first sends.
        let connected = Arc::new(Barrier::new(self.connections + 1));
        let mut senders = JoinSet::new();
        for seed in 0..self.connections as u64 {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let rng = StdRng::seed_from_u64(seed);
            let (connected, mix) = (Arc::clone(&connected), Arc::clone(&self.mix));
            senders.spawn(async move {
                connected.wait().await;
                send_until(Instant::now() + time, stream, &mix, rng).await
            });
        }
        connected.wait().await;
        let begin = Instant::now();
        let mut requests = 0;
        while let Some(sent) = senders.join_next().await {
            requests += sent??;
        }
        Ok(Done {
            clicks: requests * self.mix.clicks as u64,
            elapsed: begin.elapsed(),
        })
    }
}

async fn send_until(
    end: Instant,
    mut stream: TcpStream,
    mix: &Mix,
    mut rng: StdRng,
) -> Result<u64, Error> {
    let mut answers = Answers::default();
    let mut requests = 0;
    while Instant::now() < end {
        send(&mut stream, mix.draw(&mut rng)).await?;
        answers.next(&mut stream).await?.accepted()?;
        requests += 1;
    }
    Ok(requests)
}
