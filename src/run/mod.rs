//! Runs: work on a book with a beginning and an end, an import or a recount.
//!
//! A run is held by one process at a time, by an advisory lock ([`lease`]) that ends with the process,
//! and is written only under the epoch of the process that holds it. At most one of a book is live; the
//! book's row names it, so that the row alone says whether the book is at rest.
//!
//! This module owns the table `runs` ([`table`] reads it, [`moving`] moves it, [`recount`] is for what only
//! recounts have). The work
//! itself is done by [`crate::runs`]; what is committed of it, by [`crate::ingest`].

pub mod lease;
pub mod moving;
pub mod recount;
pub mod table;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use crate::checkpoint::Skipped;

use crate::rollup::RollupSpec;
use crate::time::Timestamp;

/// Most lines that are listed with the reason why they were rejected.
pub const REJECTIONS_LISTED: usize = 100;

/// What a run does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RunKind)]
pub enum Kind {
    /// Brings in the clicks of a log.
    Import,
    /// Counts all clicks of the book's log again.
    Recount,
}

impl Kind {
    /// As it is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Recount => "recount",
        }
    }
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RunState)]
pub enum State {
    /// It goes on.
    Running,
    /// It did all that it was to do.
    Done,
    /// It ended before, and `error` says why.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

impl State {
    /// As it is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A line that could not be counted, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RejectedLine {
    /// Its number, from 1.
    pub line: i64,
    /// A sentence for people.
    pub reason: String,
}

/// A run as clients see it.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Run {
    /// Version 7.
    pub id: Uuid,
    /// What it does.
    pub kind: Kind,
    /// How far it has come.
    pub state: State,
    /// Lines of an import, clicks of a recount, that it is done with.
    pub processed: i64,
    /// Of how many, if that is known.
    pub total: Option<i64>,
    /// Of an import: clicks that were not in the log before.
    pub counted: i64,
    /// Of an import: clicks that were.
    pub duplicates: i64,
    /// Of an import: lines that cannot be read or are not let in.
    pub rejected: i64,
    /// The first hundred of them. Left out where a run is one of many, and in frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub rejections: Option<Vec<RejectedLine>>,
    /// Of an import: lines of an access log that are no page views, by the first rule that says so.
    pub skipped: Skipped,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What a run is to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Spec {
    /// Bring in what a source holds.
    Import {
        /// Name of the source; with place and text of a line it makes the click's id.
        source: String,
    },
    /// Count the log again.
    Recount {
        /// By these rollups, which the book then has; `None`: by its own.
        rollups: Option<Vec<RollupSpec>>,
    },
}

impl Spec {
    /// What kind of run it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Import { .. } => Kind::Import,
            Self::Recount { .. } => Kind::Recount,
        }
    }
}

/// A run to begin.
#[derive(Clone, PartialEq, Debug)]
pub struct NewRun {
    /// Version 7; made before the run is, so that a second try finds the first.
    pub id: Uuid,
    /// What it is to do.
    pub spec: Spec,
}

impl NewRun {
    /// A run that is to do this.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        Self {
            id: Uuid::now_v7(),
            spec,
        }
    }
}
