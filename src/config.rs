//! The command line and the environment: each value once, with its default.

pub mod beacon;
pub mod demo;
pub mod runs;
pub mod token;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::checkpoint::CommitMode;
use crate::ingest::reading::Format;
use crate::network::Networks;
use crate::origin::Origins;
use crate::telemetry::LogFormat;
use beacon::BeaconPath;
use demo::DemoConfig;
use runs::{ImportConfig, RecountConfig};
use token::TokenCommand;

/// Live, trustworthy reading counts for online books.
#[derive(Debug, Parser)]
#[command(name = "pagetide", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; `serve` if nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// `pagetide` alone means `pagetide serve`.
    #[command(flatten)]
    pub serve: ServeConfig,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    /// Take clicks and serve streams.
    Serve(ServeConfig),
    /// Bring the schema of a database up to date, and end.
    Migrate(DatabaseConfig),
    /// Read clicks from a file or a pipe, and keep the place: a killed job goes on where it was.
    Consume(ConsumeConfig),
    /// Bring in logs of web servers, straight in the database: years of them, each line once.
    Import(ImportConfig),
    /// Count all clicks of a book's log again, too late ones included, while it goes on.
    Recount(RecountConfig),
    /// Make, list and revoke tokens, straight in the database.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show what it does, with a small book, readers, and buttons that break things. Nothing is kept.
    Demo(DemoConfig),
    /// Write the description of the interface to standard output.
    Openapi,
}

/// Which database.
#[derive(Clone, Debug, Args)]
pub struct DatabaseConfig {
    /// Postgres 14 or newer, as `postgres://user@host/database`; without it, one of its own is
    /// brought up in the data folder. Must reach Postgres directly, or through a pooler in session
    /// mode.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Where the embedded Postgres, the admin token and the spool are kept [default: the platform's data
    /// folder; as root /var/lib/pagetide]
    #[arg(long, env = "PAGETIDE_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// What is logged: error, warn, info, debug, trace, or a filter by module.
    #[arg(long, env = "PAGETIDE_LOG", default_value = "info")]
    pub log: String,
    /// How log lines look.
    #[arg(long, env = "PAGETIDE_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// What to read, and for which book.
#[derive(Clone, Debug, Args)]
pub struct ConsumeConfig {
    /// Which database: with the embedded one, that of the server which runs, or its own.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Id or slug of the book that the clicks are for; it must be there.
    #[arg(long)]
    pub book: String,
    /// Name of the job, under which its place in the source is kept. One process at a time may run
    /// it; another file needs another name.
    #[arg(long)]
    pub job: String,
    /// How the source is written. Of an access log, page views are counted: GET, status 2xx or 304,
    /// no static assets, no bots.
    #[arg(long, value_enum, default_value = "ndjson")]
    pub format: Format,
    /// Wait for what is appended to the file; the job ends on SIGTERM or SIGINT.
    #[arg(long)]
    pub follow: bool,
    /// What is kept, and so what a crash may do.
    #[arg(
        long,
        value_enum,
        default_value = "transactional",
        help_heading = "Advanced"
    )]
    pub commit: CommitMode,
    /// After how many lines the place is kept, where that is not done with each commit.
    #[arg(long, value_name = "LINES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Advanced")]
    pub checkpoint_every: u32,
    /// The source, one click a line; `-` is standard input, of which what was taken before is read
    /// over.
    pub file: PathBuf,
}

/// How to serve.
#[derive(Clone, Debug, Args)]
pub struct ServeConfig {
    /// Which database.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Address to listen on; port 0 picks one and prints it.
    #[arg(long, env = "PAGETIDE_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// The token that may do everything, at least 20 characters; one is made at the first start
    /// if there is none.
    #[arg(long, env = "PAGETIDE_ADMIN_TOKEN", hide_env_values = true)]
    pub admin_token: Option<String>,
    /// The address at which people reach this server, for links and snippets [default: the one that
    /// the dashboard was opened at]
    #[arg(long, env = "PAGETIDE_PUBLIC_URL", value_parser = public_url)]
    pub public_url: Option<String>,
    /// Origins whose pages may call, separated by commas, besides those that books list.
    #[arg(
        long,
        env = "PAGETIDE_ALLOWED_ORIGINS",
        default_value = "",
        hide_default_value = true
    )]
    pub allowed_origins: Origins,
    /// Networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, separated by
    /// commas [default: this machine, when it alone can connect]
    #[arg(long, env = "PAGETIDE_TRUSTED_PROXIES")]
    pub trusted_proxies: Option<Networks>,
    /// Networks whose clicks with a key are left out, separated by commas.
    #[arg(
        long,
        env = "PAGETIDE_IGNORE_IPS",
        default_value = "",
        hide_default_value = true
    )]
    pub ignore_ips: Networks,
    /// Most requests a second of each token; a burst of as many passes at once [default: no limit]
    #[arg(long, env = "PAGETIDE_RATE_LIMIT")]
    pub rate_limit: Option<NonZeroU32>,
    /// Where clicks wait while the database is out of reach.
    #[arg(long, env = "PAGETIDE_SPOOL", value_enum, default_value = "jsonl")]
    pub spool: SpoolKind,
    /// Most bytes of clicks that wait; above it, clients are told to come back.
    #[arg(long, env = "PAGETIDE_SPOOL_MAX_BYTES", default_value_t = 1 << 30)]
    pub spool_max_bytes: u64,
    /// Address at which anyone may read the metrics.
    #[arg(long, env = "PAGETIDE_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// What is seldom needed.
    #[command(flatten)]
    pub advanced: Advanced,
}

/// Where clicks wait while the database is out of reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SpoolKind {
    /// As lines of JSON in the folder `spool` of the data folder.
    Jsonl,
    /// Nowhere: clients are told to come back.
    Off,
}

/// What is seldom needed.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Advanced")]
pub struct Advanced {
    /// Most event streams at once.
    #[arg(long, env = "PAGETIDE_MAX_STREAMS", default_value_t = 50_000)]
    pub max_streams: usize,
    /// Most event streams at once that one token has open.
    #[arg(long, env = "PAGETIDE_MAX_STREAMS_PER_TOKEN", default_value_t = 25_000)]
    pub max_streams_per_token: usize,
    /// How long a client may take to send the head of a request, and to begin with its body, which
    /// then has to come at 4 KiB a second.
    #[arg(long, env = "PAGETIDE_RECEIVE_TIMEOUT_MS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(100..))]
    pub receive_timeout_ms: u64,
    /// Most bytes of bodies that are being received or wait to be read, over all connections; above
    /// it, clients are told to come back.
    #[arg(long, env = "PAGETIDE_BODIES_MAX_BYTES", default_value_t = 128 << 20, value_parser = clap::value_parser!(u32).range(1 << 20..))]
    pub bodies_max_bytes: u32,
    /// A stream on which nothing was sent for this long gets a heartbeat.
    #[arg(long, env = "PAGETIDE_HEARTBEAT_MS", default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub heartbeat_ms: u64,
    /// A stream is closed at 0.8 to 1.0 of this age [default: never]
    #[arg(long, env = "PAGETIDE_STREAM_MAX_AGE_MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub stream_max_age_ms: Option<u64>,
    /// How long a shutdown may take.
    #[arg(long, env = "PAGETIDE_DRAIN_MS", default_value_t = 10_000)]
    pub drain_ms: u64,
    /// How many write transactions run at once [default: the number of cores, 2 to 8]
    #[arg(long, env = "PAGETIDE_LANES", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub lanes: Option<u16>,
    /// How long a busy lane waits at most for as many clicks as its last transaction had.
    #[arg(long, env = "PAGETIDE_GATHER_MS", default_value_t = 3)]
    pub gather_ms: u64,
    /// Most clicks that wait in a lane; above it, clients are told to come back.
    #[arg(long, env = "PAGETIDE_QUEUE_CLICKS", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10_000..=100_000_000))]
    pub queue_clicks: u32,
    /// How often clicks and counts are looked for that their books keep no longer.
    #[arg(long, env = "PAGETIDE_RETENTION_EVERY_MS", default_value_t = 3_600_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub retention_every_ms: u64,
    /// Another path at which the beacon is served besides /beacon.js, for readers whose blockers know
    /// that one; it ends in .js.
    #[arg(
        long,
        env = "PAGETIDE_BEACON_PATH",
        default_value = BeaconPath::USUAL,
        hide_default_value = true
    )]
    pub beacon_path: BeaconPath,
    /// Origins whose pages may show the dashboard in a frame, separated by commas.
    #[arg(
        long,
        env = "PAGETIDE_FRAME_ANCESTORS",
        default_value = "",
        hide_default_value = true
    )]
    pub frame_ancestors: Origins,
    /// End when standard input does, so that a child does not outlive its parent.
    #[arg(long, hide = true)]
    pub end_with_stdin: bool,
}

impl Advanced {
    /// How many write transactions run at once.
    #[must_use]
    pub fn lanes(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        self.lanes.map_or(cores.clamp(2, 8), usize::from)
    }

    /// How long a client may take to send a request.
    #[must_use]
    pub fn receive_timeout(&self) -> Duration {
        Duration::from_millis(self.receive_timeout_ms)
    }

    /// How often clicks and counts are looked for that are kept no longer.
    #[must_use]
    pub fn retention_every(&self) -> Duration {
        Duration::from_millis(self.retention_every_ms)
    }

    /// How long a shutdown may take.
    #[must_use]
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

impl DatabaseConfig {
    /// Where the program keeps what is its own.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(default_data_dir)
    }
}

/// The platform's data folder: `XDG_DATA_HOME` (XDG base directories), `~/Library/Application
/// Support` on macOS, and `/var/lib` for root, who has no business keeping a service in a home.
fn default_data_dir() -> PathBuf {
    let env = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let home = env("HOME").unwrap_or_else(|| PathBuf::from("."));
    let folder = if crate::db::embedded::is_root() {
        PathBuf::from("/var/lib")
    } else if cfg!(target_os = "macos") {
        home.join("Library/Application Support")
    } else {
        env("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"))
    };
    folder.join("pagetide")
}

/// An address of pages, without the slash at its end.
fn public_url(text: &str) -> Result<String, String> {
    let plain = text.trim_end_matches('/');
    let rest = plain.strip_prefix("https://");
    let rest = rest.or_else(|| plain.strip_prefix("http://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(['?', '#', ' ', '"', '<']) => {
            Ok(plain.to_owned())
        }
        _ => Err("an address such as https://stats.example.org".to_owned()),
    }
}
