//! `count`: how many clicks.

use super::{Aggregate, Value};
use crate::click::Click;

/// How many clicks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count(i64);

impl Aggregate for Count {
    const VERSION: u8 = 1;

    fn add(&mut self, _click: &Click) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn laws(a in 0..1_000_000_i64, b in 0..1_000_000_i64, c in 0..1_000_000_i64) {
            let sum = |x: Count, y: Count| { let mut s = x; s.combine(&y); s };
            let (a, b, c) = (Count(a), Count(b), Count(c));
            prop_assert_eq!(sum(a, Count::default()), a);
            prop_assert_eq!(sum(a, b), sum(b, a));
            prop_assert_eq!(sum(sum(a, b), c), sum(a, sum(b, c)));
        }

        #[test]
        fn bytes_come_back_and_damage_is_seen(n in 0..i64::MAX, cut in 0..8_usize) {
            let mut bytes = Vec::new();
            Count(n).write(&mut bytes);
            prop_assert_eq!(Count::read(&bytes), Some(Count(n)));
            prop_assert_eq!(Count::read(&bytes[..cut]), None);
        }
    }
}
