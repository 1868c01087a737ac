//! The event stream: from stored frames to a reader's connection.
//!
//! Streams pull; nothing is pushed into a client's queue. A connection is a cursor and a loop
//! ([`follow`]): wait for a wake-up, read the page after the cursor, write it. Replay, live and
//! slow readers are the same code. [`hub`] keeps the newest frames of the books that are watched,
//! so that a thousand readers cost one query. [`announce`] carries wake-ups between processes.
//! [`state`] is the snapshot that a reader begins with.

pub mod announce;
pub mod cursor;
pub mod feed;
pub mod follow;
pub mod hub;
pub mod state;
