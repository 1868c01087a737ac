//! The write path: from a parsed request to a committed transaction.
//!
//! [`admission`] validates, without a database. [`lane`] queues by book and commits in groups.
//! [`commit`] is the transaction: clicks, windows, frames, prune and watermark together.
//! [`command`] ends, reopens and reconfigures a book, in the same queue. [`retry`] says which
//! failures can pass by themselves.

pub mod admission;
pub mod command;
pub mod commit;
pub mod lane;
pub mod retry;
