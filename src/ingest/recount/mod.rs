//! A recount: all clicks of a book's log are counted again, too late ones included, beside the windows
//! that count, into a set of their own, which then takes the others' place.
//!
//! **Promises.** While it goes on, the book goes on. Every click is in it once: what is in the log when
//! it begins is read by the index of the ids, in short transactions, each of which writes its windows
//! and its place together; what comes since is noted by the commits that log it ([`note`]), and read
//! from there in its order. Only the last few, and the swap itself, are done while the book's row is
//! held ([`swap()`]). Whatever is killed, it goes on from its place.
//!
//! **Called by** [`crate::runs`], and for the swap by the lane.

mod fold;
pub mod left_alone;
mod swap;
mod tail;

pub use fold::{Counting, fold};
pub(super) use swap::swap;
pub use swap::{counting, sweep};
pub(super) use tail::note;
pub use tail::{Kept, clicks, log_page, tail_page};
