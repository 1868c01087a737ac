//! The golden cases, as they are put to a server and read from its stream.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Emission, Shown, ms, session, sliding, tumbling};
use crate::harness::Api;
use crate::harness::sse::Event;

#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) config: Config,
    pub(super) clicks: Vec<CaseClick>,
    expect: Expect,
}

#[derive(Deserialize)]
pub(super) struct Config {
    kind: String,
    size_ms: i64,
    slide_ms: i64,
    gap_ms: i64,
    delay_ms: i64,
    lateness_ms: i64,
}

#[derive(Deserialize)]
pub(super) struct CaseClick {
    id: String,
    at_ms: i64,
    page: String,
}

#[derive(Deserialize)]
struct Expect {
    status: HashMap<String, String>,
    emissions: Vec<CaseEmission>,
    final_counts: Vec<CaseEmission>,
    watermark_after: Vec<i64>,
    #[serde(default)]
    partially_dropped: HashMap<String, Vec<CaseBounds>>,
}

#[derive(Deserialize, PartialEq, Debug)]
struct CaseBounds {
    start_ms: i64,
    end_ms: i64,
}

#[derive(Deserialize, PartialEq, Debug)]
struct CaseEmission {
    start_ms: i64,
    end_ms: i64,
    page: String,
    count: i64,
    #[serde(default)]
    cause: String,
    #[serde(default)]
    after_click: i64,
    #[serde(default)]
    replaces: Vec<CaseBounds>,
}

impl CaseEmission {
    fn of(emission: Emission, after_click: i64) -> Self {
        let (_, start_ms, end_ms, page) = emission.key;
        let replaces = emission.replaces.into_iter();
        Self {
            start_ms,
            end_ms,
            page,
            count: emission.value.as_i64().unwrap(),
            cause: emission.pane,
            after_click,
            replaces: replaces
                .map(|(start_ms, end_ms)| CaseBounds { start_ms, end_ms })
                .collect(),
        }
    }
}

/// All of them, by name.
pub(super) fn all() -> Vec<Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/windows");
    let files = std::fs::read_dir(folder).unwrap();
    let read = |path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut cases: Vec<Case> = files.map(|file| read(file.unwrap().path())).collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// A case on a book of its own, and a reader of it.
pub(super) struct Player<'a> {
    case: &'a Case,
    pub(super) book: String,
    shown: Shown,
    emissions: Vec<CaseEmission>,
}

impl<'a> Player<'a> {
    /// Makes the book.
    pub(super) async fn new(api: &Api, case: &'a Case) -> Self {
        let config = &case.config;
        let window = match &*config.kind {
            "tumbling" => tumbling(config.size_ms),
            "sliding" => sliding(config.size_ms, config.slide_ms),
            "session" => session(config.gap_ms),
            other => panic!("a kind of window that nobody knows: {other}"),
        };
        let fields = json!({
            "rollups": [{"name": "r", "group_by": "page", "aggregate": "count", "window": window}],
            "settings": {"delay_ms": config.delay_ms, "lateness_ms": config.lateness_ms,
                         "max_future_ms": null, "idle_timeout_ms": null,
                         "canonical_pages": false},
        });
        let book = case.name.replace('_', "-");
        api.book(&book, fields).await;
        Self {
            case,
            book,
            shown: Shown::default(),
            emissions: Vec::new(),
        }
    }

    /// Posts the click at `index`, checks what is answered, and gives the position of its frame.
    pub(super) async fn post(&self, api: &Api, index: usize) -> i64 {
        let expect = &self.case.expect;
        let CaseClick { id, at_ms, page } = &self.case.clicks[index];
        let which = format!("{}: {id}", self.case.name);
        let body = json!({"id": id, "at": at_ms, "page": page});
        let taken = api.clicks(&self.book, body).await;
        let statuses = ["on_time", "late", "dropped"].into_iter();
        let statuses: Vec<&str> = statuses.filter(|status| taken[status] == 1).collect();
        assert_eq!(statuses, [&expect.status[id]], "{which}: {taken}");
        assert_eq!(
            ms(&taken["watermark"]),
            expect.watermark_after[index],
            "{which}"
        );
        let exceptions = taken["exceptions"].as_array().unwrap();
        let missed = exceptions
            .iter()
            .flat_map(|e| e["windows"].as_array().into_iter().flatten());
        let missed: Vec<CaseBounds> = missed
            .map(|w| CaseBounds {
                start_ms: ms(&w["start"]),
                end_ms: ms(&w["end"]),
            })
            .collect();
        let expected = expect.partially_dropped.get(id);
        assert_eq!(missed, *expected.unwrap_or(&Vec::new()), "{which}");
        let reason = match (statuses[0], missed.is_empty()) {
            ("dropped", _) => Some("too_late"),
            (_, false) => Some("partly_too_late"),
            (_, true) => None,
        };
        let plain = statuses[0] == "on_time" && reason.is_none();
        assert_eq!(exceptions.is_empty(), plain, "{which}: {taken}");
        for exception in exceptions {
            assert_eq!(exception["status"], statuses[0], "{which}: {taken}");
            assert_eq!(exception["reason"].as_str(), reason, "{which}: {taken}");
        }
        taken["position"].as_i64().unwrap()
    }

    /// Closes the book and gives the position of the last frame.
    pub(super) async fn close(&self, api: &Api) -> i64 {
        let path = format!("/v1/books/{}/close", self.book);
        let closed = api.post(&path, &Value::Null).await.expect(200);
        closed["position"].as_i64().unwrap()
    }

    /// Reads what the stream tells of the click at `index`, or, at -1, of the close.
    pub(super) fn read(&mut self, events: &[Event], index: i64) {
        let emissions = self.shown.learn_all(events).into_iter();
        self.emissions
            .extend(emissions.map(|emission| CaseEmission::of(emission, index)));
    }

    /// What was read, early panes too, is what a snapshot shows.
    pub(super) async fn compare(&self, api: &Api) {
        self.shown.equals_snapshot(api, &self.book).await;
    }

    /// All that was read, and what is counted in the end, is what the case expects.
    pub(super) async fn judge(&self, api: &Api) {
        let Case { name, expect, .. } = self.case;
        assert_eq!(self.emissions, expect.emissions, "{name}: emissions");
        let counts = api.counts(&self.book, "r").await;
        assert!(counts.iter().all(|c| c["state"] == "closed"), "{name}");
        let counts = counts.iter().map(|count| CaseEmission {
            start_ms: ms(&count["start"]),
            end_ms: ms(&count["end"]),
            page: count["group"].as_str().unwrap().to_owned(),
            count: count["value"].as_i64().unwrap(),
            cause: String::new(),
            after_click: 0,
            replaces: Vec::new(),
        });
        let counts: Vec<CaseEmission> = counts.collect();
        assert_eq!(counts, expect.final_counts, "{name}: final counts");
        let shown = &self.shown;
        shown
            .equals_counts_and_snapshot(api, &self.book, &["r"])
            .await;
    }
}
