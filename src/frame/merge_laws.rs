//! Laws of merging, over random frames and over those of random commits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::merge::Stored;
use super::testing::{ROLLUPS, Read, Reader, at, book, frame, merge_in, pane, stored, two_rollups};
use super::{Kind, MAX_FRAME_BYTES, mint_counts};
use crate::click::Click;
use crate::engine::testing::{TestBook, click, plan};
use crate::time::Timestamp;

/// A frame's panes: what it tells of each (rollup, bounds, group), and which of these are cut.
fn any_panes() -> impl Strategy<Value = Value> {
    let bounds = (0..3_i64, 1..4_i64).prop_map(|(start, length)| (start, start + length));
    let group = select(vec!["", "/a", "/\"b\"", "/c\\", "é\u{2028}"]);
    let kind = select(vec![Kind::Late, Kind::OnTime, Kind::Early]);
    let value = prop_oneof![
        (0..1000_i64).prop_map(Value::from),
        Just(Value::Null),
        Just(json!([{"item": "\"x\"", "count": 1.5}]))
    ];
    let gone = prop::collection::vec(bounds.clone(), 0..3);
    let told = (0..3_usize, bounds, group, kind, value, gone);
    (prop::collection::vec(told, 0..6), 0..6_usize).prop_map(|(told, cut)| {
        let mut panes = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (rollup, bounds, group, kind, value, gone) in told {
            // A window of a group is told once in a frame.
            if !seen.insert((rollup, bounds, group)) {
                continue;
            }
            let pane: &mut Value = panes.entry((kind, bounds, rollup)).or_insert_with(|| {
                let kind = serde_json::to_value(kind).unwrap();
                pane(ROLLUPS[rollup], bounds, kind.as_str().unwrap(), &json!({}))
            });
            pane["values"][group] = value;
            // Only sessions replace others.
            if ROLLUPS[rollup] == "s" && !gone.is_empty() {
                let gone = gone.into_iter().map(
                    |(start, end)| json!({"start": at(start), "end": at(end), "group": group}),
                );
                let all = pane["replaces"].as_array().into_iter().flatten().cloned();
                pane["replaces"] = all.chain(gone).collect();
            }
        }
        let mut panes: Vec<Value> = panes.into_values().collect();
        if let Some(pane) = panes.get_mut(cut) {
            pane["truncated"] = json!(true);
        }
        json!(panes)
    })
}

fn any_frames() -> impl Strategy<Value = Vec<Stored>> {
    let step = select(vec![0, 1, 50, 100, 250, -40]);
    let kind = prop_oneof![12 => Just("counts"), 1 => Just("status")];
    let frame_of = (step, kind, any_panes());
    prop::collection::vec(frame_of, 0..24).prop_map(|frames| {
        let mut ms = 0;
        let frames = (1..).zip(frames).map(|(position, (step, kind, panes))| {
            ms += step;
            let event = kind.to_owned();
            Stored {
                event,
                ..frame(position, ms, &panes)
            }
        });
        frames.collect()
    })
}

/// Whoever resumes after any of `raw`, having read all before, knows the same in the end; gives what.
fn same_for_all<'a>(raw: &'a [Read], buffer: &'a [Read]) -> Result<Reader<'a>, TestCaseError> {
    let mut expected = Reader::default();
    for frame in raw {
        expected.learn(frame, false);
    }
    let mut upto = Reader::default();
    let mut cursor = 0;
    for next in raw.iter().map(Some).chain([None]) {
        let rest = buffer.iter().filter(|frame| frame.position > cursor);
        let (mut reader, mut by_pane) = (upto.clone(), upto.clone());
        for frame in rest {
            reader.learn(frame, false);
            // The order in which a merged frame's panes are taken in does not matter.
            by_pane.learn(frame, !raw.contains(frame));
        }
        // Of what was cut it may be told again.
        prop_assert!(reader.cut.is_superset(&expected.cut));
        reader.cut.clone_from(&expected.cut);
        by_pane.cut.clone_from(&expected.cut);
        prop_assert_eq!(&reader, &expected, "after {}", cursor);
        prop_assert_eq!(&by_pane, &expected, "pane by pane after {}", cursor);
        if let Some(next) = next {
            upto.learn(next, false);
            cursor = next.position;
        }
    }
    Ok(expected)
}

fn any_log() -> impl Strategy<Value = Vec<Click>> {
    let step = prop_oneof![4 => -3..9_i64, 1 => -60..40_i64];
    prop::collection::vec((step, 0..3_u8), 1..60).prop_map(|steps| {
        let mut at_ms = 0;
        let clicks = steps.into_iter().map(|(step, page)| {
            at_ms += step;
            click(at_ms, &format!("/{page}"))
        });
        clicks.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_merged_buffer_teaches_what_its_frames_did(
        raw in any_frames(),
        most in select(vec![900, 1500, 100_000]),
        steps in prop::collection::vec(0..24_usize, 0..4),
    ) {
        let mut buffer = raw.clone();
        // Step by step, each beginning with the last frame of the one before.
        let mut from = 0;
        for step in steps {
            let to = (from + step).min(buffer.len());
            let gone = merge_in(&mut buffer, from..to, &ROLLUPS, most);
            from = (to - gone).saturating_sub(1);
        }
        same_for_all(&Read::all(&raw), &Read::all(&buffer))?;
        let all = buffer.len();
        merge_in(&mut buffer, from..all, &ROLLUPS, most);
        same_for_all(&Read::all(&raw), &Read::all(&buffer))?;
        for frame in &buffer {
            prop_assert!(frame.data.len() <= most || raw.contains(frame));
        }
        let others = |frames: &[Stored]| frames.iter().filter(|f| f.event != "counts").count();
        prop_assert_eq!(others(&buffer), others(&raw));
    }

    /// Frames of commits that the engine counted, a click or a few each.
    #[test]
    fn merged_frames_of_real_commits_teach_the_windows(log in any_log(), each in 1..4_usize) {
        let plan = plan(5, two_rollups());
        let mut counted = TestBook::new(&plan);
        let mut row = book(512);
        let mut raw = Vec::new();
        for (place, clicks) in log.chunks(each).enumerate() {
            let now = at(i64::try_from(place).unwrap() * 40);
            let changed = counted.commit(clicks);
            row.progress = counted.progress;
            raw.extend(mint_counts(&mut row, now, &plan.rollups, &changed).unwrap().into_iter().map(stored));
        }
        let mut buffer = raw.clone();
        merge_in(&mut buffer, 0..raw.len(), &["z", "a"], MAX_FRAME_BYTES);
        // Every quarter of a second is one frame.
        prop_assert_eq!(buffer.len(), (raw.len() - 1) * 40 / 250 + 1);
        let (raw, buffer) = (Read::all(&raw), Read::all(&buffer));
        let known = same_for_all(&raw, &buffer)?;
        let windows = counted.table.iter().map(|(key, window)| {
            let time = |ms| Timestamp::from_millis(ms).unwrap().to_string();
            let rollup = plan.rollups[usize::from(key.rollup)].name.clone();
            let key = [rollup, time(key.start_ms), time(key.end_ms), key.group.to_string()];
            (key, serde_json::to_value(window.state.value()).unwrap())
        });
        let known = known.values.into_iter();
        let known = known.map(|(key, value)| (key.map(str::to_owned), value.clone()));
        prop_assert_eq!(known.collect::<BTreeMap<_, _>>(), windows.collect());
    }
}
