//! `sum`: all values added up.

use super::{Aggregate, Sample, Value};

/// All values added up, in millionths: integers, so that order does not matter.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sum(i128);

impl Aggregate for Sum {
    const VERSION: u8 = 1;

    fn add(&mut self, sample: &Sample<'_>) {
        if let Some(number) = sample.number() {
            self.0 = self.0.saturating_add(i128::from(number.0));
        }
    }

    fn combine(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    fn value(&self) -> Value {
        Value::Decimal(Some(self.0))
    }

    fn weight(&self) -> i64 {
        i64::try_from(self.0).unwrap_or(if self.0 < 0 { i64::MIN } else { i64::MAX })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(i128::from_le_bytes).map(Self)
    }
}
