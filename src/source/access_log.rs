//! Access logs of web servers: what a line tells, and whether it tells of a page view.
//!
//! Apache and nginx write the `combined` and `common` formats, Caddy a JSON object a line. By default
//! counted are page views: GET, status 2xx or 304, no static assets, no bots; [`Rules`] widen that.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

use chrono::{NaiveDate, NaiveTime};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bot;
use crate::time::Timestamp;

/// How a log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// `host ident user [time] "request" status bytes "referrer" "user agent"`.
    Combined,
    /// The same without referrer and user agent.
    Common,
    /// Caddy's JSON.
    Caddy,
}

/// What a line tells of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// Such as `GET`.
    pub method: String,
    /// What was asked for, as it was sent; bytes that are no UTF-8 as escapes.
    pub target: String,
    /// What was answered.
    pub status: u16,
    /// The page that the reader came from.
    pub referrer: Option<String>,
    /// What the reader reads with.
    pub user_agent: Option<String>,
}

/// A line that cannot be read, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(&'static str);

/// A rule that leaves a request out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Another method.
    Methods,
    /// Neither 2xx nor 304.
    Errors,
    /// A static asset.
    Assets,
    /// Not a reader.
    Bots,
}

/// Which requests count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// These methods.
    pub methods: Vec<String>,
    /// Whatever the status.
    pub errors: bool,
    /// Static assets too.
    pub assets: bool,
    /// Bots too.
    pub bots: bool,
}

impl Default for Rules {
    /// Page views.
    fn default() -> Self {
        Self {
            methods: vec!["GET".to_owned()],
            errors: false,
            assets: false,
            bots: false,
        }
    }
}

/// Ends of names that stand for parts of pages. PDF and EPUB are read, so they count.
const ASSETS: &str = "css js mjs map json xml rss atom txt webmanifest ico png jpg jpeg gif svg webp \
                      avif bmp woff woff2 ttf otf eot mp4 webm mp3 ogg wav";

impl Rules {
    /// The first rule that leaves `entry` out.
    #[must_use]
    pub fn leave_out(&self, entry: &Entry) -> Option<Rule> {
        let fine = (200..300).contains(&entry.status) || entry.status == 304;
        if !self.methods.contains(&entry.method) {
            Some(Rule::Methods)
        } else if !self.errors && !fine {
            Some(Rule::Errors)
        } else if !self.assets && is_asset(&entry.target) {
            Some(Rule::Assets)
        } else if !self.bots && entry.user_agent.as_deref().is_some_and(bot::is_bot) {
            Some(Rule::Bots)
        } else {
            None
        }
    }
}

fn is_asset(target: &str) -> bool {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(_, end)| {
        let mut assets = ASSETS.split_ascii_whitespace();
        assets.any(|asset| asset.eq_ignore_ascii_case(end))
    })
}

/// Reads a line, without its end.
///
/// # Errors
/// It tells of no request.
pub fn parse(format: LogFormat, line: &[u8]) -> Result<Entry, Unreadable> {
    match format {
        LogFormat::Combined => parse_plain(line, true),
        LogFormat::Common => parse_plain(line, false),
        LogFormat::Caddy => parse_caddy(line),
    }
}

fn parse_plain(line: &[u8], combined: bool) -> Result<Entry, Unreadable> {
    let (at, rest) = find_time(line).ok_or(Unreadable(
        "there is no time such as [01/Mar/2026:12:00:00 +0000] before a request",
    ))?;
    let (request, status, rest) = split_request(rest).ok_or(Unreadable(
        "there is no request in quotes with a status behind it",
    ))?;
    let request = text(&unescape(request)).into_owned();
    let (method, target) =
        split_words(&request).ok_or(Unreadable("the request has no method and target"))?;
    let (mut referrer, mut user_agent) = (None, None);
    if combined {
        // The number of bytes stands before them.
        let begin = rest.iter().position(|byte| *byte == b'"');
        let begin = begin.ok_or(Unreadable("there is no referrer: is the format common?"))?;
        let (first, rest) = quoted(&rest[begin + 1..]);
        referrer = said(first);
        let begin = rest.iter().position(|byte| *byte == b'"');
        user_agent = begin.and_then(|begin| said(quoted(&rest[begin + 1..]).0));
    }
    Ok(Entry {
        at,
        method: method.to_owned(),
        target: target.to_owned(),
        status,
        referrer,
        user_agent,
    })
}

/// The time, and what follows the quotation mark behind it. A user's name may hold brackets.
fn find_time(line: &[u8]) -> Option<(Timestamp, &[u8])> {
    const LENGTH: usize = "01/Mar/2026:12:00:00 +0000".len();
    let mut from = 0;
    while let Some(found) = line[from..].iter().position(|byte| *byte == b'[') {
        from += found + 1;
        let (stamp, rest) = line[from..].split_at_checked(LENGTH)?;
        if let (Some(at), Some(rest)) = (time(stamp), rest.strip_prefix(b"] \"")) {
            return Some((at, rest));
        }
    }
    None
}

/// `01/Mar/2026:12:00:00 +0000`.
fn time(stamp: &[u8]) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let stamp = std::str::from_utf8(stamp).ok()?;
    let number = |from: usize, to: usize| -> Option<u32> {
        let digits = stamp.get(from..to)?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().ok())?
    };
    let separators = [
        (2, "/"),
        (6, "/"),
        (11, ":"),
        (14, ":"),
        (17, ":"),
        (20, " "),
    ];
    if separators
        .iter()
        .any(|(at, separator)| stamp.get(*at..at + 1) != Some(separator))
    {
        return None;
    }
    let month = MONTHS
        .iter()
        .position(|month| stamp.get(3..6) == Some(month))?;
    let year = i32::try_from(number(7, 11)?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, u32::try_from(month + 1).ok()?, number(0, 2)?)?;
    // A leap second is the end of the second before it.
    let second = number(18, 20)?;
    let second = if second == 60 { 59 } else { second };
    let clock = NaiveTime::from_hms_opt(number(12, 14)?, number(15, 17)?, second)?;
    let (hours, minutes) = (number(22, 24)?, number(24, 26)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let ahead = i64::from(hours * 60 + minutes) * 60_000;
    let ahead = match stamp.get(21..22)? {
        "+" => ahead,
        "-" => -ahead,
        _ => return None,
    };
    let local = date.and_time(clock).and_utc().timestamp_millis();
    Timestamp::from_millis(local - ahead)
}

/// The request, its status, and what follows. Old servers did not escape quotation marks, so the one
/// that ends the request is the first with a status behind it.
fn split_request(rest: &[u8]) -> Option<(&[u8], u16, &[u8])> {
    let mut escaped = false;
    for (at, byte) in rest.iter().enumerate() {
        let quote = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        if !quote {
            continue;
        }
        let Some(after) = rest[at + 1..].strip_prefix(b" ") else {
            continue;
        };
        let Some((digits, after)) = after.split_at_checked(3) else {
            continue;
        };
        let ends = after.first().is_none_or(|byte| *byte == b' ');
        if ends && digits.iter().all(u8::is_ascii_digit) {
            let digits = digits.iter().map(|digit| u16::from(digit - b'0'));
            return Some((
                &rest[..at],
                digits.fold(0, |n, digit| n * 10 + digit),
                after,
            ));
        }
    }
    None
}

/// Method and target. HTTP/0.9 has no version behind them.
fn split_words(request: &str) -> Option<(&str, &str)> {
    let (method, rest) = request.split_once(' ')?;
    let target = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => target,
        None if rest.starts_with("HTTP/") => return None,
        _ => rest,
    };
    let target = target.trim_matches(' ');
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte);
    let fine = !method.is_empty() && method.bytes().all(token) && !target.is_empty();
    fine.then_some((method, target))
}

/// Up to the quotation mark that ends it, or to the end of the line, where it was cut, and what
/// follows.
fn quoted(from: &[u8]) -> (&[u8], &[u8]) {
    let mut escaped = false;
    for (at, byte) in from.iter().enumerate() {
        if *byte == b'"' && !escaped {
            return (&from[..at], &from[at + 1..]);
        }
        escaped = *byte == b'\\' && !escaped;
    }
    (from, &[])
}

/// What a field says; a hyphen says nothing.
fn said(field: &[u8]) -> Option<String> {
    let said = unescape(field);
    (!said.is_empty() && *said != *b"-").then(|| text(&said).into_owned())
}

/// Undoes `\"`, `\\` and `\xHH`, which the log added.
fn unescape(field: &[u8]) -> Cow<'_, [u8]> {
    if !field.contains(&b'\\') {
        return Cow::Borrowed(field);
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let (byte, length) = match after {
            [b'x', high, low, ..] if *first == b'\\' => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, 4),
                _ => (b'\\', 1),
            },
            [escaped @ (b'"' | b'\\'), ..] if *first == b'\\' => (*escaped, 2),
            _ => (*first, 1),
        };
        plain.push(byte);
        rest = &rest[length..];
    }
    Cow::Owned(plain)
}

fn hex(digit: u8) -> Option<u8> {
    let digit = char::from(digit).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// As text: bytes that are no UTF-8 become escapes of a URL.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    Cow::Owned(text)
}

#[derive(Deserialize)]
struct CaddyLine {
    ts: Value,
    request: CaddyRequest,
    status: u16,
}

#[derive(Deserialize)]
struct CaddyRequest {
    method: String,
    uri: String,
    #[serde(default)]
    headers: HashMap<String, Vec<String>>,
}

impl CaddyRequest {
    fn header(&self, name: &str) -> Option<String> {
        let mut headers = self.headers.iter();
        let (_, values) = headers.find(|(sent, _)| sent.eq_ignore_ascii_case(name))?;
        let value = values.first()?;
        (!value.is_empty()).then(|| value.clone())
    }
}

fn parse_caddy(line: &[u8]) -> Result<Entry, Unreadable> {
    let line: CaddyLine = serde_json::from_slice(line)
        .map_err(|_| Unreadable("it is no JSON object with ts, request and status"))?;
    let at = caddy_time(&line.ts).ok_or(Unreadable("ts is no time"))?;
    let (referrer, user_agent) = (
        line.request.header("referer"),
        line.request.header("user-agent"),
    );
    if line.request.method.is_empty() || line.request.uri.is_empty() {
        return Err(Unreadable("the request has no method and target"));
    }
    Ok(Entry {
        at,
        method: line.request.method,
        target: line.request.uri,
        status: line.status,
        referrer,
        user_agent,
    })
}

/// Seconds since the epoch with a fraction, which is the default, or RFC 3339.
fn caddy_time(ts: &Value) -> Option<Timestamp> {
    if let Some(text) = ts.as_str() {
        return Timestamp::parse_rfc3339(text).ok();
    }
    let millis = (ts.as_f64()? * 1000.0).round();
    #[allow(clippy::cast_precision_loss, reason = "the bounds are far below 2^53")]
    let range = Timestamp::MIN.millis() as f64..=Timestamp::MAX.millis() as f64;
    #[allow(clippy::cast_possible_truncation, reason = "it is in the range")]
    let millis = range.contains(&millis).then_some(millis as i64)?;
    Timestamp::from_millis(millis)
}

#[cfg(test)]
mod tests;
