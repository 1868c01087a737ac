//! What clients may rely on, shown with a real server process, a real Postgres and real clients.
//!
//! One file for each promise. `make test` brings up the Postgres that these tests need
//! (`tests/with-postgres.sh`); every test has a database of its own.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    clippy::print_stderr,
    reason = "a test that cannot go on panics, says what it measured, and reads like a table"
)]

mod harness;

mod access;
mod architecture;
mod beacon;
mod books;
mod cancelled;
mod chapters;
mod clicks;
mod commit_order;
mod concurrency;
mod conformance;
mod consume;
mod cors;
mod counts;
mod counts_queries;
mod counts_sessions;
mod dashboard;
mod demo;
mod embedded;
mod faults;
mod flood;
mod held_row;
mod imports;
mod independent;
mod limits;
mod local_days;
mod notes;
mod openapi;
mod outage;
mod processes;
mod public;
mod raw;
mod readme;
mod real_client;
mod real_log;
mod recounts;
mod resume;
mod retention;
mod security;
mod shutdown;
mod spooled;
mod stream_barrier;
mod stream_big;
mod stream_frames;
mod stream_life;
mod stream_merged;
mod stream_slow;
mod stream_snapshot;
mod stream_start;
mod telemetry;
mod visitors;
mod windows;
mod write_path;
