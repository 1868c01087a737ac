//! `count`: how many clicks.

use super::{Aggregate, Sample, Value};

/// How many clicks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count(i64);

impl Aggregate for Count {
    const VERSION: u8 = 1;

    fn add(&mut self, _sample: &Sample<'_>) {
        self.0 = self.0.saturating_add(1);
    }

    fn combine(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    fn value(&self) -> Value {
        Value::Integer(self.0)
    }

    fn weight(&self) -> i64 {
        self.0
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let count = i64::from_le_bytes(bytes.try_into().ok()?);
        (count >= 0).then_some(Self(count))
    }
}
