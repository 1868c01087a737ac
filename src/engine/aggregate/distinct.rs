//! `distinct`: placeholder, exact.

use std::collections::BTreeSet;

use super::{Aggregate, Sample, Value};
use crate::rollup::Item;

/// Exact.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Distinct(BTreeSet<String>);

impl Aggregate for Distinct {
    const VERSION: u8 = 1;
    fn add(&mut self, sample: &Sample<'_>) {
        match &sample.item {
            Item::Text(t) => {
                self.0.insert(t.to_string());
            }
            Item::Number(n) => {
                self.0.insert(n.0.to_string());
            }
            Item::Click => {}
        }
    }
    fn combine(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }
    fn value(&self) -> Value {
        Value::Integer(self.weight())
    }
    fn weight(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(0)
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(serde_json::to_vec(&self.0).unwrap_or_default());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().map(Self)
    }
}
