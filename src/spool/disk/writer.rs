//! The thread that writes: what waits is written and synced together, then answered.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Shared;
use crate::spool::{AppendError, SEGMENT_BYTES, SegmentKey, Window};

/// How much is gathered for one sync, unless a single append has more.
const GROUP_BYTES: usize = 1 << 20;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Request {
    /// To keep lines.
    Append(Append),
    /// Never to add to this segment again.
    Seal {
        key: SegmentKey,
        reply: oneshot::Sender<()>,
    },
}

#[derive(Debug)]
pub(super) struct Append {
    pub(super) window: Window,
    pub(super) lines: Vec<u8>,
    pub(super) reply: oneshot::Sender<Result<(), AppendError>>,
}

#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    max_bytes: u64,
    next_sequence: u64,
    growing: Option<Growing>,
}

/// The segment that is added to. There is one at most: what comes for another window seals it.
#[derive(Debug)]
struct Growing {
    key: SegmentKey,
    file: File,
    /// How long its acknowledged part is.
    bytes: u64,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        requests: mpsc::Receiver<Request>,
        max_bytes: u64,
        next_sequence: u64,
    ) -> Self {
        Self {
            shared,
            requests,
            max_bytes,
            next_sequence,
            growing: None,
        }
    }

    /// Ends when there will be no more requests.
    pub(super) fn run(mut self) {
        while let Some(first) = self.requests.blocking_recv() {
            let mut appends = BTreeMap::<Window, Vec<Append>>::new();
            let mut seals = Vec::new();
            let mut gathered_bytes = 0;
            let mut next = Some(first);
            while let Some(request) = next {
                match request {
                    Request::Append(append) => {
                        gathered_bytes += append.lines.len();
                        appends.entry(append.window).or_default().push(append);
                    }
                    Request::Seal { key, reply } => seals.push((key, reply)),
                }
                let more = gathered_bytes < GROUP_BYTES;
                next = more.then(|| self.requests.try_recv().ok()).flatten();
            }
            for (window, group) in appends {
                self.append(window, group);
            }
            for (key, reply) in seals {
                self.seal(key);
                let _ = reply.send(());
            }
        }
    }

    fn seal(&mut self, key: SegmentKey) {
        if self.growing.as_ref().is_some_and(|g| g.key == key) {
            self.growing = None;
            self.shared.index().seal();
        }
    }

    /// Keeps a group of appends to one window, and answers each.
    fn append(&mut self, window: Window, group: Vec<Append>) {
        let stored = self.shared.index().bytes();
        let mut lines = Vec::new();
        let mut replies = Vec::new();
        for append in group {
            if stored + lines.len() as u64 >= self.max_bytes {
                let _ = append.reply.send(Err(AppendError::Full));
            } else {
                lines.extend_from_slice(&append.lines);
                replies.push(append.reply);
            }
        }
        if replies.is_empty() {
            return;
        }
        let written = self.write(window, &lines).map_err(Arc::new);
        for reply in replies {
            let _ = reply.send(written.clone().map_err(AppendError::Io));
        }
    }

    /// Writes and syncs. What fails is the end of its segment, so that nothing acknowledged ever
    /// stands behind what may be torn.
    fn write(&mut self, window: Window, lines: &[u8]) -> io::Result<()> {
        let fits = |g: &Growing| g.key.window == window && g.bytes < SEGMENT_BYTES;
        let growing = match self.growing.take().filter(fits) {
            Some(growing) => Ok(growing),
            None => self.begin(window),
        };
        let kept = growing.and_then(|mut growing| match self.keep(&mut growing, lines) {
            Ok(()) => Ok(growing),
            Err(error) => {
                self.take_back(&growing);
                Err(error)
            }
        });
        let mut index = self.shared.index();
        match kept {
            Ok(growing) => {
                index.grow(growing.key, growing.bytes);
                self.growing = Some(growing);
                Ok(())
            }
            Err(error) => {
                index.seal();
                Err(error)
            }
        }
    }

    fn begin(&mut self, window: Window) -> io::Result<Growing> {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let key = SegmentKey { window, sequence };
        Ok(Growing {
            key,
            file: self.shared.folder.create(key)?,
            bytes: 0,
        })
    }

    fn keep(&self, growing: &mut Growing, lines: &[u8]) -> io::Result<()> {
        let new = growing.bytes == 0;
        growing.file.write_all(lines)?;
        self.shared.folder.sync(&growing.file, new)?;
        growing.bytes += lines.len() as u64;
        Ok(())
    }

    /// Removes what was written of an append that failed. If even that fails, nothing is lost by it:
    /// a segment is read as far as it was acknowledged, and what is torn is cut off at the next start.
    fn take_back(&self, growing: &Growing) {
        let path = self.shared.folder.segment(growing.key);
        let taken = if growing.bytes == 0 {
            fs::remove_file(&path)
        } else {
            growing.file.set_len(growing.bytes)
        };
        if let Err(error) = taken {
            let file = path.display();
            tracing::warn!(%file, %error, "cannot take back what could not be written whole");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::sync::Mutex;

    use super::super::folder::Folder;
    use super::super::index::Index;
    use super::super::scratch::Scratch;
    use super::super::segment;
    use super::*;

    fn writer(scratch: &Scratch) -> Writer {
        let (folder, found) = Folder::open(scratch.path()).unwrap();
        let shared = Shared {
            folder,
            index: Mutex::new(Index::new(found.segments)),
        };
        let (_, requests) = mpsc::channel(1);
        Writer::new(Arc::new(shared), requests, u64::MAX, found.next_sequence)
    }

    #[test]
    fn what_waits_is_synced_once_and_then_answered() {
        let scratch = Scratch::new();
        let mut writer = writer(&scratch);
        let shared = Arc::clone(&writer.shared);
        let (queue, requests) = mpsc::channel(400);
        writer.requests = requests;
        let answers: Vec<_> = (0..400)
            .map(|n| {
                let (reply, answer) = oneshot::channel();
                let append = Append {
                    window: Window(n % 2),
                    lines: format!("{n}\n").into_bytes(),
                    reply,
                };
                queue.try_send(Request::Append(append)).unwrap();
                answer
            })
            .collect();
        drop(queue);
        writer.run();
        // Two files, and the folder for each of them.
        assert_eq!(shared.folder.syncs(), 4);
        for mut answer in answers {
            answer.try_recv().unwrap().unwrap();
        }
        let even: Vec<i64> = (0..400).step_by(2).collect();
        let odd = even.iter().map(|n| n + 1).collect();
        assert_eq!(stored(&shared), [even, odd]);
    }

    #[test]
    fn the_bound_holds_within_a_group() {
        let scratch = Scratch::new();
        let mut writer = writer(&scratch);
        writer.max_bytes = 3;
        let (group, answers): (Vec<_>, Vec<_>) = (1..4)
            .map(|n| {
                let (reply, answer) = oneshot::channel();
                let append = Append {
                    window: Window(1),
                    lines: format!("{n}\n").into_bytes(),
                    reply,
                };
                (append, answer)
            })
            .unzip();
        writer.append(Window(1), group);
        let answers = answers.into_iter().map(|mut a| a.try_recv().unwrap());
        let taken: Vec<_> = answers.map(|answer| answer.is_ok()).collect();
        assert_eq!(taken, [true, true, false]);
        assert_eq!(stored(&writer.shared), [[1, 2]]);
    }

    /// What the index says is stored.
    fn stored(shared: &Arc<Shared>) -> Vec<Vec<i64>> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let oldest = shared.index().oldest(after);
            let Some(oldest) = oldest else { return found };
            let segment = segment::read(shared, oldest.key, oldest.bytes).unwrap();
            found.push(segment.records);
            after = Some(oldest.key);
        }
    }

    #[test]
    fn what_cannot_be_written_harms_nothing_before_or_after_it() {
        let scratch = Scratch::new();
        let mut writer = writer(&scratch);
        writer.write(Window(1), b"1\n").unwrap();
        let growing = writer.growing.as_mut().unwrap();
        let path = writer.shared.folder.segment(growing.key);
        // A write that came to "2\n3" before it failed, and cannot be taken back.
        growing.file.write_all(b"2\n3").unwrap();
        growing.file = File::open(&path).unwrap();
        writer.write(Window(1), b"2\n34\n").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"1\n2\n3");
        writer.write(Window(1), b"5\n").unwrap();
        writer.write(Window(1), b"6\n").unwrap();
        assert_eq!(stored(&writer.shared), [vec![1], vec![5, 6]]);
        assert_eq!(writer.shared.index().bytes(), 6);
    }

    #[test]
    fn what_was_written_in_part_is_taken_back() {
        let scratch = Scratch::new();
        let mut writer = writer(&scratch);
        writer.write(Window(1), b"1\n").unwrap();
        let mut growing = writer.growing.take().unwrap();
        growing.file.write_all(b"2\n3").unwrap();
        writer.take_back(&growing);
        let path = writer.shared.folder.segment(growing.key);
        assert_eq!(fs::read(&path).unwrap(), b"1\n");

        let begun = writer.begin(Window(1)).unwrap();
        let path = writer.shared.folder.segment(begun.key);
        assert!(path.exists());
        writer.growing = Some(Growing {
            file: File::open(&path).unwrap(),
            ..begun
        });
        writer.write(Window(1), b"2\n").unwrap_err();
        assert!(!path.exists());
    }

    #[test]
    fn a_segment_that_cannot_be_begun_leaves_none_growing() {
        let scratch = Scratch::new();
        let mut writer = writer(&scratch);
        writer.write(Window(1), b"1\n").unwrap();
        let in_the_way = SegmentKey {
            window: Window(2),
            sequence: 1,
        };
        let options = OpenOptions::new().create(true).write(true).clone();
        let in_the_way = options.open(writer.shared.folder.segment(in_the_way));
        drop(in_the_way.unwrap());
        writer.write(Window(2), b"2\n").unwrap_err();
        assert!(!writer.shared.index().oldest(None).unwrap().growing);
        writer.write(Window(2), b"3\n").unwrap();
        assert_eq!(stored(&writer.shared), [[1], [3]]);
    }
}
