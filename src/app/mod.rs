//! What is started, in which order; what is stopped, in which order.
//!
//! Logs, signals, the address, the database, the schema, the admin token, the [`service`]; at the
//! end the service, then the database.

mod consume;
mod demo;
mod first_start;
mod parent;
mod runs;
mod service;
mod spool;
mod token;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::access::token::MIN_CHOSEN_LENGTH;
use crate::config::{DatabaseConfig, ServeConfig, SpoolKind};
use crate::db::embedded::{Embedded, EmbeddedError};
use crate::db::{self, DatabaseError};
use crate::job::JobError;
use crate::telemetry;

pub use consume::consume;
pub use demo::{DemoError, demo};
pub use runs::{import, recount};
use service::Service;
use spool::SpoolError;
use token::TokenError;
pub use token::token;

/// Connections for everything but the write path and long readings.
const READ_CONNECTIONS: u32 = 10;

/// Connections for snapshots, counts and CSV.
const LONG_READ_CONNECTIONS: u32 = 4;

/// Why the program cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// `DATABASE_URL` is malformed.
    #[error("DATABASE_URL is no Postgres address")]
    DatabaseUrl(#[source] sqlx::Error),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The embedded Postgres cannot be brought up.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The admin token cannot be stored.
    #[error("the admin token could not be stored")]
    AdminToken(#[from] sqlx::Error),
    /// The admin token cannot be written to its file.
    #[error("the admin token could not be written to {0}")]
    AdminTokenFile(PathBuf, #[source] io::Error),
    /// The admin token that was configured is too short.
    #[error("PAGETIDE_ADMIN_TOKEN has fewer than {} characters", MIN_CHOSEN_LENGTH)]
    AdminTokenTooShort,
    /// The spool cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// It is not known which database this is.
    #[error("the database does not say which one it is")]
    Identity(#[source] sqlx::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The operating system does not let signals be caught.
    #[error("signals cannot be caught")]
    Signals(#[source] io::Error),
    /// Metrics cannot be collected.
    #[error("metrics cannot be collected")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// The job ended before its source.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A run ended before it had done all.
    #[error(transparent)]
    Run(#[from] runs::CommandError),
    /// The demo broke.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A token could not be made, listed or revoked.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A mistake in this program; the log says more.
    #[error("a task that must run has ended")]
    TaskEnded,
    /// The embedded Postgres ended while it was needed.
    #[error("the embedded Postgres ended by itself ({0}); its log is in the data folder")]
    PostgresEnded(String),
}

/// The database, and the server behind it if it is ours.
struct Database {
    options: PgConnectOptions,
    embedded: Option<Embedded>,
    data_dir: PathBuf,
}

async fn open_database(config: &DatabaseConfig) -> Result<Database, AppError> {
    let data_dir = config.data_dir();
    if let Some(url) = &config.database_url {
        return Ok(Database {
            options: PgConnectOptions::from_str(url).map_err(AppError::DatabaseUrl)?,
            embedded: None,
            data_dir,
        });
    }
    let embedded = Embedded::start(&data_dir).await?;
    Ok(Database {
        options: embedded.connect_options(),
        embedded: Some(embedded),
        data_dir,
    })
}

/// The database for a command: with the embedded one, that of the server which runs, or its own. Its
/// schema is brought up to date.
async fn join_database(config: &DatabaseConfig) -> Result<Database, AppError> {
    let database = match open_database(config).await {
        // A server has it, so it is there.
        Err(AppError::Embedded(EmbeddedError::Locked { folder, pid })) => {
            match Embedded::running(&folder)? {
                Some(options) => Database {
                    options,
                    embedded: None,
                    data_dir: folder,
                },
                None => return Err(EmbeddedError::Locked { folder, pid }.into()),
            }
        }
        opened => opened?,
    };
    db::migrate(&database.options).await?;
    Ok(database)
}

/// Brings the schema of a database up to date.
///
/// # Errors
/// The database cannot be used.
pub async fn migrate(config: &DatabaseConfig) -> Result<(), AppError> {
    telemetry::start_logging(&config.log, config.log_format);
    let database = open_database(config).await?;
    let migrated = db::migrate(&database.options).await;
    if let Some(embedded) = database.embedded {
        embedded.stop().await?;
    }
    Ok(migrated?)
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Something that the program cannot do without cannot be had.
pub async fn serve(config: ServeConfig) -> Result<(), AppError> {
    telemetry::start_logging(&config.database.log, config.database.log_format);
    let metrics = telemetry::start_metrics()?;
    let mut signals = (
        catch(SignalKind::terminate())?,
        catch(SignalKind::interrupt())?,
    );
    let chosen = config.admin_token.as_deref();
    if chosen.is_some_and(|chosen| chosen.chars().count() < MIN_CHOSEN_LENGTH) {
        return Err(AppError::AdminTokenTooShort);
    }
    // Before the database: an address in use is the likeliest mistake, and the cheapest to find.
    let listener = listen(config.listen).await?;
    let address = address_of(&listener, config.listen)?;
    let (metrics_listener, metrics_address) = match config.metrics_listen {
        Some(asked) => {
            let listener = listen(asked).await?;
            let address = address_of(&listener, asked)?;
            (Some(listener), Some(address))
        }
        None => (None, None),
    };
    let mut alone = parent::gone(config.advanced.end_with_stdin);
    let prepared = tokio::select! {
        prepared = prepare(&config) => prepared?,
        () = asked_to_end(&mut signals) => return Ok(()),
        () = &mut alone => return Ok(()),
    };
    let (mut database, pool, new_admin) = prepared;
    let store = match config.spool {
        SpoolKind::Jsonl => {
            let identity = db::identity(&pool).await.map_err(AppError::Identity)?;
            let bytes = config.spool_max_bytes;
            Some(spool::open(&database.data_dir, bytes, identity)?)
        }
        SpoolKind::Off => None,
    };
    let long_reads = db::read_pool(&database.options, LONG_READ_CONNECTIONS);

    let service = Service::start(
        &config,
        &database.options,
        (pool, long_reads),
        metrics,
        (listener, metrics_listener),
        store,
    )
    .await;
    let (embedded, new_admin) = (database.embedded.as_ref(), new_admin.as_ref());
    first_start::announce(address, metrics_address, embedded, new_admin);

    let ended = tokio::select! {
        () = asked_to_end(&mut signals) => Ok(()),
        () = &mut alone => Ok(()),
        () = service.failed() => Err(AppError::TaskEnded),
        status = embedded_end(&mut database.embedded) => Err(AppError::PostgresEnded(status)),
    };
    tracing::info!("shutting down");
    service.shut_down(config.advanced.drain()).await;
    if let Some(embedded) = database.embedded {
        embedded.stop().await?;
    }
    ended
}

/// Brings the database up and its schema up to date.
async fn prepare(
    config: &ServeConfig,
) -> Result<(Database, PgPool, Option<first_start::NewAdmin>), AppError> {
    let database = open_database(&config.database).await?;
    db::migrate(&database.options).await?;
    let pool = db::read_pool(&database.options, READ_CONNECTIONS);
    let chosen = config.admin_token.as_deref();
    let new_admin = first_start::make_admin(&pool, chosen, &database).await?;
    Ok((database, pool, new_admin))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, AppError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| AppError::Listen(address, error))
}

/// Where `listener` listens, which was `asked` to.
fn address_of(listener: &TcpListener, asked: SocketAddr) -> Result<SocketAddr, AppError> {
    let address = listener.local_addr();
    address.map_err(|error| AppError::Listen(asked, error))
}

fn catch(kind: SignalKind) -> Result<Signal, AppError> {
    signal(kind).map_err(AppError::Signals)
}

async fn asked_to_end((terminate, interrupt): &mut (Signal, Signal)) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

async fn embedded_end(embedded: &mut Option<Embedded>) -> String {
    match embedded {
        None => std::future::pending().await,
        Some(embedded) => match embedded.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => telemetry::chain(&error),
        },
    }
}
