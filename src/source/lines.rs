//! Lines of a file or a pipe, byte by byte: what is no UTF-8 concerns only its own line.
//!
//! **Promises.** Never more than one bounded line and one piece of the input are held; a line is a
//! record once its end has come, or where the input ends and is not followed.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::input::{Body, Input};
use super::{Record, SourceError, Text};

/// Longest line, in bytes; a longer one is read over.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Most bytes of lines that are gathered at once.
const MAX_GATHERED_BYTES: u64 = 4 << 20;

/// How often a file that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A source of lines.
#[derive(Debug)]
pub struct Lines {
    input: Input,
    follow: bool,
    buffer: Vec<u8>,
    /// How much of the buffer was given away already.
    given: usize,
    /// How much of it, from its beginning, was looked through for the end of a line.
    scanned: usize,
    /// Byte of the source after what was given away.
    offset: u64,
    /// Where the line began that is too long to be held.
    too_long_since: Option<u64>,
    ended: bool,
    /// What went wrong behind lines that were given away.
    failed: Option<SourceError>,
}

impl Lines {
    /// Opens `path`, `-` for standard input, to read on from byte `offset`. What can be sought is;
    /// of a pipe, so many bytes are read over.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than that.
    pub async fn open(path: &Path, offset: u64, follow: bool) -> Result<Self, SourceError> {
        let (input, at) = Input::open(path, offset).await?;
        let mut lines = Self::of(input, at, follow);
        lines.read_over(offset).await?;
        Ok(lines)
    }

    /// The lines of what is being received piece by piece; an empty piece is its end, and without one
    /// it broke off.
    #[must_use]
    pub fn of_pieces(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self::of(Input::Body(Body::new(pieces)), 0, false)
    }

    fn of(input: Input, offset: u64, follow: bool) -> Self {
        Self {
            follow: follow && input.may_grow(),
            input,
            buffer: Vec::new(),
            given: 0,
            scanned: 0,
            offset,
            too_long_since: None,
            ended: false,
            failed: None,
        }
    }

    async fn read_over(&mut self, offset: u64) -> Result<(), SourceError> {
        while self.offset < offset {
            self.make_room();
            if self.input.read(&mut self.buffer).await? == 0 {
                let length = self.offset;
                return Err(SourceError::TooShort { length, offset });
            }
            let left = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
            self.give(left.min(self.buffer.len()));
        }
        Ok(())
    }

    /// How long the source is, if that can be known.
    pub async fn length(&self) -> Option<u64> {
        self.input.length().await
    }

    /// The lines that are there now, at most `most`, at least one: it waits for the first. Empty at
    /// the end of the source.
    ///
    /// # Errors
    /// The source cannot be read any further.
    pub async fn gather(&mut self, most: usize) -> Result<Vec<Record>, SourceError> {
        let mut records = Vec::new();
        let began = loop {
            match self.take() {
                Some(record) => break record,
                None if self.ended => return Ok(records),
                None => self.wait().await?,
            }
        };
        let from = began.line_offset;
        records.push(began);
        // Nothing is waited for but the disk from here on: what was taken would be lost.
        while records.len() < most && self.offset - from < MAX_GATHERED_BYTES {
            match self.take() {
                Some(record) => records.push(record),
                None if self.ended => break,
                None => {
                    self.make_room();
                    // An end is found by the next call, which has nothing else to tell. So is an error,
                    // which the input may tell only once.
                    match self.input.read_what_is_there(&mut self.buffer).await {
                        Ok(1..) => {}
                        Ok(0) => break,
                        Err(error) => {
                            self.failed = Some(error);
                            break;
                        }
                    }
                }
            }
        }
        Ok(records)
    }

    /// Reads on, waits for more, or notes the end.
    async fn wait(&mut self) -> Result<(), SourceError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.make_room();
        if self.input.read(&mut self.buffer).await? > 0 {
            return Ok(());
        }
        if self.follow {
            let end = self.offset + self.buffer.len() as u64;
            self.input.check(end).await?;
            tokio::time::sleep(LOOK_EVERY).await;
        } else {
            self.ended = true;
        }
        Ok(())
    }

    /// The next line, if the buffer holds all of it.
    fn take(&mut self) -> Option<Record> {
        let unseen = &self.buffer[self.scanned..];
        if let Some(end) = unseen.iter().position(|byte| *byte == b'\n') {
            return Some(self.record(self.scanned + end - self.given, 1));
        }
        self.scanned = self.buffer.len();
        let held = self.buffer.len() - self.given;
        if held > MAX_LINE_BYTES {
            self.too_long_since.get_or_insert(self.offset);
        }
        let unfinished = held > 0 || self.too_long_since.is_some();
        if self.ended && unfinished {
            return Some(self.record(held, 0));
        }
        if self.too_long_since.is_some() {
            self.give(held);
        }
        None
    }

    /// The next `length` bytes as a record, and `ending` more that end it.
    fn record(&mut self, length: usize, ending: usize) -> Record {
        let began = self.too_long_since.take();
        let line_offset = began.unwrap_or(self.offset);
        let text = if began.is_some() || length > MAX_LINE_BYTES {
            Text::TooLong
        } else {
            let line = &self.buffer[self.given..self.given + length];
            Text::Whole(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
        };
        self.give(length + ending);
        Record {
            line_offset,
            offset_after: self.offset,
            torn: ending == 0 && self.input.may_grow(),
            text,
        }
    }

    fn give(&mut self, length: usize) {
        self.given += length;
        self.scanned = self.given;
        self.offset += length as u64;
    }

    /// Forgets what was given away; once a piece, not once a line.
    fn make_room(&mut self) {
        self.buffer.drain(..self.given);
        self.scanned -= self.given;
        self.given = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    async fn all(lines: &mut Lines, most: usize) -> Vec<(u64, u64, Option<String>)> {
        let mut all = Vec::new();
        loop {
            let records = lines.gather(most).await.unwrap();
            if records.is_empty() {
                return all;
            }
            assert!(records.len() <= most);
            all.extend(records.into_iter().map(|r| {
                let text = match r.text {
                    Text::Whole(text) => Some(String::from_utf8_lossy(&text).into_owned()),
                    Text::TooLong => None,
                };
                (r.line_offset, r.offset_after, text)
            }));
        }
    }

    fn file(content: &[u8]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("pt-lines-{}", uuid::Uuid::new_v4()));
        std::fs::write(&path, content).unwrap();
        path
    }

    fn line(from: u64, to: u64, text: &str) -> (u64, u64, Option<String>) {
        (from, to, Some(text.to_owned()))
    }

    #[tokio::test]
    async fn lines_say_where_they_stand() {
        let path = file(b"a\r\n\nbc\nrest");
        let expected = [
            line(0, 3, "a"),
            line(3, 4, ""),
            line(4, 7, "bc"),
            line(7, 11, "rest"),
        ];
        let mut lines = Lines::open(&path, 0, false).await.unwrap();
        assert_eq!(lines.length().await, Some(11));
        assert_eq!(all(&mut lines, 1).await, expected);
        let mut lines = Lines::open(&path, 4, false).await.unwrap();
        assert_eq!(all(&mut lines, 100).await, expected[2..]);
        let error = Lines::open(&path, 12, false).await.unwrap_err();
        assert!(matches!(error, SourceError::Shrank { length: 11, .. }));
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_line_too_long_is_read_over_in_little_memory() {
        let mut content = vec![b'x'; 5 * MAX_LINE_BYTES];
        content.extend(b"\nshort\n");
        let fits = content.len() as u64;
        content.extend(vec![b'y'; MAX_LINE_BYTES]);
        content.push(b'\n');
        let path = file(&content);
        let mut lines = Lines::open(&path, 0, false).await.unwrap();
        let read = all(&mut lines, 10).await;
        let long = 5 * MAX_LINE_BYTES as u64;
        assert_eq!(read[0], (0, long + 1, None));
        assert_eq!(read[1], line(long + 1, long + 7, "short"));
        let (from, _, text) = &read[2];
        assert_eq!(
            (*from, text.as_ref().unwrap().len()),
            (fits, MAX_LINE_BYTES)
        );
        assert!(lines.buffer.capacity() < 3 * MAX_LINE_BYTES);
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_followed_file_gives_a_line_once_it_has_an_end() {
        let path = file(b"one\ntw");
        let mut append = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        let mut lines = Lines::open(&path, 0, true).await.unwrap();
        let first = lines.gather(10).await.unwrap();
        assert_eq!(first.len(), 1);
        let waiting = tokio::time::timeout(LOOK_EVERY * 3, lines.gather(10)).await;
        assert!(waiting.is_err(), "half a line was taken");
        append.write_all(b"o\n").unwrap();
        let second = lines.gather(10).await.unwrap();
        assert_eq!(second[0].text, Text::Whole(b"two".to_vec()));
        assert_eq!((second[0].line_offset, second[0].offset_after), (4, 8));
        append.set_len(3).unwrap();
        let error = lines.gather(10).await.unwrap_err();
        assert!(matches!(
            error,
            SourceError::Shrank {
                length: 3,
                offset: 8,
                ..
            }
        ));
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_followed_file_that_another_replaces_is_told() {
        let path = file(b"one\n");
        let mut lines = Lines::open(&path, 0, true).await.unwrap();
        assert_eq!(lines.gather(10).await.unwrap().len(), 1);
        std::fs::rename(file(b"new\n"), &path).unwrap();
        let error = lines.gather(10).await.unwrap_err();
        assert!(matches!(error, SourceError::Replaced(_)), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
