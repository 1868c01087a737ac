//! `top`: placeholder, exact.

use std::collections::BTreeMap;

use super::{Aggregate, Sample, Value};
use crate::rollup::Item;

/// Exact.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Top(BTreeMap<String, i64>);

impl Aggregate for Top {
    const VERSION: u8 = 1;
    fn add(&mut self, sample: &Sample<'_>) {
        match &sample.item {
            Item::Text(t) => {
                *self.0.entry(t.to_string()).or_default() += 1;
            }
            Item::Number(n) => {
                *self.0.entry(n.0.to_string()).or_default() += 1;
            }
            Item::Click => {}
        }
    }
    fn combine(&mut self, other: &Self) {
        for (k, n) in &other.0 {
            *self.0.entry(k.clone()).or_default() += n;
        }
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
