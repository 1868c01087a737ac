//! `first` and `last`: the value of the earliest and of the latest click.

use super::{Aggregate, Sample, Value};

/// A value and when it was: by event time, then by place in the log. Two clicks of a book are
/// never equal in both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Dated {
    at_ms: i64,
    seq: i64,
    micros: i64,
}

impl Dated {
    fn of(sample: &Sample<'_>) -> Option<Self> {
        Some(Self {
            at_ms: sample.at_ms,
            seq: sample.seq,
            micros: sample.number()?.0,
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        for number in [self.at_ms, self.seq, self.micros] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<8>() else {
            return None;
        };
        let [at_ms, seq, micros] = numbers.try_into().ok().map(|n: [[u8; 8]; 3]| n)?;
        Some(Self {
            at_ms: i64::from_le_bytes(at_ms),
            seq: i64::from_le_bytes(seq),
            micros: i64::from_le_bytes(micros),
        })
    }
}

macro_rules! edge {
    ($(#[doc = $doc:literal] $name:ident, $choose:path;)+) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct $name(Option<Dated>);

        impl Aggregate for $name {
            const VERSION: u8 = 1;

            fn add(&mut self, sample: &Sample<'_>) {
                self.combine(&Self(Dated::of(sample)));
            }

            fn combine(&mut self, other: &Self) {
                self.0 = match (self.0, other.0) {
                    (Some(mine), Some(theirs)) => Some($choose(mine, theirs)),
                    (mine, theirs) => mine.or(theirs),
                };
            }

            fn value(&self) -> Value {
                Value::Decimal(self.0.map(|dated| i128::from(dated.micros)))
            }

            fn weight(&self) -> i64 {
                self.0.map_or(i64::MIN, |dated| dated.micros)
            }

            fn write(&self, out: &mut Vec<u8>) {
                if let Some(dated) = self.0 {
                    dated.write(out);
                }
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                if bytes.is_empty() {
                    return Some(Self(None));
                }
                Dated::read(bytes).map(|dated| Self(Some(dated)))
            }
        }
    )+};
}

edge! {
    #[doc = "The value of the earliest click, in millionths."] First, std::cmp::min;
    #[doc = "The value of the latest click, in millionths."] Last, std::cmp::max;
}
