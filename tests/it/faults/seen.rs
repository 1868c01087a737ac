//! What a reader has seen, judged as it comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::harness::steps::Known;

/// What a reader does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Go,
    /// It has to read a snapshot.
    Snapshot,
}

/// A reader's numbers, and what was wrong with what it was told.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) known: Known,
    /// The newest that it was told of: by a frame, or by a resync.
    pub(super) position: i64,
    /// Up to here everything is in `known`.
    floor: i64,
    /// Whether the next hello is the first event of a connection.
    connecting: bool,
    pub(super) connections: usize,
    pub(super) resyncs: usize,
    pub(super) wrong: Vec<String>,
    /// Frames may have gone into newer ones.
    merges: bool,
    /// What each position said, to whichever reader; a merged one says more.
    said: Arc<Mutex<HashMap<i64, String>>>,
}

impl Seen {
    pub(super) fn new(merges: bool, said: Arc<Mutex<HashMap<i64, String>>>) -> Self {
        Self {
            merges,
            known: Known::default(),
            position: 0,
            floor: 0,
            connecting: true,
            connections: 0,
            resyncs: 0,
            wrong: Vec::new(),
            said,
        }
    }

    /// A connection begins; gives its cursor.
    pub(super) fn connect(&mut self) -> i64 {
        self.connecting = true;
        self.position
    }

    fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(what());
        }
    }

    /// An event; `id` is what the client would come back with.
    pub(super) fn take(&mut self, name: &str, id: Option<i64>, data: &Value) -> Next {
        let before = self.position;
        let number = |name: &str| data[name].as_i64().unwrap_or(i64::MIN);
        match name {
            "hello" => {
                let first = std::mem::take(&mut self.connecting);
                self.check(first, || "a hello in a stream".to_owned());
                self.connections += 1;
                match data["mode"].as_str() {
                    Some("replay") => {
                        self.check(id == Some(before), || {
                            format!("resumed from {id:?} rather than {before}")
                        });
                    }
                    // The reason follows.
                    Some("resync") => {}
                    // A client that lost its cursor between hello and resync.
                    Some("live") => return self.jump(number("position")),
                    _ => self.check(false, || format!("hello: {data}")),
                }
                Next::Go
            }
            "resync_required" => {
                let to = number("position");
                self.check(data["reason"] == "pruned" && id == Some(to), || {
                    format!("at {before}, id {id:?}: {data}")
                });
                self.jump(to)
            }
            "counts" | "chapter" => {
                let position = number("position");
                self.check(id == Some(position), || format!("{position} has id {id:?}"));
                let next = position == before + 1 || self.merges && position > before;
                self.check(next, || format!("{position} came after {before}"));
                let text = data.to_string();
                let said = self.said.lock().unwrap().insert(position, text.clone());
                let same = said.is_none_or(|said| said == text);
                self.check(same || self.merges, || {
                    format!("position {position} said something else before")
                });
                self.position = position;
                if position <= self.floor {
                    return Next::Go;
                }
                let panes = data["panes"].as_array();
                if panes.is_some_and(|all| all.iter().any(|p| p.get("truncated").is_some())) {
                    return Next::Snapshot;
                }
                self.known.learn(data);
                Next::Go
            }
            "bye" => {
                let reason = data["reason"].as_str();
                let expected = matches!(reason, Some("drain" | "overloaded"));
                self.check(expected, || format!("bye: {data}"));
                Next::Go
            }
            _ => {
                self.check(false, || format!("{name}: {data}"));
                Next::Go
            }
        }
    }

    /// Goes on from elsewhere.
    fn jump(&mut self, to: i64) -> Next {
        let before = self.position;
        self.check(to >= before, || format!("sent back from {before} to {to}"));
        self.resyncs += 1;
        self.position = to;
        Next::Snapshot
    }

    pub(super) fn take_snapshot(&mut self, snapshot: &Value) {
        let position = snapshot["position"].as_i64().unwrap();
        let least = self.position;
        self.check(position >= least, || {
            format!("a snapshot of {position} although {least} was told of")
        });
        self.known = Known::of_snapshot(snapshot);
        self.floor = position;
    }
}

mod tests {
    use super::*;
    use serde_json::json;

    fn seen() -> Seen {
        let mut seen = Seen::new(false, Arc::default());
        seen.connect();
        let next = seen.take("hello", Some(0), &json!({"mode": "replay", "position": 0}));
        assert_eq!(next, Next::Go);
        seen
    }

    fn frame(position: i64, value: i64) -> Value {
        let start = "2026-03-01T12:00:00.000Z";
        json!({"type": "counts", "position": position, "panes": [
            {"rollup": "pages", "start": start, "end": start, "pane": "early",
             "values": {"/a": value}}]})
    }

    /// What is wrong with frames at these positions, one after the other.
    fn wrong(positions: &[i64]) -> String {
        let mut seen = seen();
        for position in positions {
            seen.take("counts", Some(*position), &frame(*position, 1));
        }
        seen.wrong.join("; ")
    }

    #[test]
    fn a_reader_finds_positions_that_are_out_of_order_left_out_or_told_twice() {
        assert_eq!(wrong(&[1, 2, 3]), "");
        assert_eq!(wrong(&[1, 3]), "3 came after 1");
        assert_eq!(wrong(&[1, 1]), "1 came after 1");
        assert_eq!(wrong(&[1, 2, 1]), "1 came after 2");
    }

    #[test]
    fn positions_of_a_merged_buffer_may_be_left_out_but_not_told_twice() {
        let mut seen = Seen {
            merges: true,
            ..seen()
        };
        for position in [1, 3, 3] {
            seen.take("counts", Some(position), &frame(position, 1));
        }
        assert_eq!(seen.wrong, ["3 came after 3"]);
    }

    #[test]
    fn a_reader_finds_a_position_that_says_two_things() {
        let mut one = seen();
        let mut other = Seen::new(false, Arc::clone(&one.said));
        one.take("counts", Some(1), &frame(1, 1));
        other.take("counts", Some(1), &frame(1, 2));
        assert_eq!(one.wrong, [""; 0]);
        assert_eq!(other.wrong, ["position 1 said something else before"]);
    }

    #[test]
    fn a_reader_finds_a_book_that_went_back() {
        let mut seen = seen();
        seen.take("counts", Some(1), &frame(1, 1));
        seen.take("counts", Some(2), &frame(2, 1));
        let resync = json!({"reason": "pruned", "position": 1});
        let next = seen.take("resync_required", Some(1), &resync);
        assert_eq!(next, Next::Snapshot);
        assert_eq!(seen.wrong, ["sent back from 2 to 1"]);
        let ahead = json!({"reason": "ahead", "position": 2});
        seen.take("resync_required", Some(2), &ahead);
        assert_eq!(seen.wrong.len(), 2);
    }
}
