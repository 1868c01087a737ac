//! Whatever happens to the bytes of files: what was not touched comes back, and nothing comes back
//! that was not written.

use std::collections::HashMap;
use std::fs;
use std::io;

use proptest::prelude::*;
use proptest::sample::Index as Place;
use serde::{Deserialize, Serialize};

use super::scratch::Scratch;
use super::{DiskStore, folder};
use crate::spool::record::{Record, decode_checked, encode_checked, lines};
use crate::spool::{Segment, SegmentKey, Store, Window};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Note {
    text: String,
    number: i64,
    more: Vec<Option<bool>>,
}

impl Record for Note {
    fn encode(&self, line: &mut Vec<u8>) -> io::Result<()> {
        encode_checked(self, line)
    }

    fn decode(line: &[u8]) -> Option<Self> {
        decode_checked(line)
    }
}

fn note() -> impl Strategy<Value = Note> {
    let odd = prop::sample::select(vec!['"', '\\', '\n', '\0', '\u{2028}', 'é', '🦀', '{']);
    let text = prop::collection::vec(prop_oneof![odd, any::<char>()], 0..12);
    let more = prop::collection::vec(any::<Option<bool>>(), 0..3);
    (text, any::<i64>(), more).prop_map(|(text, number, more)| Note {
        text: text.into_iter().collect(),
        number,
        more,
    })
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(Place, u8),
    Truncate(Place),
    Insert(Place, Vec<u8>),
    Remove(Place, usize),
}

impl Damage {
    fn happen(&self, bytes: &mut Vec<u8>) {
        let at = |place: &Place| place.index(bytes.len() + 1);
        match self {
            Self::Flip(place, bit) => {
                let at = at(place);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Truncate(place) => bytes.truncate(at(place)),
            Self::Insert(place, new) => {
                let at = at(place);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(place, length) => {
                let at = at(place);
                bytes.drain(at..bytes.len().min(at + length));
            }
        }
    }
}

/// Bytes as they might stand in a segment, more or less.
fn junk() -> impl Strategy<Value = Vec<u8>> {
    let likely = prop::sample::select(b"\n\n\n{}\":,crecord0123\xc3\xff".to_vec());
    prop::collection::vec(prop_oneof![likely, any::<u8>()], 0..60)
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Place>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        1 => any::<Place>().prop_map(Damage::Truncate),
        2 => (any::<Place>(), junk()).prop_map(|(at, new)| Damage::Insert(at, new)),
        2 => (any::<Place>(), 1..80_usize).prop_map(|(at, length)| Damage::Remove(at, length)),
    ]
}

/// A segment: what is written, and what happens to it then.
fn segment() -> impl Strategy<Value = (Vec<Note>, Vec<Damage>)> {
    (
        prop::collection::vec(note(), 0..8),
        prop::collection::vec(damage(), 0..4),
    )
}

fn key(window: usize) -> SegmentKey {
    SegmentKey {
        window: Window(window as u64),
        sequence: 0,
    }
}

/// The lines of a file that have their end, without it.
fn whole_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| line.strip_suffix(b"\n")).collect()
}

/// Puts `files` into a folder, reads them all twice, and checks them against the lines that were
/// `written`.
fn check(files: &[Vec<u8>], written: &HashMap<Vec<u8>, Note>) -> Result<(), TestCaseError> {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path()).unwrap();
    for (window, bytes) in files.iter().enumerate() {
        fs::write(scratch.path().join(folder::name(key(window))), bytes).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let store = DiskStore::<Note>::open(scratch.path(), u64::MAX).unwrap();
    for _ in 0..2 {
        let mut after = None;
        for (window, bytes) in files.iter().enumerate() {
            let whole = whole_lines(bytes);
            if whole.is_empty() {
                continue;
            }
            let segment = runtime.block_on(store.oldest(after)).unwrap().unwrap();
            prop_assert_eq!(segment.key(), key(window));
            after = Some(segment.key());

            // Between the untouched there may be one whose damage left it the same to a reader, such
            // as a space between the parts of its line.
            let mut found = segment.records().iter();
            for untouched in whole.iter().filter_map(|line| written.get(*line)) {
                prop_assert!(found.any(|record| record == untouched));
            }
            for record in segment.records() {
                prop_assert!(written.values().any(|w| w == record), "{record:?}");
            }
            let bad = fs::read(
                scratch
                    .path()
                    .join(format!("{}.bad", folder::name(key(window)))),
            );
            let bad = bad.unwrap_or_default();
            let bad = whole_lines(&bad);
            prop_assert_eq!(bad.len(), segment.damaged());
            prop_assert_eq!(bad.len() + segment.records().len(), whole.len());
            let mut all = whole.iter();
            prop_assert!(bad.iter().all(|line| all.any(|other| line == other)));
        }
        prop_assert!(runtime.block_on(store.oldest(after)).unwrap().is_none());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_not_touched_comes_back(
        segments in prop::collection::vec(segment(), 1..4),
    ) {
        let mut written = HashMap::new();
        let mut files = Vec::new();
        for (notes, damages) in &segments {
            let mut bytes = lines(notes).unwrap();
            for (line, note) in whole_lines(&bytes).into_iter().zip(notes) {
                written.insert(line.to_vec(), note.clone());
            }
            for damage in damages {
                damage.happen(&mut bytes);
            }
            files.push(bytes);
        }
        check(&files, &written)?;
    }

    #[test]
    fn nothing_comes_of_junk(files in prop::collection::vec(junk(), 1..4)) {
        check(&files, &HashMap::new())?;
    }
}
