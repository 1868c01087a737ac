//! What the demo shows: a small book, readers who read it, and the state of the show.
//! `http::stage` puts it before people, and `app::demo` makes it happen.
//!
//! The pages of the book are in `src/demo/pages`, those of the stage in `src/demo/stage`.

pub(crate) mod book;
pub(crate) mod readers;
pub(crate) mod show;
pub(crate) mod tally;
