//! The event stream: from stored frames to a reader's connection.
//!
//! Streams pull; nothing is pushed into a client's queue. A connection is a cursor and a loop
//! ([`follow`]): wait for a wake-up, read the page after the cursor, write it. Replay, live and
//! slow readers are the same code. [`hub`] reads what is new of the books that are watched, once
//! for all their readers, into the [`feed`] of each, whose [`ring`] holds the newest frames; those
//! before them come from the buffer (`older`), and are shared while somebody holds them (`lent`).
//! [`stall`] cuts off who takes nothing. [`announce`] carries wake-ups between processes.
//! [`state`] is the snapshot that a reader begins with; [`sessions`] knows which of them it shows.

pub mod announce;
pub mod cursor;
pub mod feed;
#[cfg(test)]
mod feed_tests;
pub mod follow;
pub mod hub;
mod lent;
mod news;
mod older;
pub mod ring;
mod sessions;
pub mod stall;
pub mod state;
