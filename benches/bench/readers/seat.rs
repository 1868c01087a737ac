//! One reader's stream: lines, of which only the heads matter.

use memchr::memchr;

use super::Tally;
use crate::Error;
use crate::http::{number, number_after};

/// Where a frame says which one it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// `id:` is the position; connection frames have none of their own.
    Ours,
    /// The position stands in the data, for ids are the hub's.
    Nchan,
}

/// As much of a line as matters.
const HEAD_BYTES: usize = 128;

/// What an event is to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It has a position of its own.
    History,
    /// It has the reader's.
    Connection,
    /// The reader goes on elsewhere.
    Resync,
}

/// Where a reader stands.
#[derive(Debug)]
pub(super) struct Seat {
    dialect: Dialect,
    /// The last frame that it got, or what it resumed after; negative: not known yet.
    position: i64,
    kind: Kind,
    answered: bool,
    /// The head of a line whose end has not come yet.
    cut: Vec<u8>,
}

impl Seat {
    pub(super) fn new(dialect: Dialect, cursor: Option<i64>) -> Self {
        Self {
            dialect,
            position: cursor.unwrap_or(-1),
            kind: Kind::Connection,
            answered: false,
            cut: Vec::new(),
        }
    }

    pub(super) fn position(&self) -> Option<i64> {
        (self.position >= 0).then_some(self.position)
    }

    /// Takes what was received; says of each frame which position it has.
    pub(super) fn take(
        &mut self,
        mut received: &[u8],
        tally: &mut Tally,
        mut frame: impl FnMut(i64),
    ) -> Result<(), Error> {
        while let Some(end) = memchr(b'\n', received) {
            let line = &received[..end];
            received = &received[end + 1..];
            if self.cut.is_empty() {
                self.line(line, tally, &mut frame)?;
            } else {
                let mut cut = std::mem::take(&mut self.cut);
                join(&mut cut, line);
                self.line(&cut, tally, &mut frame)?;
                cut.clear();
                self.cut = cut;
            }
        }
        join(&mut self.cut, received);
        Ok(())
    }

    fn line(
        &mut self,
        line: &[u8],
        tally: &mut Tally,
        frame: &mut impl FnMut(i64),
    ) -> Result<(), Error> {
        match line.first() {
            Some(b'H') if !self.answered => {
                if !line.starts_with(b"HTTP/1.1 200 ") {
                    return Err(String::from_utf8_lossy(line).into());
                }
                self.answered = true;
                tally.opened += 1;
            }
            Some(b'e') if let Some(event) = line.strip_prefix(b"event: ") => {
                self.kind = match event {
                    b"hello" | b"snapshot" | b"heartbeat" => Kind::Connection,
                    b"resync_required" => Kind::Resync,
                    b"bye" | b"end" | b"session_ended" => {
                        return Err(String::from_utf8_lossy(line).into());
                    }
                    _ => Kind::History,
                };
            }
            Some(b'i') if let Some(id) = line.strip_prefix(b"id: ") => {
                if let (Dialect::Ours, Some(position)) = (self.dialect, number(id)) {
                    self.id(position, tally, frame);
                }
            }
            Some(b'd') if self.dialect == Dialect::Nchan => {
                let head = &line[..line.len().min(HEAD_BYTES)];
                if let Some(position) = number_after(head, b"\"position\":") {
                    self.frame(position, tally, frame);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn id(&mut self, position: i64, tally: &mut Tally, frame: &mut impl FnMut(i64)) {
        match self.kind {
            Kind::History => self.frame(position, tally, frame),
            Kind::Connection if self.position < 0 => self.position = position,
            Kind::Connection => {}
            Kind::Resync => {
                tally.resyncs += 1;
                self.position = position;
            }
        }
    }

    fn frame(&mut self, position: i64, tally: &mut Tally, frame: &mut impl FnMut(i64)) {
        tally.frames += 1;
        if self.position >= 0 {
            match u64::try_from(position - self.position) {
                Ok(0) | Err(_) => tally.doubled += 1,
                Ok(step) => tally.missed += step - 1,
            }
        }
        self.position = self.position.max(position);
        frame(position);
    }
}

/// Adds to the head of a line what is missing of it.
fn join(head: &mut Vec<u8>, more: &[u8]) {
    let room = HEAD_BYTES.saturating_sub(head.len());
    head.extend_from_slice(&more[..more.len().min(room)]);
}
