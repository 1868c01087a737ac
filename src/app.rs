//! What is started, in which order; what is stopped, in which order.
//!
//! One [`TaskTracker`] for every task; three tokens end them. `drain` begins the shutdown: nothing
//! is accepted any more, and streams say goodbye. `hurry` is cancelled when the requests are
//! answered, or when there is no more time: lanes stop waiting and end. `stop` ends what only
//! serves streams.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::access::ended::EndedTokens;
use crate::access::scope::Scope;
use crate::access::token::{self, Token, Tokens};
use crate::book::directory::Directory;
use crate::config::{DatabaseConfig, ServeConfig};
use crate::db::embedded::{Embedded, EmbeddedError};
use crate::db::{self, DatabaseError};
use crate::http;
use crate::http::state::{AppState, Streams};
use crate::ingest::lane::{LaneConfig, Lanes};
use crate::stream::announce;
use crate::stream::hub::Hub;
use crate::telemetry;
use crate::time::Timestamp;

/// Connections for everything but the write path.
const READ_CONNECTIONS: u32 = 10;

/// What is kept back of the grace time for what comes after the last answer.
const LAST_STEPS: Duration = Duration::from_millis(1000);

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
    #[error(
        "PAGETIDE_ADMIN_TOKEN has fewer than {} characters",
        token::MIN_CHOSEN_LENGTH
    )]
    AdminTokenTooShort,
    /// The address cannot be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// Metrics or signals cannot be set up.
    #[error("{0} cannot be set up")]
    Setup(
        &'static str,
        #[source] Box<dyn std::error::Error + Send + Sync>,
    ),
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
    let setup =
        |what| move |error: Box<dyn std::error::Error + Send + Sync>| AppError::Setup(what, error);
    let metrics = telemetry::start_metrics().map_err(|e| setup("metrics")(e.into()))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| setup("signals")(e.into()))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| setup("signals")(e.into()))?;
    let chosen = config.admin_token.as_deref();
    if chosen.is_some_and(|chosen| chosen.chars().count() < token::MIN_CHOSEN_LENGTH) {
        return Err(AppError::AdminTokenTooShort);
    }
    // Before the database: an address in use is the likeliest mistake, and the cheapest to find.
    let listener = listen(config.listen).await?;
    let metrics_listener = match config.metrics_listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };

    let mut database = open_database(&config.database).await?;
    db::migrate(&database.options).await?;
    let pool = db::read_pool(&database.options, READ_CONNECTIONS);
    let new_admin = first_admin_token(&pool, chosen, &database).await?;

    let tasks = TaskTracker::new();
    let (drain, hurry, stop) =
        <(CancellationToken, CancellationToken, CancellationToken)>::default();
    let hub = Arc::new(Hub::new(pool.clone()));
    tasks.spawn(Arc::clone(&hub).run(stop.clone()));
    tasks.spawn(announce::announce(
        Arc::clone(&hub),
        database.options.clone(),
        stop.clone(),
    ));
    tasks.spawn(announce::listen(Arc::clone(&hub), stop.clone()));
    let lane_config = LaneConfig {
        lanes: config.advanced.lanes(),
        gather: Duration::from_millis(config.advanced.gather_ms),
        queue_clicks: usize::try_from(config.advanced.queue_clicks).unwrap_or(usize::MAX),
    };
    let lanes = Lanes::start(&lane_config, &database.options, &hub, &tasks, &hurry);
    let ended_tokens = Arc::new(EndedTokens::default());
    tasks.spawn(Arc::clone(&ended_tokens).run(pool.clone(), stop.clone()));
    let purge = Arc::new(Notify::new());
    tasks.spawn(purge_deleted(
        pool.clone(),
        Arc::clone(&purge),
        stop.clone(),
    ));
    let grace = config.advanced.drain();
    let state = AppState {
        directory: Arc::new(Directory::new(pool.clone())),
        tokens: Arc::new(Tokens::new(pool.clone(), chosen)),
        ended_tokens,
        lanes: Arc::new(lanes),
        hub,
        streams: Arc::new(Streams {
            heartbeat: Duration::from_millis(config.advanced.heartbeat_ms),
            max_age: config.advanced.stream_max_age_ms.map(Duration::from_millis),
            drain_spread: grace / 2,
            drain: drain.clone(),
            most: config.advanced.max_streams,
            open: 0.into(),
        }),
        metrics,
        purge,
        pool: pool.clone(),
    };
    let address = listener
        .local_addr()
        .map_err(|e| setup("address")(e.into()))?;
    if let Some(metrics_listener) = metrics_listener {
        let router = http::metrics_router(state.clone());
        tasks.spawn(http::serve::serve(metrics_listener, router, stop.clone()));
    }
    let serving = tokio::spawn(http::serve::serve(
        listener,
        http::router(state),
        drain.clone(),
    ));
    announce_start(address, database.embedded.as_ref(), new_admin.as_ref());

    let ended = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        status = embedded_end(&mut database.embedded) => Err(AppError::PostgresEnded(status)),
    };
    tracing::info!("shutting down");
    let deadline = tokio::time::Instant::now() + grace;
    drain.cancel();
    let answered = deadline - LAST_STEPS.min(grace / 2);
    if tokio::time::timeout_at(answered, serving).await.is_err() {
        tracing::warn!("connections were still open at the end of the grace time");
    }
    hurry.cancel();
    stop.cancel();
    tasks.close();
    if tokio::time::timeout_at(deadline, tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!("tasks were still running at the end of the grace time");
    }
    // A connection that is still in use must not hold the process up.
    let _ = tokio::time::timeout(LAST_STEPS, pool.close()).await;
    if let Some(embedded) = database.embedded {
        embedded.stop().await?;
    }
    ended
}

async fn listen(address: SocketAddr) -> Result<TcpListener, AppError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| AppError::Listen(address, error))
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

/// Removes the rows of deleted books, at the start and whenever `purge` rings.
async fn purge_deleted(pool: PgPool, purge: Arc<Notify>, stop: CancellationToken) {
    loop {
        let purged = tokio::select! {
            () = stop.cancelled() => return,
            purged = crate::book::table::purge(&pool) => purged,
        };
        if let Err(error) = purged {
            tracing::warn!(error = %telemetry::chain(&error), "rows of deleted books are left; they go later");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = purge.notified() => {}
        }
    }
}

/// An admin token that was made at this start.
struct NewAdmin {
    secret: String,
    file: Option<PathBuf>,
}

/// Makes the admin token of a database that has none, unless one was chosen. With the embedded
/// database it is kept in a file too.
async fn first_admin_token(
    pool: &PgPool,
    chosen: Option<&str>,
    database: &Database,
) -> Result<Option<NewAdmin>, AppError> {
    if chosen.is_some() || token::admin_exists(pool).await? {
        return Ok(None);
    }
    let secret = token::generate();
    let file = match &database.embedded {
        None => None,
        Some(_) => {
            let file = database.data_dir.join("admin-token");
            write_private(&file, &secret)
                .map_err(|error| AppError::AdminTokenFile(file.clone(), error))?;
            Some(file)
        }
    };
    let token = Token {
        id: Uuid::now_v7(),
        books: None,
        scopes: vec![Scope::Admin],
        label: Some("made at the first start".to_owned()),
        expires_at: None,
    };
    token::insert(pool, &token, &secret, Timestamp::now()).await?;
    Ok(Some(NewAdmin { secret, file }))
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    // One that was there already keeps its mode otherwise.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

/// Tells where the service is; at the first start, how to begin.
#[allow(clippy::print_stdout, reason = "this is what the command says")]
fn announce_start(address: SocketAddr, embedded: Option<&Embedded>, admin: Option<&NewAdmin>) {
    let url = format!("http://{address}");
    if let Some(embedded) = embedded {
        println!("database: {}", embedded.describe());
    }
    println!("listening on {url}");
    let Some(NewAdmin { secret, file }) = admin else {
        return;
    };
    match file {
        Some(file) => println!(
            "admin token, shown this once and kept in {}:",
            file.display()
        ),
        None => println!("admin token, shown this once:"),
    }
    println!();
    println!("export PAGETIDE=\"{url}\" TOKEN=\"{secret}\"");
    println!();
    println!("make a book, post a click, follow the stream:");
    println!();
    for line in FIRST_STEPS {
        println!("{line}");
    }
    println!();
}

/// Lines for a shell that has `PAGETIDE` and `TOKEN`; the README shows the same.
const FIRST_STEPS: [&str; 3] = [
    r#"curl -X PUT "$PAGETIDE/v1/books/my-book" -H "authorization: Bearer $TOKEN" -H "content-type: application/json" -d '{"title":"My book"}'"#,
    r#"curl "$PAGETIDE/v1/books/my-book/clicks" -H "authorization: Bearer $TOKEN" -H "content-type: application/json" -d '{"page":"/ch01.html"}'"#,
    r#"curl -N "$PAGETIDE/v1/books/my-book/events?snapshot=1" -H "authorization: Bearer $TOKEN""#,
];
