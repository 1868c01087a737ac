//! What the program tells about itself: logs to standard error, metrics for Prometheus.
//!
//! Every metric is named here, once, with its unit in its name.

use std::time::Duration;

use clap::ValueEnum;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::book::lag::Lag;
use crate::ingest::commit::Tally;

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging to standard error.
pub fn start_logging(filter: &str, format: LogFormat) {
    let builder = tracing_subscriber::fmt()
        // sqlx passes on every notice of the server at `info`.
        .with_env_filter(EnvFilter::new(format!("sqlx=warn,{filter}")))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}

/// Starts collecting metrics; the handle renders them.
///
/// # Errors
/// Metrics are collected already.
pub fn start_metrics() -> Result<PrometheusHandle, BuildError> {
    const SECONDS: [f64; 12] = [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
    ];
    const CLICKS: [f64; 9] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0];
    let seconds = Matcher::Full("pagetide_commit_seconds".to_owned());
    let clicks = Matcher::Full("pagetide_commit_clicks".to_owned());
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &SECONDS)?
        .set_buckets_for_metric(clicks, &CLICKS)?
        .install_recorder()?;
    describe_what_happens();
    describe_what_is();
    Ok(handle)
}

/// Counters and histograms.
fn describe_what_happens() {
    describe_counter!("pagetide_clicks_total", "clicks by what became of them");
    describe_counter!(
        "pagetide_clicks_filtered_total",
        "clicks left out by a rule, by which"
    );
    describe_counter!(
        "pagetide_import_lines_total",
        "lines that imports are done with"
    );
    describe_counter!(
        "pagetide_recount_clicks_total",
        "clicks that recounts are done with"
    );
    describe_counter!(
        "pagetide_dead_letters_total",
        "clicks kept aside because they cannot be committed"
    );
    describe_counter!(
        "pagetide_spooled_clicks_total",
        "clicks kept on disk because the database was out of reach"
    );
    describe_counter!(
        "pagetide_drained_clicks_total",
        "clicks that went from the spool into the database"
    );
    describe_counter!(
        "pagetide_spool_discarded_clicks_total",
        "clicks of the spool whose book was deleted"
    );
    describe_counter!(
        "pagetide_spool_damaged_lines_total",
        "lines of the spool that could not be read and were set aside"
    );
    describe_counter!(
        "pagetide_spool_segments_kept_total",
        "segments of the spool that could not be delivered and are tried again later"
    );
}

/// Gauges, and what else there is.
fn describe_what_is() {
    describe_gauge!("pagetide_spool_bytes", "how much the spool holds");
    describe_gauge!("pagetide_spool_clicks", "clicks that wait in the spool");
    describe_counter!(
        "pagetide_retention_clicks_removed_total",
        "clicks removed because their book keeps them no longer"
    );
    describe_counter!(
        "pagetide_retention_windows_removed_total",
        "counts of a window and group removed because their book keeps them no longer"
    );
    describe_counter!("pagetide_commits_total", "write transactions committed");
    describe_counter!(
        "pagetide_commits_single_statement_total",
        "those of them that were one statement, for the book was as it had been left"
    );
    describe_counter!("pagetide_retries_total", "write transactions tried again");
    describe_histogram!("pagetide_commit_seconds", "length of a write transaction");
    describe_histogram!("pagetide_commit_clicks", "clicks in a write transaction");
    describe_gauge!(
        "pagetide_lane_queue_requests",
        "requests that wait in a lane"
    );
    describe_counter!(
        "pagetide_frames_minted_total",
        "frames given a position and stored"
    );
    describe_counter!(
        "pagetide_frames_merged_total",
        "frames of large buffers that went into newer ones"
    );
    describe_counter!(
        "pagetide_frames_pruned_total",
        "frames removed from the buffers"
    );
    describe_counter!(
        "pagetide_frames_sent_total",
        "history frames sent to readers"
    );
    describe_gauge!("pagetide_streams_open", "event streams that are open");
    describe_counter!(
        "pagetide_resyncs_total",
        "readers told to read a snapshot, by reason"
    );
    describe_counter!(
        "pagetide_streams_at_rest_total",
        "streams answered 204 because nothing more will come"
    );
    describe_counter!(
        "pagetide_streams_session_ended_total",
        "streams ended because their token or session was, by why"
    );
    describe_counter!(
        "pagetide_streams_overloaded_total",
        "streams turned away because too many are open"
    );
}

/// An error and what caused it, on one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line = format!("{line}: {cause}");
        source = cause.source();
    }
    line
}

/// A write transaction was committed.
#[allow(clippy::cast_precision_loss, reason = "a histogram takes floats")]
pub fn committed(tally: &Tally, took: Duration) {
    let totals = &tally.totals;
    let by_status = [
        ("on_time", totals.on_time),
        ("late", totals.late),
        ("dropped", totals.dropped),
        ("duplicate", totals.duplicates),
        ("filtered", totals.filtered),
        ("rejected", totals.rejected),
    ];
    for (status, clicks) in by_status {
        if clicks > 0 {
            let clicks = u64::try_from(clicks).unwrap_or(0);
            counter!("pagetide_clicks_total", "status" => status).increment(clicks);
        }
    }
    filtered("debounced", tally.debounced);
    if tally.dead_letters > 0 {
        counter!("pagetide_dead_letters_total").increment(tally.dead_letters);
    }
    counter!("pagetide_commits_total").increment(1);
    if tally.single_statement {
        counter!("pagetide_commits_single_statement_total").increment(1);
    }
    histogram!("pagetide_commit_seconds").record(took);
    histogram!("pagetide_commit_clicks").record(totals.received as f64);
    counter!("pagetide_frames_minted_total").increment(tally.minted);
    counter!("pagetide_frames_merged_total").increment(tally.pruned.merged);
    counter!("pagetide_frames_pruned_total").increment(tally.pruned.pruned);
}

/// Clicks were left out by a rule.
pub fn filtered(reason: &'static str, clicks: u64) {
    if clicks > 0 {
        counter!("pagetide_clicks_filtered_total", "reason" => reason).increment(clicks);
    }
}

/// Clicks were kept in the spool.
pub fn spooled(clicks: usize) {
    counter!("pagetide_spooled_clicks_total").increment(clicks as u64);
}

/// Clicks of the spool were committed, or their book is gone.
pub fn drained(clicks: usize) {
    counter!("pagetide_drained_clicks_total").increment(clicks as u64);
}

/// Clicks of the spool were thrown away, because their book was deleted meanwhile.
pub fn discarded(clicks: usize) {
    counter!("pagetide_spool_discarded_clicks_total").increment(clicks as u64);
}

/// Lines of the spool were damaged and set aside.
pub fn spool_damaged(lines: usize) {
    counter!("pagetide_spool_damaged_lines_total").increment(lines as u64);
}

/// A segment of the spool could not be delivered, and is tried again later.
pub fn segment_kept() {
    counter!("pagetide_spool_segments_kept_total").increment(1);
}

/// So many bytes and clicks are in the spool.
#[allow(clippy::cast_precision_loss, reason = "a gauge takes floats")]
pub fn spool_state(bytes: u64, clicks: usize) {
    gauge!("pagetide_spool_bytes").set(bytes as f64);
    gauge!("pagetide_spool_clicks").set(clicks as f64);
}

/// How far books are, as Prometheus reads it. Not by gauges that are kept: a book that is no longer
/// among the newest would stay in the list for ever.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "seconds are floats")]
pub fn lags(lags: &[Lag]) -> String {
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let mut lines: Vec<String> = Vec::new();
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&Lag) -> Option<f64>| {
        lines.push(format!("# HELP {name} {help}"));
        lines.push(format!("# TYPE {name} gauge"));
        for lag in lags {
            if let Some(value) = of(lag) {
                // A slug holds nothing that must be escaped.
                lines.push(format!("{name}{{book=\"{}\"}} {value}", lag.slug));
            }
        }
        lines.push(String::new());
    };
    gauge(
        "pagetide_book_watermark_lag_seconds",
        "how far the watermark is behind the clock; the books that received clicks last",
        &|lag| lag.watermark_lag_ms.map(seconds),
    );
    gauge(
        "pagetide_book_oldest_open_window_end_timestamp_seconds",
        "when the oldest window that has not fired ends",
        &|lag| lag.oldest_open_end.map(|end| seconds(end.millis())),
    );
    lines.join("\n")
}

/// Clicks were removed that are kept no longer.
pub fn clicks_removed(clicks: u64) {
    counter!("pagetide_retention_clicks_removed_total").increment(clicks);
}

/// Windows were removed that are kept no longer.
pub fn windows_removed(windows: u64) {
    counter!("pagetide_retention_windows_removed_total").increment(windows);
}

/// A write transaction is tried again.
pub fn retried() {
    counter!("pagetide_retries_total").increment(1);
}

/// An import is done with so many lines more.
pub fn imported(lines: i64) {
    counter!("pagetide_import_lines_total").increment(u64::try_from(lines).unwrap_or(0));
}

/// A recount is done with so many clicks more.
pub fn recounted(clicks: usize) {
    counter!("pagetide_recount_clicks_total").increment(clicks as u64);
}

/// So many requests wait in a lane.
#[allow(clippy::cast_precision_loss, reason = "a gauge takes floats")]
pub fn queue_depth(lane: &str, requests: usize) {
    gauge!("pagetide_lane_queue_requests", "lane" => lane.to_owned()).set(requests as f64);
}

/// An event stream was opened.
pub fn stream_opened() {
    gauge!("pagetide_streams_open").increment(1);
}

/// An event stream has ended.
pub fn stream_ended() {
    gauge!("pagetide_streams_open").decrement(1);
}

/// History frames were sent to a reader.
pub fn frames_sent(frames: usize) {
    counter!("pagetide_frames_sent_total").increment(frames as u64);
}

/// A reader was told to read a snapshot.
pub fn resync(reason: &'static str) {
    counter!("pagetide_resyncs_total", "reason" => reason).increment(1);
}

/// A stream was answered 204.
pub fn at_rest() {
    counter!("pagetide_streams_at_rest_total").increment(1);
}

/// A stream ended with its token or session.
pub fn session_ended(reason: &'static str) {
    counter!("pagetide_streams_session_ended_total", "reason" => reason).increment(1);
}

/// A stream was turned away.
pub fn overloaded() {
    counter!("pagetide_streams_overloaded_total").increment(1);
}
