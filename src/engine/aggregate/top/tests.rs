//! `top` against exact counts.

use std::collections::HashMap;

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

fn of(items: impl IntoIterator<Item = impl AsRef<str>>) -> Top {
    let mut top = Top::default();
    for item in items {
        top.add(&sample(Item::Text(item.as_ref().into())));
    }
    top
}

fn combined(a: &Top, b: &Top) -> Top {
    let mut both = a.clone();
    both.combine(b);
    both
}

fn bytes_of(top: &Top) -> Vec<u8> {
    let mut bytes = Vec::new();
    top.write(&mut bytes);
    bytes
}

fn shown(top: &Top) -> Vec<(String, i64)> {
    let Value::Top(items) = top.value() else {
        panic!("{top:?} shows no list");
    };
    items.into_iter().map(|top| (top.item, top.count)).collect()
}

/// `parts` is what the bound divides by.
fn check_bounds(top: &Top, items: &[String], parts: i64) {
    let mut exact: HashMap<&str, i64> = HashMap::new();
    for item in items {
        *exact.entry(item).or_default() += 1;
    }
    let clicks = i64::try_from(items.len()).unwrap();
    assert_eq!(top.weight(), clicks);
    assert!(top.lowered * parts <= clicks, "{} of {clicks}", top.lowered);
    assert!(Top::fits(top.counts.len(), top.text_bytes));
    for (item, clicks) in exact {
        let count = top.counts.get(item).copied().unwrap_or(0);
        assert!(count <= clicks, "{item}: {count} of {clicks}");
        assert!(count >= clicks - top.lowered, "{item}: {count} of {clicks}");
    }
}

#[test]
fn the_most_frequent_come_first_and_equals_by_name() {
    let top = of("b a c b d a e f g h i j k".split(' '));
    let (items, counts): (Vec<_>, Vec<_>) = shown(&top).into_iter().unzip();
    assert_eq!(items.join(" "), "a b c d e f g h i j");
    assert_eq!(counts, [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(top.weight(), 13);
    assert_eq!(shown(&Top::default()), []);
}

#[test]
fn numbers_are_shown_as_json_writes_them() {
    let mut top = Top::default();
    for micros in [2_500_000, 2_500_000, -40_000_000] {
        top.add(&sample(Item::Number(Micros(micros))));
    }
    top.add(&sample(Item::Click));
    assert_eq!(shown(&top), [("2.5".into(), 2), ("-40".into(), 1)]);
}

#[test]
fn the_257th_item_costs_each_one_click() {
    let items = || (0..256).map(|n| format!("page-{n:03}"));
    let mut top = of(items().chain(items()));
    assert_eq!((top.lowered, top.counts.len()), (0, 256));
    top.combine(&of(["new"]));
    assert_eq!((top.lowered, top.counts.len()), (1, 256));
    assert_eq!(top.clicks, 513);
    assert_eq!(shown(&top)[0], ("page-000".into(), 1));
    top.combine(&of(["new"]));
    assert_eq!((top.lowered, top.counts.len()), (2, 0));
    assert_eq!(shown(&top), []);
}

/// As clicks on pages are: the n-th page has a share of 1/n.
#[test]
fn finds_the_top_ten_of_a_long_tail() {
    let clicks = (1..=5_000).flat_map(|n| (0..20_000 / n).map(move |k| (k * n, n)));
    let mut clicks: Vec<(i32, i32)> = clicks.collect();
    clicks.sort_unstable();
    let items: Vec<String> = clicks.iter().map(|(_, n)| format!("page-{n}")).collect();
    let top = of(&items);
    check_bounds(&top, &items, 257);
    let found: Vec<_> = shown(&top).into_iter().map(|(item, _)| item).collect();
    assert_eq!(
        found,
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(|n| format!("page-{n}"))
    );
}

#[test]
fn states_are_small() {
    let pages = |len: usize| bytes_of(&of((0..256).map(|n| format!("{n:0len$}")))).len();
    assert_eq!(bytes_of(&Top::default()).len(), 16);
    assert_eq!([30, 45, 60].map(pages), [10_000, 13_840, 17_680]);
    assert_eq!(pages(128), 16 + 256 * 9 + MAX_TEXT_BYTES);
    let longest: Vec<_> = (0..400).map(|n| format!("{:02048}", n % 40)).collect();
    let top = of(&longest);
    assert!(bytes_of(&top).len() <= 16 + 256 * 9 + MAX_TEXT_BYTES);
    check_bounds(&top, &longest, 17);
}

#[test]
fn an_item_too_long_for_all_room_is_only_counted_in_the_weight() {
    let top = of(["a", "a", &"b".repeat(MAX_TEXT_BYTES + 1)]);
    assert_eq!((shown(&top), top.weight()), (vec![("a".into(), 1)], 3));
}

/// Few that are frequent and many that are not; some beyond the bounds of a summary.
fn items(length: usize) -> impl Strategy<Value = Vec<String>> {
    let number = prop_oneof![0..8_u32, 0..80_u32, 0..700_u32];
    let item = number.prop_map(move |n| format!("{n:0length$}"));
    prop::collection::vec(item, 0..2_500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn counts_stay_within_the_bound(
        (items, parts) in prop_oneof![
            (items(1), Just(257)),
            (items(128), Just(257)),
            (items(2_048), Just(17)),
        ],
        cuts in any::<[prop::sample::Index; 2]>(),
    ) {
        let mut cuts = cuts.map(|cut| cut.index(items.len() + 1));
        cuts.sort_unstable();
        let (a, rest) = items.split_at(cuts[0]);
        let (b, c) = rest.split_at(cuts[1] - cuts[0]);
        let (a, b, c) = (of(a), of(b), of(c));
        check_bounds(&of(&items), &items, parts);
        check_bounds(&combined(&combined(&a, &b), &c), &items, parts);
        check_bounds(&combined(&a, &combined(&b, &c)), &items, parts);
        prop_assert_eq!(combined(&a, &b), combined(&b, &a));
        prop_assert_eq!(combined(&a, &Top::default()), a.clone());
        prop_assert_eq!(combined(&Top::default(), &a), a);
    }

    #[test]
    fn parts_make_the_whole_while_there_is_room(
        items in prop::collection::vec(0..256_u32, 0..1_000),
        cut in any::<prop::sample::Index>(),
    ) {
        let items: Vec<String> = items.iter().map(u32::to_string).collect();
        let (a, b) = items.split_at(cut.index(items.len() + 1));
        prop_assert_eq!(combined(&of(a), &of(b)), of(&items));
    }

    /// To store the state and to read it again changes nothing of what follows.
    #[test]
    fn a_stored_state_goes_on_as_if_it_had_not_been_stored(
        items in items(100),
        cut in any::<prop::sample::Index>(),
    ) {
        let (before, after) = items.split_at(cut.index(items.len() + 1));
        let mut top = Top::read(&bytes_of(&of(before))).unwrap();
        for item in after {
            top.add(&sample(Item::Text(item.into())));
        }
        prop_assert_eq!(top, of(&items));
    }

    #[test]
    fn damage_is_seen_or_harmless(
        items in items(3),
        cut in 0..6_000_usize,
        (at, with) in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut bytes = bytes_of(&of(items));
        let at = at.index(bytes.len());
        bytes[at] = with;
        bytes.truncate(cut);
        if let Some(top) = Top::read(&bytes) {
            prop_assert_eq!(&bytes_of(&top), &bytes);
            let _ = combined(&top, &top).value();
        }
    }
}

#[test]
fn what_no_clicks_make_is_refused() {
    let bytes = |clicks: i64, lowered: i64, counts: &[(i64, &str)]| {
        let mut bytes = [clicks.to_le_bytes(), lowered.to_le_bytes()].concat();
        for (count, item) in counts {
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(item.as_bytes());
            bytes.push(END);
        }
        bytes
    };
    let read = |clicks, lowered, counts| Top::read(&bytes(clicks, lowered, counts));
    assert!(read(3, 0, &[(1, ""), (2, "b")]).is_some());
    assert!(read(9, 2, &[(1, "a"), (2, "b")]).is_some());
    assert_eq!(read(3, 0, &[(2, "b"), (1, "a")]), None, "out of order");
    assert_eq!(read(3, 0, &[(1, "a"), (2, "a")]), None, "twice");
    assert_eq!(read(3, 0, &[(0, "a"), (3, "b")]), None, "without a click");
    assert_eq!(read(3, 0, &[(4, "a")]), None, "more than all");
    assert_eq!(read(3, 0, &[(2, "a")]), None, "one lost, none lowered");
    assert_eq!(
        read(3, 2, &[(2, "a")]),
        None,
        "lowered by more than were lost"
    );
    assert_eq!(read(-1, 0, &[]), None, "negative");
    assert_eq!(
        read(1, 0, &[(i64::MAX, "a"), (i64::MAX, "b")]),
        None,
        "beyond 64 bits"
    );
    let mut broken = bytes(1, 0, &[(1, "é")]);
    broken.remove(24);
    assert_eq!(Top::read(&broken), None, "no UTF-8");
    let many: Vec<_> = (0..300).map(|n| format!("{n:03}")).collect();
    let many: Vec<_> = many.iter().map(|item| (1, &**item)).collect();
    assert_eq!(read(300, 0, &many), None, "too many");
}
