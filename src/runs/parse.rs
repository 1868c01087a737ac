//! From lines to a part of an import. No database.

use crate::book::directory::Known;
use crate::click::ClickId;
use crate::ingest::admission::Circumstances;
use crate::ingest::commit::import::Part;
use crate::ingest::reading::{self, Format, Reading};
use crate::run::moving::Step;
use crate::run::{REJECTIONS_LISTED, RejectedLine, Skipped};
use crate::source::access_log::{Rule, Rules};
use crate::source::{Record, Text};
use crate::time::Timestamp;

/// How an import reads its lines.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// How they are written.
    pub format: Format,
    /// Which requests of an access log count.
    pub rules: Rules,
    /// Name of the source: the same line at the same place of the same source is the same click.
    pub source: String,
}

/// How far the lines of an import have been read.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Read {
    /// Lines that say anything.
    pub(super) lines: i64,
    /// Of all lines, the blank ones too: what people count.
    number: i64,
    skipped: Skipped,
    listed: usize,
}

impl Read {
    /// What the next lines are.
    pub(super) fn part(
        &mut self,
        records: &[Record],
        options: &ImportOptions,
        book: &Known,
        now: Timestamp,
    ) -> Part {
        let mut part = Part {
            step: Step {
                from: self.lines,
                ..Step::default()
            },
            ..Part::default()
        };
        let circumstances = Circumstances {
            book,
            received_at: now,
            idempotency_key: None,
            by_key: false,
            visitor: None,
            leave_out: None,
        };
        for record in records {
            self.number += 1;
            self.lines += 1;
            let reading = if is_cut(record, options.format) {
                Reading::Rejected("the line has no end yet".to_owned())
            } else {
                reading::read(record, options.format, &options.rules, circumstances)
            };
            match reading {
                Reading::Blank => self.lines -= 1,
                Reading::Click(mut click) => {
                    if click.id.fresh {
                        click.id = id(record, options, book, click.at);
                    }
                    part.clicks.push(click);
                }
                Reading::Skipped(rule) => self.skip(rule),
                Reading::Rejected(reason) => {
                    part.step.rejected += 1;
                    if self.listed < REJECTIONS_LISTED {
                        self.listed += 1;
                        let line = self.number;
                        part.step.rejections.push(RejectedLine { line, reason });
                    }
                }
            }
        }
        part.step.to = self.lines;
        part.step.skipped = self.skipped;
        part
    }

    fn skip(&mut self, rule: Rule) {
        let skipped = &mut self.skipped;
        *match rule {
            Rule::Methods => &mut skipped.methods,
            Rule::Errors => &mut skipped.errors,
            Rule::Assets => &mut skipped.assets,
            Rule::Bots => &mut skipped.bots,
        } += 1;
    }
}

/// The id of a click that brings none. A log's line says when it was written; what a click without a
/// time gets is the time at which it is read, of which its id must not know.
fn id(record: &Record, options: &ImportOptions, book: &Known, at: Timestamp) -> ClickId {
    let line: &[u8] = match &record.text {
        Text::Whole(line) => line,
        Text::TooLong => &[],
    };
    let at_ms = (options.format != Format::Ndjson).then(|| at.millis());
    let (book, offset) = (book.book.id, record.line_offset);
    ClickId::imported(book, &options.source, offset, line, at_ms)
}

/// Whether a line may be the beginning of a longer one: a server is still writing it. It would count
/// once as it is, and once more when it is whole. JSON that is cut is none; of the others, those end
/// in a quotation mark that say what the reader reads with.
fn is_cut(record: &Record, format: Format) -> bool {
    let Text::Whole(line) = &record.text else {
        return false;
    };
    let whole = match format {
        Format::Ndjson | Format::Caddy => true,
        Format::Combined => line.trim_ascii_end().ends_with(b"\""),
        Format::Common => false,
    };
    !line.is_empty() && record.has_no_end() && !whole
}
