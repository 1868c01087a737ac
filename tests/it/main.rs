//! What clients may rely on, shown with a real server process, a real Postgres and real clients.
//!
//! One file for each promise. `make test` brings up the Postgres that these tests need
//! (`tests/with-postgres.sh`); every test has a database of its own.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on panics"
)]

mod harness;

mod commit_order;
mod concurrency;
mod outage;
mod processes;
mod shutdown;
