//! Which failures can pass by themselves, and how long to wait before trying again.

use std::time::Duration;

use super::commit::CommitError;

/// How often a failed transaction is tried again.
pub const RETRIES: u32 = 3;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Whether a failure can pass by itself: a lost connection, a deadlock, a failover.
#[must_use]
pub fn can_pass(error: &CommitError) -> bool {
    match error {
        CommitError::Database(error) => database_can_pass(error),
        CommitError::GaveUp => true,
        CommitError::State(_)
        | CommitError::Plan(_)
        | CommitError::Frame(_)
        | CommitError::Panicked => false,
    }
}

fn database_can_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| state_can_pass(&code)),
        _ => false,
    }
}

/// Whether an SQLSTATE (PostgreSQL documentation, appendix A) names something that passes.
fn state_can_pass(code: &str) -> bool {
    match code {
        // Serialization failure, deadlock, lock not available; read-only transaction: a primary
        // that has just become a standby.
        "40001" | "40P01" | "55P03" | "25006" => true,
        // Connection exceptions; insufficient resources (too many connections, disk full, out of
        // memory); operator intervention (shutdown, starting up, cancelled).
        _ => ["08", "53", "57"]
            .iter()
            .any(|class| code.starts_with(class)),
    }
}

/// How long to wait before try number `retry` (from 1): full jitter, so that lanes which failed
/// together do not come back together.
#[must_use]
pub fn wait_before(retry: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << (retry - 1).min(16));
    doubled.min(LONGEST_WAIT).mul_f64(rand::random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_bounded() {
        for retry in 1..40 {
            let most = FIRST_WAIT
                .saturating_mul(1 << (retry - 1).min(16))
                .min(LONGEST_WAIT);
            assert!(wait_before(retry) <= most);
        }
    }

    #[test]
    fn what_passes_and_what_does_not() {
        for code in [
            "40001", "40P01", "55P03", "57P01", "57P03", "08006", "53300", "25006",
        ] {
            assert!(state_can_pass(code), "{code}");
        }
        for code in ["23505", "22021", "42601", "22003"] {
            assert!(!state_can_pass(code), "{code}");
        }
    }
}
