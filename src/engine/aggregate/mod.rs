//! Aggregates: what is computed of the clicks of one window and group.
//!
//! To add one: a file beside `count.rs` that implements [`Aggregate`], and a line in the list
//! below.

pub mod count;
pub mod distinct;
pub mod edge;
pub mod extreme;
mod hyperloglog;
pub mod sum;
pub mod top;
mod value;

#[cfg(test)]
mod laws;

pub use value::{TopItem, Value};

use crate::click::Micros;
use crate::rollup::{AggregateKind, Item};

/// What an aggregate takes of one click.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample<'a> {
    /// Event time, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Place in the book's log; tells apart what happened at the same time.
    pub seq: i64,
    /// What of the click is aggregated.
    pub item: Item<'a>,
}

impl Sample<'_> {
    /// The number that is aggregated. A rollup of numbers is of `value` (it is checked when the
    /// book is made), so the others have none.
    #[must_use]
    pub fn number(&self) -> Option<Micros> {
        match self.item {
            Item::Number(number) => Some(number),
            Item::Click | Item::Text(_) => None,
        }
    }
}

/// A commutative monoid over clicks: `Default` is its identity, [`Aggregate::combine`] is
/// associative and commutative, so that neither order nor batching changes a value.
pub trait Aggregate: Clone + Default + PartialEq + std::fmt::Debug {
    /// Written before the state, so that a later form can still read this one.
    const VERSION: u8;

    /// Takes one click in.
    fn add(&mut self, sample: &Sample<'_>);
    /// Takes in all that `other` has taken in.
    fn combine(&mut self, other: &Self);
    /// What is shown.
    fn value(&self) -> Value;
    /// Orders groups by size where only the greatest are shown.
    fn weight(&self) -> i64;
    /// How many bytes it holds besides itself, roughly.
    fn heap_bytes(&self) -> usize {
        0
    }
    /// Appends the state.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads what [`Aggregate::write`] appended; `None` if it is damaged.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// A stored state cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the state of a window is damaged or of a newer version")]
pub struct StateError;

macro_rules! aggregates {
    ($($kind:ident => $path:path),+ $(,)?) => {
        /// The folded clicks of one window and group.
        #[derive(Clone, PartialEq, Debug)]
        #[allow(missing_docs, reason = "each variant is the aggregate of its name")]
        pub enum State { $($kind($path)),+ }

        impl State {
            /// The state of no clicks at all.
            #[must_use]
            pub fn identity(kind: AggregateKind) -> Self {
                match kind { $(AggregateKind::$kind => Self::$kind(<$path>::default())),+ }
            }

            /// Takes one click in.
            pub fn add(&mut self, sample: &Sample<'_>) {
                match self { $(Self::$kind(state) => state.add(sample)),+ }
            }

            /// Takes in all that `other`, a state of the same aggregate, has taken in.
            pub fn combine(&mut self, other: &Self) {
                match (self, other) {
                    $((Self::$kind(state), Self::$kind(other)) => state.combine(other),)+
                    (state, other) => {
                        debug_assert!(false, "{state:?} and {other:?} are of two aggregates");
                    }
                }
            }

            /// What is shown.
            #[must_use]
            pub fn value(&self) -> Value {
                match self { $(Self::$kind(state) => state.value()),+ }
            }

            /// Orders groups by size where only the greatest are shown.
            #[must_use]
            pub fn weight(&self) -> i64 {
                match self { $(Self::$kind(state) => state.weight()),+ }
            }

            /// How many bytes it holds besides itself, roughly.
            #[must_use]
            pub fn heap_bytes(&self) -> usize {
                match self { $(Self::$kind(state) => state.heap_bytes()),+ }
            }

            /// The state as it is stored, its version first.
            #[must_use]
            pub fn to_bytes(&self) -> Vec<u8> {
                let mut out = Vec::new();
                match self { $(Self::$kind(state) => {
                    out.push(<$path as Aggregate>::VERSION);
                    state.write(&mut out);
                }),+ }
                out
            }

            /// Reads a stored state.
            ///
            /// # Errors
            /// The bytes are damaged, or a newer version of this program wrote them.
            pub fn from_bytes(kind: AggregateKind, bytes: &[u8]) -> Result<Self, StateError> {
                let (version, rest) = bytes.split_first().ok_or(StateError)?;
                match kind { $(AggregateKind::$kind => {
                    if *version != <$path as Aggregate>::VERSION {
                        return Err(StateError);
                    }
                    <$path>::read(rest).map(Self::$kind).ok_or(StateError)
                }),+ }
            }
        }
    };
}

aggregates! {
    Count => count::Count,
    Sum => sum::Sum,
    Min => extreme::Min,
    Max => extreme::Max,
    First => edge::First,
    Last => edge::Last,
    Distinct => distinct::Distinct,
    Top => top::Top,
}
