//! Admission: from a request's body to clicks that can be counted. No database.
//!
//! Each click is judged by itself: a batch's good clicks go on even if others are refused.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{BodyError, Form, elements};
use super::commit::Batch;
use crate::book::directory::Known;
use crate::click::{Click, ClickId, Micros};
use crate::engine::window;
use crate::page::{self, PageError};
use crate::time::Timestamp;

/// Oldest age, in milliseconds, that a click may give instead of a time: 7 days.
const MAX_AGE_MS: i64 = 7 * 24 * 3_600_000;

const MAX_NAME_BYTES: usize = 200;
const MAX_DETAIL_CHARS: usize = 300;
const MAX_REFERRER_BYTES: usize = 2048;

/// A click that was not let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Its place in the request.
    pub index: usize,
    /// Its id, if it gave one.
    pub id: Option<String>,
    /// A short word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub detail: String,
}

/// A click that was left out by a rule of the book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filtered {
    /// Its place in the request.
    pub index: usize,
    /// Its id, as its sender knows it.
    pub id: String,
    /// A short word for programs.
    pub reason: &'static str,
}

/// What admission let in.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Admitted {
    /// What goes on to the lane.
    pub batch: Batch,
    /// The place in the request of each click of the batch.
    pub places: Vec<usize>,
    /// What was not let in.
    pub rejections: Vec<Rejection>,
    /// What was good and is left out all the same.
    pub filtered: Vec<Filtered>,
}

/// The circumstances of a request.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// Which book the clicks are for.
    pub book: &'a Known,
    /// When the request was received.
    pub received_at: Timestamp,
    /// Gives clicks without an id theirs.
    pub idempotency_key: Option<&'a str>,
    /// It came with a key that stands in a public page: that may not move the book's time.
    pub by_key: bool,
    /// Who read, where a click does not say.
    pub visitor: Option<&'a str>,
    /// Why all its clicks are left out, if they are.
    pub leave_out: Option<&'static str>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a click, such as {\"page\": \"/ch01.html\"}"
)]
struct SentClick<'a> {
    #[serde(borrow)]
    page: Cow<'a, str>,
    #[serde(default)]
    id: Option<String>,
    #[serde(borrow, default)]
    at: Option<&'a RawValue>,
    #[serde(borrow, default)]
    age_ms: Option<&'a RawValue>,
    #[serde(default)]
    visitor: Option<String>,
    #[serde(default)]
    referrer: Option<String>,
    #[serde(default)]
    source: Option<String>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

/// Reads a body and lets its clicks in.
///
/// # Errors
/// The body holds no clicks at all.
pub fn admit(
    form: Form,
    body: &[u8],
    circumstances: Circumstances<'_>,
) -> Result<Admitted, BodyError> {
    let mut admitted = Admitted::default();
    for (index, text) in elements(form, body)?.into_iter().enumerate() {
        match admit_one(index, text, circumstances) {
            Ok(click) => {
                if let Some(reason) = circumstances.leave_out {
                    let id = click.id.shown();
                    admitted.filtered.push(Filtered { index, id, reason });
                    continue;
                }
                admitted.batch.clicks.push(click);
                admitted.places.push(index);
            }
            Err(rejection) => admitted.rejections.push(Rejection { index, ..rejection }),
        }
    }
    admitted.batch.rejected = admitted.rejections.len();
    admitted.batch.filtered = admitted.filtered.len();
    Ok(admitted)
}

fn reject(reason: &'static str, detail: impl Into<String>) -> Rejection {
    // It may quote what was sent.
    let detail: String = detail.into();
    Rejection {
        index: 0,
        id: None,
        reason,
        detail: detail.chars().take(MAX_DETAIL_CHARS).collect(),
    }
}

/// Lets in one click, as it stands in a request or on a line. `index` is its place in there, from
/// which it has its id if it names none and the circumstances give a key.
///
/// # Errors
/// Why it is not let in.
pub fn admit_one(
    index: usize,
    text: &[u8],
    circumstances: Circumstances<'_>,
) -> Result<Click, Rejection> {
    // Serde would take a list of its fields for a struct.
    if text.starts_with(b"[") {
        return Err(reject("wrong_shape", "a click is an object, not a list"));
    }
    let sent: SentClick<'_> = serde_json::from_slice(text).map_err(|error| {
        let detail = error.to_string();
        if error.is_data() {
            reject("wrong_shape", detail)
        } else if serde_json::from_slice::<&RawValue>(text).is_ok() {
            // JSON by the grammar, and yet no text: half of a surrogate pair.
            reject("bad_character", detail)
        } else {
            reject("not_json", detail)
        }
    })?;
    // No answer is longer for an id that is too long.
    let id = sent.id.as_deref();
    let id = id.map(|id| id.chars().take(ClickId::MAX_BYTES).collect());
    let named = |rejection| Rejection { id, ..rejection };
    checked(index, sent, circumstances).map_err(named)
}

/// A page view that was read elsewhere than in a body of ours, such as in an access log.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What was asked for.
    pub target: &'a str,
    /// When.
    pub at: Timestamp,
    /// Where from; left out if no click could have it.
    pub referrer: Option<&'a str>,
}

/// Lets in a page view as a click, under the same conditions as other clicks.
///
/// # Errors
/// Why it is not let in.
pub fn admit_view(
    index: usize,
    view: View<'_>,
    circumstances: Circumstances<'_>,
) -> Result<Click, Rejection> {
    let Circumstances {
        book, received_at, ..
    } = circumstances;
    let referrer = view.referrer.filter(|referrer| {
        let most = MAX_REFERRER_BYTES;
        text_within("referrer", "referrer_too_long", referrer, most).is_ok()
    });
    Ok(Click {
        id: id_of(None, index, circumstances)?,
        page: page_of(view.target, book)?,
        at: countable(view.at, book, received_at)?,
        received_at,
        visitor: None,
        referrer: referrer.map(str::to_owned),
        source: None,
        value: None,
    })
}

fn checked(
    index: usize,
    sent: SentClick<'_>,
    circumstances: Circumstances<'_>,
) -> Result<Click, Rejection> {
    let Circumstances {
        book,
        received_at,
        by_key,
        visitor,
        ..
    } = circumstances;
    if by_key && sent.at.is_some() {
        let detail = "with `key`, a click gives `age_ms`, not `at`";
        return Err(reject("at_not_allowed", detail));
    }
    let id = id_of(sent.id.as_deref(), index, circumstances)?;
    let optional = |name, too_long, text: Option<String>, most| match text {
        Some(text) if !text.is_empty() => {
            text_within(name, too_long, &text, most)?;
            Ok(Some(text))
        }
        _ => Ok(None),
    };
    Ok(Click {
        id,
        page: page_of(&sent.page, book)?,
        at: time_of(&sent, book, received_at)?,
        received_at,
        visitor: optional("visitor", "visitor_too_long", sent.visitor, MAX_NAME_BYTES)?
            .or_else(|| visitor.map(str::to_owned)),
        referrer: optional(
            "referrer",
            "referrer_too_long",
            sent.referrer,
            MAX_REFERRER_BYTES,
        )?,
        source: optional("source", "source_too_long", sent.source, MAX_NAME_BYTES)?,
        value: sent.value.map(value_of).transpose()?,
    })
}

fn id_of(
    sent: Option<&str>,
    index: usize,
    circumstances: Circumstances<'_>,
) -> Result<ClickId, Rejection> {
    let book = circumstances.book.book.id;
    match (sent, circumstances.idempotency_key) {
        (Some(id), _) => {
            if id.is_empty() {
                return Err(reject("id_empty", "an id has 1 to 200 bytes"));
            }
            text_within("id", "id_too_long", id, ClickId::MAX_BYTES)?;
            Ok(ClickId::chosen(book, id))
        }
        (None, Some(key)) => Ok(ClickId::derived(book, key, index)),
        (None, None) => Ok(ClickId::made()),
    }
}

fn text_within(
    name: &str,
    too_long: &'static str,
    text: &str,
    most: usize,
) -> Result<(), Rejection> {
    if text.len() > most {
        return Err(reject(too_long, format!("{name} has at most {most} bytes")));
    }
    if text.chars().any(char::is_control) {
        let detail = format!("{name} holds a control character");
        return Err(reject("bad_character", detail));
    }
    Ok(())
}

fn page_of(sent: &str, book: &Known) -> Result<String, Rejection> {
    let settings = &book.book.settings;
    page::named(sent, settings.canonical_pages, &settings.base_path).map_err(|error| match error {
        PageError::Empty => reject("page_empty", "a page has 1 to 2048 bytes"),
        PageError::TooLong => reject("page_too_long", "page has at most 2048 bytes"),
        PageError::TooLongEscaped => reject("page_too_long", format!("page has {error}")),
        PageError::ControlCharacter => reject("bad_character", "page holds a control character"),
    })
}

fn time_of(
    sent: &SentClick<'_>,
    book: &Known,
    received_at: Timestamp,
) -> Result<Timestamp, Rejection> {
    let at = match (sent.at, sent.age_ms) {
        (None, None) => received_at,
        (Some(_), Some(_)) => return Err(reject("bad_time", "give at or age_ms, not both")),
        (Some(at), None) => given_time(at)?,
        (None, Some(age)) => {
            let age = age.get().parse::<i64>().ok();
            let age = age.filter(|age| (0..=MAX_AGE_MS).contains(age));
            let age = age.ok_or_else(|| {
                reject(
                    "bad_age",
                    "age_ms is an integer from 0 to 604800000 (7 days)",
                )
            })?;
            Timestamp::saturating_from_millis(received_at.millis() - age)
        }
    };
    countable(at, book, received_at)
}

/// A time that the book can count by.
fn countable(at: Timestamp, book: &Known, received_at: Timestamp) -> Result<Timestamp, Rejection> {
    if let Some(most) = book.book.settings.max_future_ms {
        let ahead = at.millis() - received_at.millis();
        if ahead > most {
            let detail = format!("{ahead} ms ahead of its receipt; the book allows {most}");
            return Err(reject("too_far_ahead", detail));
        }
    }
    let windows = book
        .plan
        .rollups
        .iter()
        .flat_map(|rollup| window::assign(rollup.window, at.millis()));
    if !windows.into_iter().all(window::Bounds::in_range) {
        let detail = "a window that holds it would reach beyond the years 0001 to 9999";
        return Err(reject("time_out_of_range", detail));
    }
    Ok(at)
}

fn given_time(at: &RawValue) -> Result<Timestamp, Rejection> {
    Timestamp::parse_json(at).map_err(|error| reject(error.code(), error.to_string()))
}

fn value_of(raw: &RawValue) -> Result<Micros, Rejection> {
    let detail = "a value is a number with at most 6 fraction digits and at most 10^12 in size";
    Micros::from_json(raw).ok_or_else(|| reject("bad_value", detail))
}
