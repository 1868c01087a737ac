//! Sources: what a job reads, as records that say where they stand.
//!
//! [`lines`] reads a file or a pipe line by line, also as it grows. [`access_log`] says what a line
//! of a web server's log tells. Neither knows a database or a book.

pub mod access_log;
mod input;
pub mod lines;

use std::io;
use std::path::PathBuf;

/// One line of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Byte at which it begins.
    pub line_offset: u64,
    /// Byte after its end, from which a reader that has taken it goes on.
    pub offset_after: u64,
    /// Its end has not come, and may yet: it is the last one of a file.
    pub torn: bool,
    /// What it says, without the end of the line.
    pub text: Text,
}

/// What a line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Text {
    /// All of it.
    Whole(Vec<u8>),
    /// More than [`lines::MAX_LINE_BYTES`]; it was read over.
    TooLong,
}

impl Record {
    /// Whether no end of a line stands behind it.
    #[must_use]
    pub fn has_no_end(&self) -> bool {
        match &self.text {
            Text::Whole(text) => self.offset_after - self.line_offset == text.len() as u64,
            Text::TooLong => false,
        }
    }
}

/// Why a source cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened.
    #[error("{} cannot be opened", .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// It cannot be read.
    #[error("{} cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// It is shorter than what was read of it.
    #[error(
        "{} has {length} bytes, but {offset} of it have been read: it was cut or replaced; give what it holds now another job name",
        path.display()
    )]
    Shrank {
        /// Which file.
        path: PathBuf,
        /// How long it is.
        length: u64,
        /// How far it was read.
        offset: u64,
    },
    /// While it was followed, another file took its name.
    #[error(
        "{} is another file now, all of the one before was read; give the new one another job name",
        .0.display()
    )]
    Replaced(PathBuf),
    /// What is being received stopped before its end.
    #[error("the body broke off after {0} bytes")]
    BrokeOff(u64),
    /// A pipe ended before the place from which to go on.
    #[error("the input ended at byte {length}, before {offset}, from which the job goes on")]
    TooShort {
        /// How much came.
        length: u64,
        /// Where the job goes on.
        offset: u64,
    },
}
