//! From a record of a source to a click, a line that is left out, or one that is refused.
//!
//! **Called by** jobs and imports, which enter at admission as requests do.

use clap::ValueEnum;

use super::admission::{self, Circumstances, View};
use crate::click::Click;
use crate::source::access_log::{self, LogFormat, Rule, Rules};
use crate::source::lines::MAX_LINE_BYTES;
use crate::source::{Record, Text};

/// How a source is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// One click a line, as JSON.
    Ndjson,
    /// Access log of Apache or nginx, with referrer and user agent.
    Combined,
    /// The same without them.
    Common,
    /// Access log of Caddy, one JSON object a line.
    Caddy,
}

impl Format {
    fn log(self) -> Option<LogFormat> {
        match self {
            Self::Ndjson => None,
            Self::Combined => Some(LogFormat::Combined),
            Self::Common => Some(LogFormat::Common),
            Self::Caddy => Some(LogFormat::Caddy),
        }
    }
}

/// What a record holds.
#[derive(Debug)]
pub enum Reading {
    /// Nothing.
    Blank,
    /// A click.
    Click(Click),
    /// A request that is no page view.
    Skipped(Rule),
    /// What cannot be read, or is not let in.
    Rejected(String),
}

/// Reads a record. Its place in the source stands for its index in a request.
#[must_use]
pub fn read(
    record: &Record,
    format: Format,
    rules: &Rules,
    circumstances: Circumstances<'_>,
) -> Reading {
    let index = usize::try_from(record.line_offset).unwrap_or(usize::MAX);
    let text = match &record.text {
        Text::Whole(text) => text.trim_ascii(),
        Text::TooLong => {
            return Reading::Rejected(format!("it has more than {MAX_LINE_BYTES} bytes"));
        }
    };
    if text.is_empty() {
        return Reading::Blank;
    }
    let admitted = match format.log() {
        None => admission::admit_one(index, text, circumstances),
        Some(format) => {
            let entry = match access_log::parse(format, text) {
                Ok(entry) => entry,
                Err(unreadable) => return Reading::Rejected(unreadable.to_string()),
            };
            if let Some(rule) = rules.leave_out(&entry) {
                return Reading::Skipped(rule);
            }
            let view = View {
                target: &entry.target,
                at: entry.at,
                referrer: entry.referrer.as_deref(),
            };
            admission::admit_view(index, view, circumstances)
        }
    };
    match admitted {
        Ok(click) => Reading::Click(click),
        Err(rejection) => Reading::Rejected(format!("{}: {}", rejection.reason, rejection.detail)),
    }
}
