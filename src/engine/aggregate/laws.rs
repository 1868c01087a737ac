//! The laws of all aggregates: a commutative monoid, whose states survive being stored.

use proptest::prelude::*;

use super::*;
use crate::click::Micros;

const KINDS: [AggregateKind; 8] = [
    AggregateKind::Count,
    AggregateKind::Sum,
    AggregateKind::Min,
    AggregateKind::Max,
    AggregateKind::First,
    AggregateKind::Last,
    AggregateKind::Distinct,
    AggregateKind::Top,
];

/// Clicks of one window: few times and values, so that ties are common; each its own place.
fn log() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((-3..3_i64, prop_oneof![-5..5_i64, any_value()]), 0..40)
}

fn any_value() -> impl Strategy<Value = i64> {
    -1_000_000_000_000_000_000..1_000_000_000_000_000_000_i64
}

fn samples(log: &[(i64, i64)]) -> Vec<Sample<'static>> {
    (0..)
        .zip(log)
        .map(|(seq, &(at_ms, micros))| Sample {
            at_ms,
            seq,
            item: Item::Number(Micros(micros)),
        })
        .collect()
}

fn fold<'a>(kind: AggregateKind, samples: impl IntoIterator<Item = &'a Sample<'a>>) -> State {
    let mut state = State::identity(kind);
    for sample in samples {
        state.add(sample);
    }
    state
}

fn combined(a: &State, b: &State) -> State {
    let mut both = a.clone();
    both.combine(b);
    both
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn monoid(log in log(), cuts in (0..40_usize, 0..40_usize)) {
        let samples = samples(&log);
        let (mut from, mut to) = (cuts.0.min(log.len()), cuts.1.min(log.len()));
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        for kind in KINDS {
            let identity = State::identity(kind);
            let whole = fold(kind, &samples);
            let (a, b, c) = (
                fold(kind, &samples[..from]),
                fold(kind, &samples[from..to]),
                fold(kind, &samples[to..]),
            );
            prop_assert_eq!(&combined(&a, &identity), &a, "{:?}: identity", kind);
            prop_assert_eq!(&combined(&identity, &a), &a, "{:?}: identity", kind);
            prop_assert_eq!(combined(&a, &b), combined(&b, &a), "{:?}: commutative", kind);
            let left = combined(&combined(&a, &b), &c);
            let right = combined(&a, &combined(&b, &c));
            prop_assert_eq!(&left, &right, "{:?}: associative", kind);
            prop_assert_eq!(&left, &whole, "{:?}: parts make the whole", kind);
            prop_assert_eq!(&fold(kind, samples.iter().rev()), &whole, "{:?}: any order", kind);
        }
    }

    #[test]
    fn states_come_back_and_damage_is_no_panic(log in log(), cut in 0..64_usize) {
        for kind in KINDS {
            let state = fold(kind, &samples(&log));
            let bytes = state.to_bytes();
            prop_assert_eq!(State::from_bytes(kind, &bytes), Ok(state), "{:?}", kind);
            let _ = State::from_bytes(kind, &bytes[..cut.min(bytes.len())]);
            let mut newer = bytes.clone();
            newer[0] = newer[0].wrapping_add(1);
            prop_assert_eq!(State::from_bytes(kind, &newer), Err(StateError));
        }
    }
}

#[test]
fn a_tenth_ten_times_is_one() {
    let tenth = Sample {
        at_ms: 0,
        seq: 0,
        item: Item::Number(Micros(100_000)),
    };
    let sum = fold(AggregateKind::Sum, std::iter::repeat_n(&tenth, 10));
    assert_eq!(serde_json::to_string(&sum.value()).unwrap(), "1");
}

#[test]
fn first_and_last_go_by_time_and_then_by_place_in_the_log() {
    let of = |at_ms, seq, micros| Sample {
        at_ms,
        seq,
        item: Item::Number(Micros(micros)),
    };
    let samples = [of(5, 1, 10), of(5, 2, 20), of(3, 9, 30), of(3, 4, 40)];
    let shown = |kind| fold(kind, &samples).value();
    assert_eq!(shown(AggregateKind::First), Value::Decimal(Some(40)));
    assert_eq!(shown(AggregateKind::Last), Value::Decimal(Some(20)));
}
