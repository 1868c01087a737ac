//! The command lines of imports and recounts.

use std::path::PathBuf;

use clap::Args;

use super::DatabaseConfig;
use crate::ingest::reading::Format;
use crate::source::access_log::Rules;

/// What to import, and into which book.
#[derive(Clone, Debug, Args)]
pub struct ImportConfig {
    /// Which database: with the embedded one, that of the server which runs, or its own.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Id or slug of the book that the log is of; it must be there.
    #[arg(long)]
    pub book: String,
    /// How the logs are written.
    #[arg(long, value_enum, default_value = "combined")]
    pub format: Format,
    /// Name of the source: the same line at the same place of the same source counts once, however often
    /// it is imported. A file that was renamed (rotated) keeps the name that it had [default: the file's
    /// name without folder and .gz]
    #[arg(long)]
    pub source: Option<String>,
    /// Static assets count too.
    #[arg(long)]
    pub assets: bool,
    /// Bots count too.
    #[arg(long)]
    pub bots: bool,
    /// Whatever the status, it counts; else 2xx and 304 do.
    #[arg(long)]
    pub errors: bool,
    /// Which methods count, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "GET")]
    pub methods: Vec<String>,
    /// The logs, in the order in which they were written; `.gz` is unpacked, `-` is standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

impl ImportConfig {
    /// Which requests count.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            methods: self.methods.clone(),
            errors: self.errors,
            assets: self.assets,
            bots: self.bots,
        }
    }
}

/// Which book to count again.
#[derive(Clone, Debug, Args)]
pub struct RecountConfig {
    /// Which database: with the embedded one, that of the server which runs, or its own.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Id or slug of the book.
    #[arg(long)]
    pub book: String,
}
