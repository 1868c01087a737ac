//! `distinct`: how many different items.
//!
//! Up to 200 different ones are counted exactly, by a list of their hashes; more are estimated by
//! [HyperLogLog](super::hyperloglog) with a standard error of 1.63 %. An item is hashed by the
//! first 64 bits of its SHA-256, which no version of this program or of a library can change, and
//! for which nobody finds names that push the estimate up other than by trying. That two of 200
//! items have one hash happens once in 10¹⁵ times.

use sha2::{Digest, Sha256};

use super::hyperloglog::Registers;
use super::{Aggregate, Sample, Value};
use crate::rollup::Item;

/// Up to how many different items are counted exactly.
const EXACT: usize = 200;

/// How many different items. Which form it has and what is in it depend on the set of the items
/// alone, so that every order and every cut into parts ends in the same state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distinct(Seen);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    /// The hashes, ascending; at most [`EXACT`].
    Few(Vec<u64>),
    /// More than [`EXACT`].
    Many(Box<Registers>),
}

impl Distinct {
    fn insert(&mut self, hash: u64) {
        match &mut self.0 {
            Seen::Many(registers) => registers.insert(hash),
            Seen::Few(hashes) => {
                let Err(place) = hashes.binary_search(&hash) else {
                    return;
                };
                hashes.insert(place, hash);
                if hashes.len() > EXACT {
                    let mut registers = Box::<Registers>::default();
                    for &hash in &*hashes {
                        registers.insert(hash);
                    }
                    self.0 = Seen::Many(registers);
                }
            }
        }
    }
}

impl Default for Distinct {
    fn default() -> Self {
        Self(Seen::Few(Vec::new()))
    }
}

impl Aggregate for Distinct {
    const VERSION: u8 = 1;

    fn add(&mut self, sample: &Sample<'_>) {
        if let Some(hash) = hash_of(&sample.item) {
            self.insert(hash);
        }
    }

    fn combine(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (Seen::Many(mine), Seen::Many(theirs)) => mine.combine(theirs),
            (_, Seen::Few(theirs)) => theirs.iter().for_each(|&hash| self.insert(hash)),
            (Seen::Few(_), Seen::Many(_)) => {
                let mine = std::mem::replace(self, other.clone());
                self.combine(&mine);
            }
        }
    }

    fn value(&self) -> Value {
        Value::Integer(self.weight())
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "what is too great becomes the greatest"
    )]
    fn weight(&self) -> i64 {
        let integer = |count| i64::try_from(count).unwrap_or(i64::MAX);
        match &self.0 {
            Seen::Few(hashes) => integer(hashes.len()),
            // More than that there are, so the number shown does not fall where the estimate
            // takes over.
            Seen::Many(registers) => (registers.estimate().round() as i64).max(integer(EXACT + 1)),
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.0 {
            Seen::Few(hashes) => size_of_val(&**hashes),
            Seen::Many(_) => size_of::<Registers>(),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Seen::Few(hashes) => out.extend(hashes.iter().flat_map(|hash| hash.to_le_bytes())),
            Seen::Many(registers) => registers.write(out),
        }
    }

    /// The two forms are told apart by their length.
    fn read(bytes: &[u8]) -> Option<Self> {
        const { assert!(Registers::BYTES > EXACT * size_of::<u64>()) };
        if bytes.len() == Registers::BYTES {
            let registers = Registers::read(bytes)?;
            return Some(Self(Seen::Many(Box::new(registers))));
        }
        let (hashes, []) = bytes.as_chunks() else {
            return None;
        };
        let fits = hashes.len() <= EXACT;
        let hashes: Vec<u64> = hashes.iter().copied().map(u64::from_le_bytes).collect();
        (fits && hashes.is_sorted_by(|a, b| a < b)).then_some(Self(Seen::Few(hashes)))
    }
}

/// A number begins with a byte that no text has, so that no text is taken for a number.
fn hash_of(item: &Item<'_>) -> Option<u64> {
    let digest: [u8; 32] = match item {
        Item::Text(text) => Sha256::digest(text.as_bytes()).into(),
        Item::Number(number) => Sha256::digest(format!("\0{}", number.0)).into(),
        // A rollup of the click itself cannot be made with this aggregate.
        Item::Click => return None,
    };
    digest.first_chunk().copied().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::click::Micros;

    fn sample(item: Item<'_>) -> Sample<'_> {
        Sample {
            at_ms: 0,
            seq: 0,
            item,
        }
    }

    fn text(text: &str) -> Sample<'_> {
        sample(Item::Text(text.into()))
    }

    fn of(visitors: impl IntoIterator<Item = u32>) -> Distinct {
        let mut distinct = Distinct::default();
        for visitor in visitors {
            distinct.add(&text(&format!("visitor-{visitor}")));
        }
        distinct
    }

    fn combined(a: &Distinct, b: &Distinct) -> Distinct {
        let mut both = a.clone();
        both.combine(b);
        both
    }

    fn bytes_of(distinct: &Distinct) -> Vec<u8> {
        let mut bytes = Vec::new();
        distinct.write(&mut bytes);
        bytes
    }

    /// Each visitor comes twice, the second time in another order.
    #[test]
    fn is_exact_up_to_200_and_close_beyond() {
        for prefix in ["", "a-", "reader/", "2026-", "é"] {
            let visitor = |n| format!("{prefix}visitor-{n}");
            let mut distinct = Distinct::default();
            let mut exact = HashSet::new();
            for n in 0..20_000 {
                distinct.add(&text(&visitor(n)));
                distinct.add(&text(&visitor(n * 7 % (n + 1))));
                exact.insert(visitor(n));
                let size = n + 1;
                assert_eq!(size, exact.len());
                if size <= 200 {
                    assert_eq!(usize::try_from(distinct.weight()).unwrap(), size);
                } else if [201, 1_000, 5_000, 20_000].contains(&size) {
                    let prefix = format!("{prefix:?}");
                    check_error(&prefix, distinct.weight(), size);
                }
            }
        }
    }

    /// Of two parts that share some.
    #[test]
    fn is_close_at_a_million() {
        let (left, right) = std::thread::scope(|scope| {
            let left = scope.spawn(|| of(0..510_000));
            (of(500_000..1_000_000), left.join().unwrap())
        });
        let all = combined(&left, &right);
        assert_eq!(all, combined(&right, &left));
        check_error("a million", all.weight(), 1_000_000);
    }

    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    #[allow(clippy::print_stdout, reason = "for whoever wants to see the errors")]
    fn check_error(what: &str, shown: i64, exact: usize) {
        let error = shown as f64 / exact as f64 - 1.0;
        println!("{what}: {exact} shown as {shown}, {:+.2} %", error * 100.0);
        assert!(error.abs() < 0.05, "{what}: {exact} shown as {shown}");
    }

    #[test]
    fn states_are_small() {
        let size = |visitors| bytes_of(&of(0..visitors)).len();
        assert_eq!([0, 1, 10, 200].map(size), [0, 8, 80, 1_600]);
        assert_eq!([201, 1_000, 50_000].map(size), [3_072; 3]);
    }

    /// The state is stored: a hash that changes would count every visitor a second time.
    #[test]
    fn the_hash_is_for_ever() {
        let hash = |item| hash_of(&item).unwrap();
        // The digests that FIPS 180 gives as examples.
        assert_eq!(hash(Item::Text("abc".into())), 0xba78_16bf_8f01_cfea);
        assert_eq!(hash(Item::Text("".into())), 0xe3b0_c442_98fc_1c14);
        let number = hash(Item::Number(Micros(1_500_000)));
        assert_eq!(number, hash(Item::Text("\u{0}1500000".into())));
        assert_ne!(number, hash(Item::Text("1500000".into())));
        assert_eq!(hash_of(&Item::Click), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Parts that overlap, on both sides of the change of form.
        #[test]
        fn parts_make_the_whole(
            (a, b, c) in (0..450_u32, 0..450_u32, 0..450_u32),
            (from, to) in (0..450_u32, 0..450_u32),
        ) {
            let whole = of((0..a).chain(from..from + b).chain(to..to + c));
            let (a, b, c) = (of(0..a), of((from..from + b).rev()), of(to..to + c));
            prop_assert_eq!(&combined(&combined(&a, &b), &c), &whole);
            prop_assert_eq!(&combined(&a, &combined(&b, &c)), &whole);
            prop_assert_eq!(&combined(&combined(&c, &a), &b), &whole);
            prop_assert_eq!(&combined(&whole, &b), &whole, "seen before");
            let bytes = bytes_of(&whole);
            prop_assert_eq!(Distinct::read(&bytes), Some(whole));
        }

        #[test]
        fn damage_is_seen_or_harmless(
            visitors in prop_oneof![0..4_u32, 0..400_u32],
            cut in 0..4_000_usize,
            (at, with) in any::<(prop::sample::Index, u8)>(),
        ) {
            let mut bytes = bytes_of(&of(0..visitors));
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = with;
            }
            bytes.truncate(cut);
            if let Some(distinct) = Distinct::read(&bytes) {
                prop_assert!(distinct.weight() >= 0);
                prop_assert_eq!(bytes_of(&distinct), bytes);
            }
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..3_100)) {
            let _ = Distinct::read(&bytes);
        }
    }

    #[test]
    fn what_no_set_makes_is_refused() {
        let read = |hashes: &[u64]| {
            let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
            Distinct::read(&bytes)
        };
        assert!(read(&[1, 2, 3]).is_some());
        assert_eq!(read(&[1, 3, 2]), None, "out of order");
        assert_eq!(read(&[1, 1]), None, "twice");
        assert_eq!(read(&(0..201).collect::<Vec<_>>()), None, "too many");
    }
}
