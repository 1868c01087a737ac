//! Whether a transaction still moves: it beats after each of its statements.
//!
//! A transaction over very many windows takes long and is well; one whose database hangs would
//! have every request of its lane wait for ever.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a single statement may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time of the last sign of life.
#[derive(Debug)]
pub struct Pulse(Mutex<Instant>);

impl Pulse {
    /// Alive now.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// A statement has ended.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns when no statement has ended for too long.
    pub async fn stopped(&self) {
        while let Some(left) = self.left(Instant::now()) {
            tokio::time::sleep(left).await;
        }
    }

    /// How much patience is left at `now`.
    fn left(&self, now: Instant) -> Option<Duration> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = PATIENCE.saturating_sub(now.saturating_duration_since(last));
        (!left.is_zero()).then_some(left)
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_renews_the_patience() {
        let pulse = Pulse::new();
        let now = Instant::now();
        assert!(pulse.left(now).is_some());
        assert_eq!(pulse.left(now + PATIENCE), None);
        *pulse.0.lock().unwrap() = now + PATIENCE / 2;
        assert_eq!(pulse.left(now + PATIENCE), Some(PATIENCE / 2));
    }
}
