//! What a command tells of its work on standard error: a bar where a person looks, else plain lines.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::checkpoint::Skipped;

/// Time between two plain lines.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How many rejected lines are told one by one.
const REJECTIONS_TOLD: u32 = 10;

/// Tells how far the reading of a source is.
#[derive(Debug)]
pub struct Progress {
    /// What it works on.
    name: String,
    bar: Option<ProgressBar>,
    began: Instant,
    told_at: Instant,
    lines_told: i64,
    /// Lines that this run has taken.
    lines: i64,
    offset: u64,
    rejections: u32,
}

impl Progress {
    /// At byte `offset`, of `length` if that is known.
    #[must_use]
    pub fn start(name: impl Into<String>, offset: u64, length: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(offset, length));
        let now = Instant::now();
        Self {
            name: name.into(),
            bar,
            began: now,
            told_at: now,
            lines_told: 0,
            lines: 0,
            offset,
            rejections: 0,
        }
    }

    /// The line at `place` was refused.
    pub fn rejected(&mut self, place: &str, reason: &str) {
        self.rejections += 1;
        if self.rejections <= REJECTIONS_TOLD {
            self.say(&format!("line {place} rejected: {reason}"));
        }
        if self.rejections == REJECTIONS_TOLD {
            self.say("further rejected lines are only counted");
        }
    }

    /// So many lines were taken, up to byte `offset`.
    pub fn taken(&mut self, lines: usize, offset: u64) {
        self.lines += i64::try_from(lines).unwrap_or(i64::MAX);
        self.offset = offset;
        if let Some(bar) = &self.bar {
            bar.set_position(offset);
            bar.set_message(format!(
                "{} lines, {}",
                self.lines,
                rate(self.lines, self.began)
            ));
        }
    }

    /// Returns when it is time to tell something.
    pub async fn due(&self) {
        if self.bar.is_some() {
            return std::future::pending().await;
        }
        tokio::time::sleep_until((self.told_at + TELL_EVERY).into()).await;
    }

    /// Tells how far it is, if that is news.
    pub fn tell(&mut self) {
        let news = self.lines - self.lines_told;
        if news > 0 && self.bar.is_none() && self.told_at.elapsed() >= TELL_EVERY {
            let (lines, offset) = (self.lines, self.offset);
            let rate = rate(news, self.told_at);
            self.say(&format!("{lines} lines, {rate}, at byte {offset}"));
        }
        if self.told_at.elapsed() >= TELL_EVERY {
            self.lines_told = self.lines;
            self.told_at = Instant::now();
        }
    }

    /// The last line: what was done now, and `in_all` behind it.
    pub fn finish(&self, in_all: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let (lines, offset) = (self.lines, self.offset);
        let rate = rate(lines, self.began);
        self.say(&format!(
            "{lines} lines in this run, {rate}, at byte {offset}{in_all}"
        ));
    }

    fn say(&self, what: &str) {
        say(&self.name, self.bar.as_ref(), what);
    }
}

fn say(name: &str, bar: Option<&ProgressBar>, what: &str) {
    let line = format!("pagetide: {name}: {what}");
    let write = || {
        // Nobody may be there to read it.
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Tells how many clicks are done with.
#[derive(Debug)]
pub struct Clicks {
    name: String,
    bar: Option<ProgressBar>,
}

impl Clicks {
    /// None so far.
    #[must_use]
    pub fn start(name: impl Into<String>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let template = "{wide_bar} {pos} of {len} clicks, {per_sec}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Self {
            name: name.into(),
            bar,
        }
    }

    /// So many of so many.
    pub fn at(&self, clicks: i64, total: Option<i64>) {
        if let Some(bar) = &self.bar {
            bar.set_length(u64::try_from(total.unwrap_or(clicks)).unwrap_or(0));
            bar.set_position(u64::try_from(clicks).unwrap_or(0));
        }
    }

    /// The last line.
    pub fn finish(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        say(&self.name, self.bar.as_ref(), what);
    }
}

/// Lines that rules left out, rule by rule.
#[must_use]
pub fn left_out(skipped: Skipped) -> String {
    let by_rule = [
        ("methods", skipped.methods),
        ("errors", skipped.errors),
        ("assets", skipped.assets),
        ("bots", skipped.bots),
    ];
    let left_out = by_rule.into_iter().filter(|(_, lines)| *lines > 0);
    let left_out = left_out.map(|(rule, lines)| format!(", {lines} left out ({rule})"));
    left_out.collect()
}

fn bar(offset: u64, length: Option<u64>) -> ProgressBar {
    let bar = match length {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::new_spinner(),
    };
    let template = match length {
        Some(_) => "{wide_bar} {bytes} of {total_bytes}, {msg}, {eta} left",
        None => "{spinner} {bytes}, {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_draw_target(ProgressDrawTarget::stderr());
    bar.set_position(offset);
    bar.reset_eta();
    bar
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn rate(lines: i64, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64().max(0.001);
    format!("{:.0} a second", lines as f64 / seconds)
}
