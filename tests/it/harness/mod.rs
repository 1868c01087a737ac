//! A database, a server process and clients for each test.

pub(crate) mod api;
pub(crate) mod browser;
pub(crate) mod cluster;
pub(crate) mod database;
pub(crate) mod hands;
pub(crate) mod load;
pub(crate) mod raw;
pub(crate) mod server;
pub(crate) mod sse;
pub(crate) mod steps;

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

pub(crate) use api::{Answer, Api};
pub(crate) use database::Database;
pub(crate) use server::Server;

/// Longest time that a test waits for something that ought to come at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A database and a server on it.
pub(crate) async fn start() -> (Database, Server) {
    let database = Database::create().await;
    let server = Server::start(&database).await;
    (database, server)
}

/// Asks again and again, until the answer is there.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Where moments are drawn from. The seed is printed; in `PAGETIDE_FAULT_SEED` it brings the same
/// moments again, as far as the machine does.
pub(crate) fn chance() -> StdRng {
    let given = std::env::var("PAGETIDE_FAULT_SEED").ok();
    let given = given.and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    let seed = given.unwrap_or_else(rand::random);
    eprintln!("seed {seed:#018x}");
    StdRng::seed_from_u64(seed)
}
