//! Which failures can pass by themselves, and how long to wait before trying again.

use std::time::Duration;

use super::commit::CommitError;
use crate::db;

/// How often and how soon a failed transaction is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retries {
    /// How often.
    pub tries: u32,
    /// The longest wait before the first; each may be twice as long as the one before it.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            tries: 3,
            first_wait: Duration::from_millis(50),
            longest_wait: Duration::from_secs(5),
        }
    }
}

impl Retries {
    /// How long to wait before try number `retry` (from 1): full jitter, so that those which failed
    /// together do not come back together.
    #[must_use]
    pub fn wait_before(&self, retry: u32) -> Duration {
        self.longest_before(retry).mul_f64(rand::random::<f64>())
    }

    fn longest_before(&self, retry: u32) -> Duration {
        let doubled = self
            .first_wait
            .saturating_mul(1 << (retry.clamp(1, 17) - 1));
        doubled.min(self.longest_wait)
    }
}

/// What kind of failure it is, and so what helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The database does not answer: nothing else would fare better.
    Unreachable,
    /// A deadlock, a failover: the same again. Nothing that a click is the reason of.
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
        | CommitError::NotAlone
        | CommitError::Panicked => Kind::Permanent,
    }
}

/// What kind of failure of the database it is.
#[must_use]
pub fn kind_of_database_error(error: &sqlx::Error) -> Kind {
    match error {
        error if db::is_unreachable(error) => Kind::Unreachable,
        sqlx::Error::BeginFailed => Kind::Passing,
        sqlx::Error::Database(error) => {
            let code = error.code();
            code.map_or(Kind::Permanent, |code| kind_of_state(&code))
        }
        _ => Kind::Permanent,
    }
}

/// What kind of failure an SQLSTATE names (`PostgreSQL` documentation, appendix A).
fn kind_of_state(code: &str) -> Kind {
    let of_class = |classes: &[&str]| classes.iter().any(|class| code.starts_with(class));
    match code {
        // Lock not available: `lock_timeout` has passed.
        "55P03" => Kind::RowHeld,
        // Of these alone a click can be the reason: no single value, data that is none, a broken
        // constraint, a limit of the program, a trigger that refuses.
        _ if of_class(&["21", "22", "23", "44", "54", "P0"]) => Kind::Permanent,
        // Failed serialization, deadlock, a primary that has just become a standby, a session that
        // was ended while it waited, a table that is being changed, a damaged page.
        _ => Kind::Passing,
    }
}

/// Why a click is a dead letter, in words that tell nothing of the database's insides.
#[must_use]
pub fn reason(error: &CommitError) -> String {
    match error {
        CommitError::Database(sqlx::Error::Database(refusal)) => match refusal.code() {
            Some(code) => format!("the database refused it (SQLSTATE {code})"),
            None => "the database refused it".to_owned(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_bounded() {
        let retries = Retries::default();
        let longest = |retry| retries.longest_before(retry).as_millis();
        assert_eq!([1, 2, 3].map(longest), [50, 100, 200]);
        assert_eq!([7, 8, 40, u32::MAX].map(longest), [3200, 5000, 5000, 5000]);
        for retry in 1..40 {
            assert!(retries.wait_before(retry) <= retries.longest_before(retry));
        }
    }

    #[test]
    fn what_passes_and_what_does_not() {
        for code in [
            "40001", "40P01", "25006", "25P03", "57014", "0A000", "XX001", "42501",
        ] {
            assert_eq!(kind_of_state(code), Kind::Passing, "{code}");
        }
        for code in ["23505", "23514", "22021", "22003", "54000", "P0001"] {
            assert_eq!(kind_of_state(code), Kind::Permanent, "{code}");
        }
        assert_eq!(kind_of_state("55P03"), Kind::RowHeld);
    }
}
