//! Counts: the windows of a rollup, as people ask for them.
//!
//! A query chooses windows ([`Filter`], `last`), says what becomes of them ([`View`]) and of their groups
//! ([`Groups`]), and how many groups of each are shown (`top`), in this order. [`read`] answers a part of it from one snapshot
//! of the database, which it reads by index, a chunk at a time; what it keeps of a chunk is bounded
//! ([`Unanswerable::TooMuch`]). Nothing here is written.

mod buckets;
mod fold;
pub mod public;
mod select;
mod steps;
mod views_of_page;
mod windows;

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::book::{self, Book, PlanError};
use crate::calendar::{Interval, Zone};
use crate::db;
use crate::engine::aggregate::{State, StateError, Value};
use crate::rollup::{AggregateKind, Rollup, WindowSpec};
use crate::stream::state::WindowState;
use crate::time::Timestamp;
use select::{Selection, Stretch};

/// A reading's transaction: one snapshot, and plans that know the parameters, for which of the
/// indexes serves a statement hangs on them (a group, a session rollup, recent windows).
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                     SET LOCAL plan_cache_mode = force_custom_plan; \
                     SET LOCAL enable_seqscan = off; SET LOCAL jit = off";

/// One window of one group, or what was made of several.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Count {
    /// First moment.
    #[schema(value_type = String, format = DateTime)]
    pub start: Timestamp,
    /// First moment after it.
    #[schema(value_type = String, format = DateTime)]
    pub end: Timestamp,
    /// The group.
    pub group: String,
    /// What was counted.
    pub value: Value,
    /// How far the window has come; of several, the one that has come least far.
    pub state: WindowState,
}

/// Which windows are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Windows that overlap the time from here on.
    pub from: Option<Timestamp>,
    /// Windows that overlap the time before this.
    pub to: Option<Timestamp>,
    /// This group alone.
    pub group: Option<String>,
}

/// What becomes of the windows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum View {
    /// They are shown as they are.
    Windows,
    /// All are combined, group by group.
    Merged,
    /// They are combined into the pieces of a local calendar.
    Calendar(Interval, Zone),
}

/// What becomes of the groups of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Groups {
    /// Each is shown.
    #[default]
    All,
    /// They are combined into one, `""`.
    Total,
}

impl Groups {
    /// The group into which a window's `group` goes.
    fn of(self, group: String) -> String {
        match self {
            Self::All => group,
            Self::Total => String::new(),
        }
    }
}

/// What is wanted of a rollup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// Its name.
    pub rollup: String,
    /// Which windows.
    pub filter: Filter,
    /// So many of the newest windows, or of the newest pieces of the calendar; from 1.
    pub last: Option<i64>,
    /// So many of the greatest groups of each window, the greatest first; from 1.
    pub top: Option<i64>,
    /// What becomes of them.
    pub view: View,
    /// What becomes of their groups.
    pub groups: Groups,
}

/// A place in the answer to a query: that of one count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    start_ms: i64,
    end_ms: i64,
    /// Counts where the greatest come first.
    weight: i64,
    group: String,
    /// Which windows `last` chose, so that the next part is of the same ones.
    within: Option<Stretch>,
}

impl Place {
    /// The group of the count that stands there.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }
}

/// A count and its place.
#[derive(Clone, PartialEq, Debug)]
pub struct Listed {
    /// The count.
    pub count: Count,
    /// Where it stands.
    pub place: Place,
}

/// How much of an answer is wanted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// So many counts, if there are as many.
    Exactly(usize),
    /// So many, and what else had to be worked out for them.
    AtLeast(usize),
}

impl Amount {
    fn counts(self) -> usize {
        match self {
            Self::Exactly(counts) | Self::AtLeast(counts) => counts,
        }
    }
}

/// A part of an answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part {
    /// The counts, by start, end and group, or by start, end, weight (the greatest first) and group
    /// where a query asks for the greatest.
    pub items: Vec<Listed>,
    /// Whether there are more.
    pub more: bool,
}

impl Part {
    /// What was worked out, of which there may be more than is wanted.
    fn of(mut items: Vec<Listed>, more: bool, amount: Amount) -> Self {
        let before = items.len();
        if let Amount::Exactly(counts) = amount {
            items.truncate(counts);
        }
        let more = more || items.len() < before;
        Self { items, more }
    }
}

/// Why a rollup has no answer to a query that makes sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unanswerable {
    /// Its windows cannot make up a calendar.
    #[error("interval is for rollups of tumbling windows, which {0} is not")]
    NotTumbling(String),
    /// A click would count once for each of the windows that it is in.
    #[error(
        "merge would count a click of {0} once for each window that it is in, for its windows \
         overlap; merge a rollup of tumbling windows"
    )]
    CountsTwice(String),
    /// A window would lie in two pieces of the calendar.
    #[error(
        "a window of {size_ms} ms would straddle the bounds of the {} from {start} to {end} in \
         {zone}; ask for another interval or a rollup of shorter windows",
        .interval.as_str()
    )]
    Straddles {
        /// Length of the windows, in milliseconds.
        size_ms: i64,
        /// What the calendar is cut into.
        interval: Interval,
        /// Name of the time zone.
        zone: String,
        /// First moment of the piece.
        start: Timestamp,
        /// First moment after it.
        end: Timestamp,
    },
    /// There are more groups than are kept in memory.
    #[error(
        "there are more than {} groups to combine, or they hold too much; narrow the query down \
         by group, from and to, or last",
        fold::MAX_GROUPS
    )]
    TooMuch,
}

/// Why there are no counts.
#[derive(Debug, thiserror::Error)]
pub enum CountsError {
    /// What the database says.
    #[error("the counts could not be read")]
    Database(#[from] sqlx::Error),
    /// A stored window cannot be read.
    #[error("a stored window cannot be read")]
    State(#[from] StateError),
    /// The book cannot be used.
    #[error("the book cannot be used")]
    Plan(#[from] PlanError),
    /// The book is gone.
    #[error("there is no such book")]
    NoBook,
    /// The book has only these rollups.
    #[error("the book has no such rollup; it has {}", .0.join(", "))]
    NoRollup(Vec<String>),
    /// The rollup cannot answer this.
    #[error(transparent)]
    Unanswerable(#[from] Unanswerable),
}

/// What an answer is read with.
struct Reading<'a> {
    conn: &'a mut PgConnection,
    book: &'a Book,
    rollup: &'a Rollup,
    selection: Selection<'a>,
    groups: Groups,
    top: Option<i64>,
    after: Option<&'a Place>,
    amount: Amount,
    now: Timestamp,
}

impl Reading<'_> {
    /// How far a window has come.
    fn state(&self, fired: bool, end_ms: i64) -> WindowState {
        WindowState::of(fired, end_ms, self.rollup, self.book.watermark)
    }

    fn listed(
        &self,
        (start_ms, end_ms): (i64, i64),
        (group, weight): (String, i64),
        value: Value,
        state: WindowState,
    ) -> Listed {
        Listed {
            place: Place {
                start_ms,
                end_ms,
                weight,
                group: group.clone(),
                within: self.selection.within,
            },
            count: Count {
                start: Timestamp::saturating_from_millis(start_ms),
                end: Timestamp::saturating_from_millis(end_ms),
                group,
                value,
                state,
            },
        }
    }

    fn stored(&self, row: select::Stored) -> Result<Listed, StateError> {
        let value = State::from_bytes(self.rollup.aggregate, &row.state)?.value();
        let state = self.state(row.fired, row.end_ms);
        let bounds = (row.start_ms, row.end_ms);
        Ok(self.listed(bounds, (row.group_key, row.weight), value, state))
    }
}

/// A part of the answer to `query` about the book `id`: what comes after the place `after`.
///
/// # Errors
/// See [`CountsError`].
pub async fn read(
    pool: &PgPool,
    id: Uuid,
    query: &Query,
    after: Option<&Place>,
    amount: Amount,
    now: Timestamp,
) -> Result<Part, CountsError> {
    let mut tx = db::begin(pool, BEGIN).await?;
    let book = book::table::find(&mut *tx, id).await?;
    let book = book.ok_or(CountsError::NoBook)?;
    let plan = book.plan()?;
    let named = (0_i16..)
        .zip(&plan.rollups)
        .find(|(_, rollup)| rollup.name == query.rollup);
    let Some((place, rollup)) = named else {
        let rollups = plan.rollups.iter().map(|rollup| rollup.name.clone());
        return Err(CountsError::NoRollup(rollups.collect()));
    };
    let mut reading = Reading {
        conn: &mut tx,
        book: &book,
        rollup,
        selection: Selection::new(&book, place, rollup, &query.filter),
        groups: query.groups,
        top: query.top,
        after,
        amount,
        now,
    };
    reading.selection.within = after.and_then(|place| place.within);
    let part = answer(&mut reading, query).await?;
    tx.commit().await?;
    Ok(part)
}

async fn answer(reading: &mut Reading<'_>, query: &Query) -> Result<Part, CountsError> {
    let rollup = reading.rollup;
    let calendar = match &query.view {
        View::Merged if counts_twice(rollup) => {
            return Err(Unanswerable::CountsTwice(rollup.name.clone()).into());
        }
        View::Windows | View::Merged => None,
        View::Calendar(interval, zone) => Some(buckets::Calendar::of(rollup, *interval, zone)?),
    };
    if let Some(last) = query.last
        && reading.selection.within.is_none()
    {
        let chosen = match &calendar {
            None => steps::newest(reading.conn, &reading.selection, last).await?,
            Some(calendar) => buckets::newest(reading, calendar, last).await?,
        };
        reading.selection.within = Some(chosen.unwrap_or(Stretch::NOTHING));
    }
    match (&calendar, &query.view) {
        (Some(calendar), _) => buckets::list(reading, calendar).await,
        (None, View::Merged) => fold::merged(reading).await,
        (None, _) => windows::list(reading).await,
    }
}

/// Whether combining the windows would take a click in more than once, and it would show.
fn counts_twice(rollup: &Rollup) -> bool {
    let overlap =
        matches!(rollup.window, WindowSpec::Sliding { size_ms, slide_ms } if slide_ms < size_ms);
    let adds_up = match rollup.aggregate {
        AggregateKind::Count | AggregateKind::Sum | AggregateKind::Top => true,
        AggregateKind::Min
        | AggregateKind::Max
        | AggregateKind::First
        | AggregateKind::Last
        | AggregateKind::Distinct => false,
    };
    overlap && adds_up
}
