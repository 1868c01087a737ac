//! The write path: from a parsed request to a committed transaction.
//!
//! [`body`] and [`admission`] validate, without a database. [`tier`] keeps what cannot be committed
//! now in the spool (as [`spooled`] says), which [`drain`] empties. [`lane`] queues by book and gathers
//! groups. `committer` tries a group, again where that helps and in smaller groups where it does not;
//! `apart` takes a request apart until the click that cannot be committed is alone, one of the
//! [`dead_letters`]. [`commit`] is the transaction: clicks, windows, frames, prune and watermark
//! together; [`debounce`] says which clicks a reader repeats too soon.
//! [`command`] ends, reopens and reconfigures a book, in the same queue, and begins and ends its [`runs`];
//! [`commit::import`] and [`recount`] commit what these do; [`idle`] moves the
//! watermark of one that nothing is received for ([`in_hand`] knows what is). [`retry`] says which
//! failures can pass by themselves, and [`pulse`] whether a transaction still moves. Beside all of it,
//! [`retention`] removes what books keep no longer.

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
pub mod reading;
pub mod recount;
pub mod retention;
pub mod retry;
pub mod runs;
pub mod spooled;
pub mod tier;
