//! How a record becomes a line of a segment, and a line a record.
//!
//! [`encode_checked`] and [`decode_checked`] put a checksum before the record, so that a flipped bit
//! is noticed within a string too, where it would be another string.

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a store can keep.
pub trait Record: Clone + Send + Sync + 'static {
    /// Writes the record behind what is in `line`, as something without a line break.
    ///
    /// # Errors
    /// It cannot be written.
    fn encode(&self, line: &mut Vec<u8>) -> io::Result<()>;

    /// The record of a line, without its break; `None` if the line is damaged.
    fn decode(line: &[u8]) -> Option<Self>;
}

/// A line as it stands in the file. The checksum is over the very bytes of `record`.
#[derive(Deserialize)]
struct Checked<'a> {
    crc: u32,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// Writes `{"crc":…,"record":…}` behind what is in `line`. JSON escapes line breaks.
///
/// # Errors
/// `record` cannot be written as JSON.
pub fn encode_checked<T: Serialize>(record: &T, line: &mut Vec<u8>) -> io::Result<()> {
    let record = serde_json::to_vec(record)?;
    let crc = crc32fast::hash(&record);
    write!(line, r#"{{"crc":{crc},"record":"#)?;
    line.extend_from_slice(&record);
    line.push(b'}');
    Ok(())
}

/// The record of a line that [`encode_checked`] wrote; `None` if any of it was changed.
#[must_use]
pub fn decode_checked<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line: Checked<'_> = serde_json::from_slice(line).ok()?;
    let record = line.record.get();
    if crc32fast::hash(record.as_bytes()) != line.crc {
        return None;
    }
    serde_json::from_str(record).ok()
}

/// The lines of `records`.
///
/// # Errors
/// One of them cannot be written, or not as one line.
pub(super) fn lines<R: Record>(records: &[R]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for record in records {
        let start = lines.len();
        record.encode(&mut lines)?;
        if lines[start..].contains(&b'\n') {
            let broken = "a record with a line break in it";
            return Err(io::Error::new(io::ErrorKind::InvalidData, broken));
        }
        lines.push(b'\n');
    }
    Ok(lines)
}

/// For tests, which read best with plain numbers.
#[cfg(test)]
impl Record for i64 {
    fn encode(&self, line: &mut Vec<u8>) -> io::Result<()> {
        write!(line, "{self}")
    }

    fn decode(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_comes_back() {
        let text = "a\nb\r\u{2028}\"\\é🦀\0".to_owned();
        let mut line = Vec::new();
        encode_checked(&text, &mut line).unwrap();
        assert!(!line.contains(&b'\n'));
        assert_eq!(decode_checked::<String>(&line), Some(text));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut line = Vec::new();
        encode_checked(&("naïve", 7, [1.5, -2.0]), &mut line).unwrap();
        for bit in 0..line.len() * 8 {
            line[bit / 8] ^= 1 << (bit % 8);
            let found = decode_checked::<(String, i64, [f64; 2])>(&line);
            assert_eq!(found, None, "{}", String::from_utf8_lossy(&line));
            line[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_form_of_a_line_stays() {
        // Segments outlive the version that wrote them.
        let line = br#"{"crc":3100482057,"record":{"page":"/a"}}"#;
        let mut written = Vec::new();
        encode_checked(&serde_json::json!({"page": "/a"}), &mut written).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&written),
            String::from_utf8_lossy(line)
        );
    }

    #[test]
    fn a_record_of_two_lines_is_refused() {
        #[derive(Clone)]
        struct Torn;
        impl Record for Torn {
            fn encode(&self, line: &mut Vec<u8>) -> io::Result<()> {
                line.extend_from_slice(b"1\n2");
                Ok(())
            }
            fn decode(_: &[u8]) -> Option<Self> {
                None
            }
        }
        assert!(lines(&[Torn]).is_err());
    }
}
