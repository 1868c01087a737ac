//! A book: whatever one dashboard watches, and how it counts.
//!
//! This module owns the tables `books`, `book_slugs`, `chapters` and `notes`. Their rows are read and
//! changed by people through [`table`], [`chapters`] and [`notes`]; the write path locks and moves them through
//! [`hot`]; admission, which must not ask the database about every click, reads them through
//! [`directory`].

pub mod chapters;
pub mod directory;
pub mod hot;
pub mod lag;
pub mod notes;
pub mod owed;
pub mod retention;
pub mod settings;
pub mod table;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use settings::{Settings, SettingsPatch};

use crate::engine::{Plan, Watermark};
use crate::origin::is_origin;
use crate::rollup::{self, RollupError, RollupSpec};
use crate::time::Timestamp;

/// A book as it stands in the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Book {
    /// Version 7.
    pub id: Uuid,
    /// Unique; names the book in addresses.
    pub slug: String,
    /// For people.
    pub title: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whether its input has ended.
    pub closed: bool,
    /// The newest position minted; 0 before the first.
    pub position: i64,
    /// One more than the highest position that was pruned away.
    pub oldest: i64,
    /// Grows by one with each transaction that changes anything a snapshot shows.
    pub revision: i64,
    /// Version of the chapters.
    pub structure_version: i64,
    /// Which set of windows counts.
    pub generation: i32,
    /// The run that is live.
    pub live_run: Option<Uuid>,
    /// How far event time has come.
    pub watermark: Watermark,
    /// In the order in which windows name them.
    pub rollups: Vec<RollupSpec>,
    /// What can be changed at any time.
    pub settings: Settings,
    /// Origins whose pages may call, besides those of the process.
    pub origins: Vec<String>,
    /// How its clicks fared.
    pub totals: Totals,
}

/// How the clicks of a book fared, in numbers of clicks. `received` is the sum of the others.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// All that were sent.
    pub received: i64,
    /// Counted, in time everywhere.
    pub on_time: i64,
    /// Counted, late somewhere.
    pub late: i64,
    /// Too late everywhere; kept in the log.
    pub dropped: i64,
    /// Sent before.
    pub duplicates: i64,
    /// Left out by a rule of the book.
    pub filtered: i64,
    /// Not understood, or not allowed.
    pub rejected: i64,
}

impl Totals {
    /// Takes `other` in.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.on_time += other.on_time;
        self.late += other.late;
        self.dropped += other.dropped;
        self.duplicates += other.duplicates;
        self.filtered += other.filtered;
        self.rejected += other.rejected;
    }
}

/// What this process knows of a book besides its row.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Here {
    /// Event streams that it serves for it.
    pub streams_open: usize,
    /// Whether clicks of it were acknowledged and are not committed yet.
    pub owes: bool,
}

/// Whether a book takes clicks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It takes clicks.
    Live,
    /// Its input has ended.
    Closed,
}

/// A book as clients see it.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[schema(as = Book)]
pub struct BookBody {
    id: Uuid,
    #[schema(example = "my-book")]
    slug: String,
    title: String,
    status: Status,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// The newest position minted; 0 before the first.
    position: i64,
    /// One more than the highest position that was pruned away.
    oldest: i64,
    /// Grows by one with each transaction that changes anything a snapshot shows.
    revision: i64,
    structure_version: i64,
    #[schema(value_type = Option<String>, format = DateTime)]
    watermark: Option<Timestamp>,
    /// Closed, and nothing is owed any more.
    at_rest: bool,
    rollups: Vec<RollupSpec>,
    settings: Settings,
    origins: Vec<String>,
    totals: Totals,
    /// Event streams that this process serves for it.
    streams_open: usize,
}

impl Book {
    /// Whether it is closed and no frame is still to be minted. `here` was asked before the row was
    /// read.
    #[must_use]
    pub fn at_rest(&self, here: Here) -> bool {
        self.closed && self.live_run.is_none() && !here.owes
    }

    /// How its clicks are counted.
    ///
    /// # Errors
    /// The stored rollups are none that this program can count by.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        plan(&self.settings, &self.rollups)
    }

    /// What clients see of it.
    #[must_use]
    pub fn into_body(self, here: Here) -> BookBody {
        BookBody {
            at_rest: self.at_rest(here),
            status: if self.closed {
                Status::Closed
            } else {
                Status::Live
            },
            id: self.id,
            slug: self.slug,
            title: self.title,
            created_at: self.created_at,
            position: self.position,
            oldest: self.oldest,
            revision: self.revision,
            structure_version: self.structure_version,
            watermark: self.watermark.shown(),
            rollups: self.rollups,
            settings: self.settings,
            origins: self.origins,
            totals: self.totals,
            streams_open: here.streams_open,
        }
    }
}

/// What is stored of a book cannot be counted by: it was written by a newer version.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the stored rollups cannot be used: {0}")]
pub struct PlanError(String);

/// How a book with these settings and rollups counts.
///
/// # Errors
/// A rollup is none that this program can count by.
pub fn plan(settings: &Settings, rollups: &[RollupSpec]) -> Result<Plan, PlanError> {
    let rollups = rollup::check(rollups, settings.lateness_ms).map_err(|errors| {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        PlanError(all.join("; "))
    })?;
    Ok(Plan {
        delay_ms: settings.delay_ms,
        rollups,
        structure: Arc::default(),
    })
}

/// Changes to a book; what is absent stays as it is.
#[derive(Clone, Default, PartialEq, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BookPatch {
    /// 1 to 200 characters.
    #[serde(default, deserialize_with = "settings::present")]
    #[schema(value_type = Option<String>)]
    pub title: Option<String>,
    /// Of a book with clicks: these are counted anew first, and then it has them.
    #[serde(default, deserialize_with = "settings::present")]
    #[schema(value_type = Option<Vec<RollupSpec>>)]
    pub rollups: Option<Vec<RollupSpec>>,
    /// Hold from the next click.
    #[serde(default)]
    pub settings: SettingsPatch,
    /// Origins whose pages may call.
    #[serde(default, deserialize_with = "settings::present")]
    #[schema(value_type = Option<Vec<String>>)]
    pub origins: Option<Vec<String>>,
}

/// One thing that is wrong with a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct FieldError {
    /// Place in the list that was sent, where one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Which field, with dots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A short word for programs.
    pub code: String,
    /// A sentence for people.
    pub detail: String,
}

impl FieldError {
    /// An error in `field`.
    #[must_use]
    pub fn new(field: &str, code: &str, detail: impl Into<String>) -> Self {
        Self {
            index: None,
            field: Some(field.to_owned()),
            code: code.to_owned(),
            detail: detail.into(),
        }
    }
}

impl From<RollupError> for FieldError {
    fn from(error: RollupError) -> Self {
        let (index, field) = match error.field {
            "rollups" => (None, "rollups".to_owned()),
            field => (Some(error.index), format!("rollups.{field}")),
        };
        Self {
            index,
            field: Some(field),
            code: "bad_rollup".to_owned(),
            detail: error.detail,
        }
    }
}

/// Checks a title.
#[must_use]
pub fn check_title(title: &str) -> Option<FieldError> {
    let fits = (1..=200).contains(&title.chars().count());
    if fits && !title.chars().any(char::is_control) {
        return None;
    }
    let detail = "1 to 200 characters, none of them a control character";
    Some(FieldError::new("title", "bad_title", detail))
}

/// Checks a slug. One that reads as a UUID would be taken for an id.
#[must_use]
pub fn check_slug(slug: &str) -> Option<FieldError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=64).contains(&slug.len()) && slug.bytes().all(plain) && Uuid::try_parse(slug).is_err() {
        return None;
    }
    let detail = "1 to 64 of a-z, 0-9 and -, and no UUID";
    Some(FieldError::new("slug", "bad_slug", detail))
}

/// Checks origins: scheme, host and port alone, as browsers send them.
#[must_use]
pub fn check_origins(origins: &[String]) -> Vec<FieldError> {
    let wrong = origins.iter().enumerate().filter(|(_, o)| !is_origin(o));
    let detail = "as browsers send it: small letters, no path, such as https://example.org";
    wrong
        .map(|(index, _)| FieldError {
            index: Some(index),
            ..FieldError::new("origins", "bad_origin", detail)
        })
        .collect()
}

/// Checks rollups together with the settings that they depend on.
#[must_use]
pub fn check_counting(settings: &Settings, rollups: &[RollupSpec]) -> Vec<FieldError> {
    let mut errors = settings.check();
    match rollup::check(rollups, settings.lateness_ms) {
        Err(wrong) => errors.extend(wrong.into_iter().map(FieldError::from)),
        Ok(rollups) => errors.extend(settings.check_future(&rollups)),
    }
    errors
}
