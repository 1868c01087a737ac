//! `min` and `max`: the least and the greatest value.

use super::{Aggregate, Sample, Value};

macro_rules! extreme {
    ($(#[doc = $doc:literal] $name:ident, $choose:path;)+) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct $name(Option<i64>);

        impl Aggregate for $name {
            const VERSION: u8 = 1;

            fn add(&mut self, sample: &Sample<'_>) {
                self.combine(&Self(sample.number().map(|number| number.0)));
            }

            fn combine(&mut self, other: &Self) {
                self.0 = match (self.0, other.0) {
                    (Some(mine), Some(theirs)) => Some($choose(mine, theirs)),
                    (mine, theirs) => mine.or(theirs),
                };
            }

            fn value(&self) -> Value {
                Value::Decimal(self.0.map(i128::from))
            }

            fn weight(&self) -> i64 {
                self.0.unwrap_or(i64::MIN)
            }

            fn write(&self, out: &mut Vec<u8>) {
                if let Some(micros) = self.0 {
                    out.extend_from_slice(&micros.to_le_bytes());
                }
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                if bytes.is_empty() {
                    return Some(Self(None));
                }
                let micros = bytes.try_into().ok().map(i64::from_le_bytes)?;
                Some(Self(Some(micros)))
            }
        }
    )+};
}

extreme! {
    #[doc = "The least value, in millionths."] Min, std::cmp::min;
    #[doc = "The greatest value, in millionths."] Max, std::cmp::max;
}
