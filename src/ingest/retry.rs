//! Which failures can pass by themselves, and how long to wait before trying again.

use std::time::Duration;

use super::commit::CommitError;

/// How often a failed transaction is tried again.
pub const RETRIES: u32 = 3;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What kind of failure it is, and so what helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The database does not answer: nothing else would fare better.
    Unreachable,
    /// A deadlock, a failover: the same again.
    Passing,
    /// Another transaction holds a book's row for long: the other books first.
    RowHeld,
    /// A statement took too long, or there is no more time: the books apart, if anything.
    GaveUp,
    /// Trying again does not help.
    Permanent,
    /// A job's step that is not this process's to take, or was taken before: neither again nor in
    /// parts.
    LostLease,
}

/// What kind of failure it is.
#[must_use]
pub fn kind(error: &CommitError) -> Kind {
    match error {
        CommitError::Database(error) => kind_of_database_error(error),
        CommitError::GaveUp => Kind::GaveUp,
        CommitError::LostLease => Kind::LostLease,
        CommitError::State(_)
        | CommitError::Plan(_)
        | CommitError::Frame(_)
        | CommitError::Panicked => Kind::Permanent,
    }
}

/// What kind of failure of the database it is.
#[must_use]
pub fn kind_of_database_error(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => Kind::Unreachable,
        sqlx::Error::Database(error) => {
            let code = error.code();
            code.map_or(Kind::Permanent, |code| kind_of_state(&code))
        }
        _ => Kind::Permanent,
    }
}

/// What kind of failure an SQLSTATE names (`PostgreSQL` documentation, appendix A).
fn kind_of_state(code: &str) -> Kind {
    match code {
        // Lock not available: `lock_timeout` has passed.
        "55P03" => Kind::RowHeld,
        // Serialization failure, deadlock; read-only transaction: a primary that has just become a
        // standby.
        "40001" | "40P01" | "25006" => Kind::Passing,
        // Connection exceptions; operator intervention (shutdown, starting up, cancelled);
        // insufficient resources (too many connections, disk full, out of memory).
        _ if ["08", "57", "53"]
            .iter()
            .any(|class| code.starts_with(class)) =>
        {
            Kind::Unreachable
        }
        _ => Kind::Permanent,
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
        for code in ["57P01", "57P03", "08006", "53300"] {
            assert_eq!(kind_of_state(code), Kind::Unreachable, "{code}");
        }
        for code in ["40001", "40P01", "25006"] {
            assert_eq!(kind_of_state(code), Kind::Passing, "{code}");
        }
        for code in ["23505", "22021", "42601", "22003"] {
            assert_eq!(kind_of_state(code), Kind::Permanent, "{code}");
        }
        assert_eq!(kind_of_state("55P03"), Kind::RowHeld);
    }
}
