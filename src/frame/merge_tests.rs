//! Cases of merging.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::merge::{Stored, merge};
use super::testing::{ROLLUPS, at, book, frame, merge_in, pane, stored, two_rollups};
use super::{MAX_FRAME_BYTES, mint_chapters, mint_counts};
use crate::engine::aggregate::{Sample, State};
use crate::engine::{Bounds, Changed, Pane, Window, WindowKey};
use crate::rollup::{AggregateKind, Item};

/// What two frames of the same moment become.
fn merged(older: &Value, newer: &Value) -> Value {
    let frames = [frame(1, 0, older), frame(2, 1, newer)];
    let merged = merge(&frames, &ROLLUPS, MAX_FRAME_BYTES);
    assert_eq!(merged.len(), 1);
    assert_eq!((merged[0].first, merged[0].position), (1, 2));
    serde_json::from_str(&merged[0].data).unwrap()
}

/// The first and the last position of each run that is merged.
fn runs(frames: &[Stored]) -> Vec<(i64, i64)> {
    let merged = merge(frames, &ROLLUPS, MAX_FRAME_BYTES);
    merged.iter().map(|m| (m.first, m.position)).collect()
}

#[test]
fn the_newer_frame_says_how_the_book_stands_and_the_newer_value_holds() {
    let older = json!([pane("z", (0, 10), "early", &json!({"/a": 1, "/b": 1}))]);
    let newer = json!([pane("z", (0, 10), "early", &json!({"/a": 2, "/\"c\"": 1}))]);
    let values = json!({"/a": 2, "/b": 1, "/\"c\"": 1});
    let mut expected = merged(&older, &newer);
    assert_eq!(expected["panes"][0]["values"], values);
    expected["panes"] = json!([]);
    let alone: Value = serde_json::from_str(&frame(2, 1, &json!([])).data).unwrap();
    assert_eq!(expected, alone);
}

#[test]
fn on_time_stays_on_time() {
    let told = |kind: &str, value: i64| json!([pane("z", (0, 10), kind, &json!({"/a": value}))]);
    for (older, newer, expected) in [
        ("early", "early", "early"),
        ("early", "on_time", "on_time"),
        ("on_time", "late", "on_time"),
        ("late", "late", "late"),
    ] {
        let merged = merged(&told(older, 1), &told(newer, 2));
        assert_eq!(merged["panes"], told(expected, 2), "{older} and {newer}");
    }
}

#[test]
fn a_session_that_grew_twice_is_told_once_and_replaces_both() {
    let session = |end: i64, value: i64, gone: Option<i64>| {
        let mut pane = pane("s", (0, end), "early", &json!({"/a": value}));
        if let Some(gone) = gone {
            pane["replaces"] = json!([{"start": at(0), "end": at(gone), "group": "/a"}]);
        }
        pane
    };
    let older = json!([session(10, 2, Some(5))]);
    let newer = json!([session(20, 3, Some(10))]);
    let mut expected = session(20, 3, Some(5));
    let gone = json!({"start": at(0), "end": at(10), "group": "/a"});
    expected["replaces"].as_array_mut().unwrap().push(gone);
    assert_eq!(merged(&older, &newer)["panes"], json!([expected]));
}

#[test]
fn what_was_cut_stays_marked_even_if_nothing_of_it_is_left() {
    let mut cut = pane("s", (0, 5), "early", &json!({"/a": 1}));
    cut["truncated"] = json!(true);
    let again = pane("s", (0, 5), "early", &json!({"/a": 2}));
    let merged_panes = merged(&json!([cut]), &json!([again]))["panes"].clone();
    assert_eq!(merged_panes[0]["truncated"], true);
    assert_eq!(merged_panes[0]["values"], json!({"/a": 2}));

    let mut heir = pane("s", (0, 9), "early", &json!({"/a": 2}));
    heir["replaces"] = json!([{"start": at(0), "end": at(5), "group": "/a"}]);
    let merged_panes = merged(&json!([cut]), &json!([heir.clone()]))["panes"].clone();
    cut["values"] = json!({});
    assert_eq!(merged_panes, json!([cut, heir]));
}

#[test]
fn panes_stand_in_the_order_of_a_frame() {
    let one = |rollup, start, kind| pane(rollup, (start, 30), kind, &json!({"/a": 1}));
    let older = json!([one("a", 0, "early"), one("z", 0, "early")]);
    let newer = json!([
        one("z", 10, "on_time"),
        one("z", 20, "late"),
        one("a", 10, "early")
    ]);
    let expected = json!([
        one("z", 20, "late"),
        one("z", 10, "on_time"),
        one("z", 0, "early"),
        one("a", 0, "early"),
        one("a", 10, "early")
    ]);
    // By start, end and the rollup's place in the book's list, which is not that of its name.
    assert_eq!(merged(&older, &newer)["panes"], expected);
}

#[test]
fn frames_of_one_quarter_of_a_second_are_a_run() {
    let panes = json!([]);
    let at = |stamps: &[i64]| -> Vec<Stored> {
        let stamps = (1..).zip(stamps);
        stamps.map(|(p, ms)| frame(p, *ms, &panes)).collect()
    };
    assert_eq!(runs(&[]), []);
    assert_eq!(runs(&at(&[0])), []);
    assert_eq!(runs(&at(&[0, 249, 250, 499, 500])), [(1, 2), (3, 4)]);
    // A slow book: nothing is done to it.
    assert_eq!(runs(&at(&[0, 250, 500, 900, 1250])), []);
    // Two processes, the clock of one of them behind: what it minted came after.
    assert_eq!(runs(&at(&[260, 100, 270, 499, 520])), [(1, 4)]);
    assert_eq!(runs(&at(&[5000, 4000, 5001, 3000, 3001])), [(1, 3), (4, 5)]);
    // Of another kind: not merged, and not jumped over.
    let mut frames = at(&[0, 1, 2, 3, 4]);
    frames[2].event = "status".to_owned();
    assert_eq!(runs(&frames), [(1, 2), (4, 5)]);
}

#[test]
fn what_is_not_in_the_form_of_a_frame_stays_as_it_is() {
    for data in [
        "{}",
        "no JSON",
        r#"{"at":"2026-03-01T12:00:00.000Z","panes":[]}"#,
    ] {
        let mut frames = [1, 2, 3].map(|p| frame(p, 0, &json!([])));
        frames[1].data = data.to_owned();
        assert_eq!(runs(&frames), [], "{data}");
    }
    let unknown = pane("other", (0, 10), "early", &json!({"/a": 1}));
    let frames = [1, 2].map(|p| frame(p, 0, &json!([unknown])));
    assert_eq!(runs(&frames), []);
}

#[test]
fn a_run_that_would_be_too_large_becomes_several_frames_or_stays() {
    let of_size = |position: i64, bytes: usize| {
        let values = json!({position.to_string(): "x".repeat(bytes)});
        frame(position, 0, &json!([pane("z", (0, 10), "early", &values)]))
    };
    let frames: Vec<Stored> = (1..=8).map(|p| of_size(p, 60_000)).collect();
    assert_eq!(runs(&frames), [(1, 4), (5, 8)]);
    let frames: Vec<Stored> = (1..=4).map(|p| of_size(p, 200_000)).collect();
    assert_eq!(runs(&frames), []);
}

/// What a commit changed, as the engine would say it.
fn changed(
    pane: Pane,
    (rollup, start_ms, end_ms): (u16, i64, i64),
    group: &str,
    clicks: i64,
    replaces: Vec<Bounds>,
) -> Changed<'_> {
    let mut state = State::identity(AggregateKind::Count);
    for seq in 0..clicks {
        state.add(&Sample {
            at_ms: start_ms,
            seq,
            item: Item::Click,
        });
    }
    let fired = pane != Pane::Early;
    let group = Cow::Borrowed(group);
    Changed {
        pane,
        key: WindowKey::new(rollup, Bounds { start_ms, end_ms }, group),
        window: Window { fired, state },
        replaces,
    }
}

/// Two frames that say the same become one with the bytes of the second: the form of what is merged
/// is that of what is minted.
#[test]
fn a_merged_frame_has_the_form_of_a_minted_one() {
    let rollups = two_rollups();
    let part = |start_ms, end_ms| Bounds { start_ms, end_ms };
    let all = [
        changed(Pane::Late, (0, 0, 10), "/a", 3, Vec::new()),
        changed(Pane::Late, (0, 0, 10), "/q\"uote\u{2028}é", 2, Vec::new()),
        changed(
            Pane::OnTime,
            (1, -20, 5),
            "/\\",
            2,
            vec![part(-20, -9), part(-8, 5)],
        ),
        changed(Pane::Early, (0, 10, 20), "/b", 1, Vec::new()),
        changed(Pane::Early, (1, 10, 20), "/a", 1, Vec::new()),
    ];
    let mut row = book(512);
    let mut mint = |now| mint_counts(&mut row, now, &rollups, &all).unwrap();
    let frames: Vec<Stored> = [mint(at(0)), mint(at(1))]
        .into_iter()
        .flatten()
        .map(stored)
        .collect();
    let merged = merge(&frames, &["z", "a"], MAX_FRAME_BYTES);
    assert_eq!(merged.len(), 1);
    assert_eq!(merged[0].data, frames[1].data);
}

#[test]
fn frames_of_other_kinds_are_told_in_their_place() {
    let mut row = book(512);
    let changed = [changed(Pane::Early, (0, 0, 10), "/a", 3, Vec::new())];
    let mut frames = Vec::new();
    for _ in 0..2 {
        for _ in 0..3 {
            frames.extend(mint_counts(&mut row, at(0), &two_rollups(), &changed).unwrap());
        }
        frames.push(mint_chapters(&mut row, at(0), &[]).unwrap());
    }
    let mut buffer: Vec<Stored> = frames.into_iter().map(stored).collect();
    assert_eq!(
        merge_in(&mut buffer, 0..8, &["z", "a"], MAX_FRAME_BYTES),
        4,
        "two of each three"
    );
    let events: Vec<&str> = buffer.iter().map(|f| f.event.as_str()).collect();
    assert_eq!(events, ["counts", "chapter", "counts", "chapter"]);
}
