//! `pagetide demo`: a book, its readers, the dashboard, and buttons that break things.
//!
//! ```text
//! browser ──▶ stage (this process): the book with its beacon, the buttons
//!    └──────▶ proxy (this process, can be cut) ──▶ server (a child) ──▶ its Postgres
//! readers (this process) ─────────────────────────────▲
//! ```
//!
//! Everything that is kept lives in one temporary folder, which goes at the end. The child ends with
//! this process, however that ends, for then its standard input does.

mod browser;
mod child;
mod courier;
mod crowd;
mod director;
mod end;
mod folder;
mod proxy;
mod setup;

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::SignalKind;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{AppError, asked_to_end, catch};
use crate::access::token;
use crate::config::demo::DemoConfig;
use crate::db::embedded::EmbeddedError;
use crate::demo::book::SLUG;
use crate::demo::show::Board;
use crate::demo::tally::Tally;
use crate::http::serve::serve;
use crate::http::stage::{self, Stage};
use crate::telemetry::{self, LogFormat};
use child::Settings;
use courier::Courier;
use crowd::Crowd;
use director::Director;
use folder::Folder;
use setup::set_up;

/// The port that is tried first.
const USUAL_PORT: u16 = 8080;

/// How long a client of the stage may take to send a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most deeds that wait to be done.
const DEEDS: usize = 16;

/// Why the demo cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No address can be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The folder cannot be made.
    #[error("the demo's folder {0} cannot be made")]
    Folder(PathBuf, #[source] io::Error),
    /// The server cannot be started, or watched.
    #[error("the server cannot be started")]
    Start(#[source] io::Error),
    /// The server ended by itself.
    #[error("the server ended by itself ({status}); its log ends so:\n{log}")]
    ServerEnded {
        /// How.
        status: String,
        /// Its last lines.
        log: String,
    },
    /// The server refused what it should do.
    #[error("the server answered {1} to {0}")]
    Refused(String, reqwest::StatusCode),
    /// The server answered something else than it should.
    #[error("the server's answer makes no sense")]
    Answer(#[from] serde_json::Error),
    /// Requests cannot be made.
    #[error("no requests can be made")]
    Client(#[from] reqwest::Error),
    /// Its Postgres cannot be killed or found.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The database cannot be asked.
    #[error("the database cannot be asked")]
    Database(#[from] sqlx::Error),
    /// A mistake in this program.
    #[error("a part of the demo broke")]
    Task(#[from] JoinError),
    /// What it was done for is over.
    #[error("the demo is over")]
    Over,
}

/// Shows the demo until SIGTERM, SIGINT or SIGHUP.
///
/// # Errors
/// Something that the show cannot do without cannot be had, or broke.
pub async fn demo(config: DemoConfig) -> Result<(), AppError> {
    telemetry::start_logging("warn", LogFormat::Text);
    let mut signals = (
        catch(SignalKind::terminate())?,
        catch(SignalKind::interrupt())?,
    );
    let mut hangup = catch(SignalKind::hangup())?;
    let listener = listen(config.listen).await?;
    let folder = Folder::make()?;
    let (settings, ends) = prepare(&listener, &folder)?;
    let stop = CancellationToken::new();
    let (server, running) = watch::channel(None);
    let mut power = tokio::spawn(child::power(
        settings.clone(),
        server,
        Arc::clone(&ends.plug),
        ends.board.clone(),
        stop.clone(),
    ));
    let outcome = tokio::select! {
        () = asked_to_end(&mut signals) => Ok(()),
        _ = hangup.recv() => Ok(()),
        shown = Box::pin(show(config, listener, settings, ends, running)) => shown,
        powered = &mut power => return Ok(joined(powered)?),
    };
    stop.cancel();
    let ended = joined(power.await);
    drop(folder);
    // Where both failed, it was the server's end that ended the show.
    Ok(ended.and(outcome)?)
}

/// What the server's end and the show's end share.
struct Ends {
    plug: Arc<Notify>,
    board: Board,
}

fn prepare(listener: &TcpListener, folder: &Folder) -> Result<(Settings, Ends), DemoError> {
    let stage = listener.local_addr().map_err(DemoError::Start)?;
    let settings = Settings {
        program: std::env::current_exe().map_err(DemoError::Start)?,
        data_dir: folder.path().join("data"),
        log: folder.path().join("server.log"),
        admin_token: token::generate(),
        stage: format!("http://{stage}"),
    };
    let ends = Ends {
        plug: Arc::default(),
        board: Board::new(),
    };
    Ok((settings, ends))
}

fn joined(ended: Result<Result<(), DemoError>, JoinError>) -> Result<(), DemoError> {
    ended.unwrap_or_else(|panicked| Err(DemoError::Task(panicked)))
}

/// Puts everything before the reader's eyes, and does what the buttons ask for; ends only if
/// something breaks. Dropped, it takes everything with it but the server.
async fn show(
    config: DemoConfig,
    listener: TcpListener,
    settings: Settings,
    Ends { plug, board }: Ends,
    server: watch::Receiver<Option<SocketAddr>>,
) -> Result<(), DemoError> {
    say("starting a server and its Postgres …");
    let tally: Arc<Tally> = Arc::default();
    let admin_token = settings.admin_token.clone();
    let courier = Courier::new(server.clone(), admin_token, Arc::clone(&tally))?;
    let tokens = set_up(&courier).await?;

    let mut tasks = JoinSet::new();
    let line = bind(SocketAddr::from((listener_ip(&listener)?, 0))).await?;
    let reached = line.local_addr().map_err(DemoError::Start)?;
    let cut = watch::Sender::new(false);
    tasks.spawn(proxy::carry(line, server, cut.subscribe()));

    let (sender, deeds) = mpsc::channel(DEEDS);
    let stage = Stage {
        origin: settings.stage.clone(),
        server: format!("http://{reached}"),
        dashboard: format!("http://{reached}/share/{SLUG}#{}", tokens.read),
        book: SLUG,
        key: tokens.key,
        show: board.watch(),
        deeds: sender,
        tally: Arc::clone(&tally),
    };
    announce(&stage, &settings);
    if !config.no_open {
        browser::open(&stage.origin);
    }
    let serving = stage::service(stage);
    tasks.spawn(serve(listener, serving, PATIENCE, CancellationToken::new()));

    let courier = Arc::new(courier);
    let crowd = Crowd {
        courier: Arc::clone(&courier),
        tally: Arc::clone(&tally),
        board: board.clone(),
        token: tokens.write,
        speed: config.speed,
        seed: config.seed,
        leave: CancellationToken::new(),
    };
    let director = Director {
        config,
        data_dir: settings.data_dir,
        plug,
        cut,
        crowd,
        lid_opens: None,
        trips: 0,
        settled: false,
    };
    director.direct(deeds).await
}

fn announce(stage: &Stage, settings: &Settings) {
    say(&format!("dashboard: {}", stage.dashboard));
    say(&format!("server log: {}", settings.log.display()));
    say("open this in a browser; Ctrl-C ends it all, and nothing of it stays");
    say(&format!("listening on {}", stage.origin));
}

/// On standard output, as long as somebody reads it.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// The address that was asked for; else the usual one, or any.
async fn listen(asked: Option<SocketAddr>) -> Result<TcpListener, DemoError> {
    if let Some(asked) = asked {
        return bind(asked).await;
    }
    let at = |port| bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match at(USUAL_PORT).await {
        Ok(listener) => Ok(listener),
        Err(_) => at(0).await,
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, DemoError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| DemoError::Listen(address, error))
}

fn listener_ip(listener: &TcpListener) -> Result<IpAddr, DemoError> {
    let address = listener.local_addr().map_err(DemoError::Start)?;
    Ok(address.ip())
}
