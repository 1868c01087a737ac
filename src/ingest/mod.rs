//! The write path: from a parsed request to a committed transaction.
//!
//! [`admission`] validates, without a database. [`lane`] queues by book and gathers groups.
//! `committer` tries a group, again where that helps and in smaller groups where it does not.
//! [`commit`] is the transaction: clicks, windows, frames, prune and watermark together.
//! [`command`] ends, reopens and reconfigures a book, in the same queue, and [`idle`] moves the
//! watermark of one that nothing is received for ([`in_hand`] knows what is). [`retry`] says which
//! failures can pass by themselves, and [`pulse`] whether a transaction still moves.

pub mod admission;
mod apart;
pub mod body;
pub mod command;
pub mod commit;
mod committer;
pub mod dead_letters;
pub mod debounce;
pub mod drain;
pub mod idle;
pub mod in_hand;
pub mod lane;
pub mod pulse;
pub mod retry;
pub mod spooled;
pub mod tier;
