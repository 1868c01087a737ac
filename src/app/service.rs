//! Everything that runs between start and shutdown.
//!
//! One [`TaskTracker`] for every task; three tokens end them. `drain` begins the shutdown: nothing
//! is accepted any more, and streams say goodbye. `hurry` is cancelled when the requests are
//! answered, or when there is no more time: lanes stop waiting, and end after what they have
//! queued. `stop` ends what only serves streams.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::ended::Ended;
use crate::access::session::{self, Sessions};
use crate::access::token::Tokens;
use crate::book;
use crate::book::directory::Directory;
use crate::config::ServeConfig;
use crate::counts::public::{FRESH_FOR, PublicCounts};
use crate::http::aside::Aside;
use crate::http::body::Receiving;
use crate::http::client::Proxies;
use crate::http::rate::Rates;
use crate::http::serve::serve;
use crate::http::state::{AppState, Shared, Streams};
use crate::http::{metrics_service, service};
use crate::ingest::idle;
use crate::ingest::lane::{LaneConfig, Lanes};
use crate::ingest::retention;
use crate::ingest::retry::Retries;
use crate::ingest::spooled::SpooledClick;
use crate::ingest::tier::{Spool, Tier};
use crate::runs::Runs;
use crate::spool::disk::DiskStore;
use crate::stream::announce;
use crate::stream::hub::Hub;
use crate::stream::stall::Stalls;
use crate::telemetry;
use crate::time::Timestamp;
use crate::visitor::Visitors;

/// What is kept back of the grace time for what comes after the last answer.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// The running service.
pub(super) struct Service {
    pools: [PgPool; 2],
    serving: JoinHandle<()>,
    vital: Vital,
    drain: CancellationToken,
    hurry: CancellationToken,
}

/// The tasks without which the process is of no use: a stopped one ends the process, so that
/// whoever looks after it starts it anew, rather than have it look well and do nothing.
struct Vital {
    tasks: TaskTracker,
    stop: CancellationToken,
    failed: CancellationToken,
}

impl Vital {
    fn new() -> Self {
        Self {
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            failed: CancellationToken::new(),
        }
    }

    /// Runs `task`, which ends when `stop` is cancelled and not before.
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let (stop, failed) = (self.stop.clone(), self.failed.clone());
        self.tasks.spawn(async move {
            let ended = AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() || !stop.is_cancelled() {
                tracing::error!(task = name, "a task that must run has ended");
                failed.cancel();
            }
        });
    }
}

impl Service {
    /// Starts what reads and writes, then what listens.
    pub(super) async fn start(
        config: &ServeConfig,
        database: &PgConnectOptions,
        (pool, long_reads): (PgPool, PgPool),
        metrics: PrometheusHandle,
        (listener, metrics_listener): (TcpListener, Option<TcpListener>),
        store: Option<DiskStore<SpooledClick>>,
    ) -> Self {
        let vital = Vital::new();
        let (drain, hurry): (CancellationToken, CancellationToken) = Default::default();
        let hub = start_streams((&pool, &long_reads), database, &vital);
        let streams = Arc::new(streams(config, &drain));
        let access = start_access(config, &pool, streams.heartbeat, &vital);
        let (tokens, sessions, ended) = access;
        let stalls = Arc::new(Stalls::default());
        vital.spawn("stalls", Arc::clone(&stalls).run(vital.stop.clone()));
        let visitors = Arc::new(Visitors::new(pool.clone()));
        let forgetting = Arc::clone(&visitors).run(vital.stop.clone());
        vital.spawn("visitors", forgetting);
        let rates = Arc::new(Rates::new(config.rate_limit));
        vital.spawn("rates", Arc::clone(&rates).run(vital.stop.clone()));
        let receive_timeout = config.advanced.receive_timeout();
        let purge = Arc::new(Notify::new());
        let purging = purge_deleted(pool.clone(), Arc::clone(&purge), vital.stop.clone());
        vital.spawn("purge", purging);
        let lane_config = lane_config(config);
        let lanes = Lanes::start(&lane_config, database, &hub, &vital.tasks, &hurry);
        let lanes = Arc::new(lanes);
        let idling = idle::run(pool.clone(), Arc::clone(&lanes), vital.stop.clone());
        vital.spawn("idleness", idling);
        let directory = Arc::new(Directory::new(pool.clone()));
        let runs = Arc::new(Runs::new(
            pool.clone(),
            database.clone(),
            Arc::clone(&lanes),
            Arc::clone(&directory),
            drain.clone(),
        ));
        let tasks = vital.tasks.clone();
        vital.spawn("runs", keep_runs(Arc::clone(&runs), vital.stop.clone()));
        let every = config.advanced.retention_every();
        let sweeping = retention::run(pool.clone(), database.clone(), every, vital.stop.clone());
        vital.spawn("retention", sweeping);
        let spool = match store {
            Some(store) => {
                let spool = Spool::open(store, Arc::clone(&hub), lane_config.queue_clicks).await;
                let spool = Arc::new(spool);
                let drain = Arc::clone(&spool).drain(Arc::clone(&lanes), vital.stop.clone());
                vital.spawn("drain", drain);
                Some(spool)
            }
            None => None,
        };
        let public_pools = (pool.clone(), long_reads.clone());
        let state = AppState::new(Shared {
            tier: Arc::new(Tier::new(Arc::clone(&lanes), spool)),
            directory,
            public_counts: PublicCounts::new(public_pools, tasks.clone(), FRESH_FOR),
            runs,
            tasks,
            tokens,
            sessions,
            ended,
            lanes,
            hub,
            streams,
            stalls,
            metrics,
            origins: config.allowed_origins.clone(),
            beacon_path: config.advanced.beacon_path.clone(),
            proxies: Proxies::new(config.trusted_proxies.clone(), config.listen),
            visitors,
            rates,
            receiving: Receiving::new(receive_timeout, config.advanced.bodies_max_bytes),
            ignored: config.ignore_ips.clone(),
            public_url: config.public_url.clone(),
            frame_ancestors: config.advanced.frame_ancestors.clone(),
            aside: Aside::default(),
            purge,
            pool: pool.clone(),
            long_reads: long_reads.clone(),
        });
        if let Some(metrics_listener) = metrics_listener {
            let service = metrics_service(state.clone());
            let stop = vital.stop.clone();
            let serving = serve(metrics_listener, service, receive_timeout, stop);
            vital.spawn("metrics", serving);
        }
        let serving = tokio::spawn(serve(
            listener,
            service(state),
            receive_timeout,
            drain.clone(),
        ));
        Self {
            pools: [pool, long_reads],
            serving,
            vital,
            drain,
            hurry,
        }
    }

    /// Returns when a task has ended without which the process is of no use.
    pub(super) async fn failed(&self) {
        self.vital.failed.cancelled().await;
    }

    /// Stops listening, finishes what was received, and ends within `grace`.
    ///
    /// Nearly all of it is for what is being done. Then lanes stop waiting, so that what could not
    /// be committed is answered all the same; then connections that are still open are cut.
    pub(super) async fn shut_down(mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        let last = LAST_STEPS.min(grace / 4);
        self.drain.cancel();
        let finished = timeout_at(deadline - last, &mut self.serving).await;
        self.hurry.cancel();
        if finished.is_err() {
            tracing::warn!("requests were still unanswered at the end of the grace time");
            if timeout_at(deadline - last / 2, &mut self.serving)
                .await
                .is_err()
            {
                self.serving.abort();
            }
        }
        let Vital { tasks, stop, .. } = self.vital;
        stop.cancel();
        tasks.close();
        if timeout_at(deadline - last / 4, tasks.wait()).await.is_err() {
            tracing::warn!("tasks were still running at the end of the grace time");
        }
        // A connection that is still in use must not hold the process up.
        let closed = join_all(self.pools.iter().map(PgPool::close));
        if timeout_at(deadline - last / 8, closed).await.is_err() {
            tracing::warn!("database connections were still in use at the end");
        }
    }
}

/// Looks after runs until the shutdown begins, and then waits for its end as the others do.
async fn keep_runs(runs: Arc<Runs>, stop: CancellationToken) {
    Box::pin(runs.keep()).await;
    stop.cancelled().await;
}

/// The hub, and what tells it of new frames.
fn start_streams(
    (pool, long_reads): (&PgPool, &PgPool),
    database: &PgConnectOptions,
    vital: &Vital,
) -> Arc<Hub> {
    let stop = || vital.stop.clone();
    let hub = Arc::new(Hub::new(pool.clone(), long_reads.clone()));
    vital.spawn("hub", Arc::clone(&hub).run(stop()));
    let announcing = announce::announce(Arc::clone(&hub), database.clone(), stop());
    vital.spawn("announcing", announcing);
    vital.spawn("listening", announce::listen(Arc::clone(&hub), stop()));
    hub
}

/// What knows tokens and sessions, and what looks after those that end.
fn start_access(
    config: &ServeConfig,
    pool: &PgPool,
    heartbeat: Duration,
    vital: &Vital,
) -> (Arc<Tokens>, Arc<Sessions>, Arc<Ended>) {
    let admin = config.admin_token.as_deref();
    let tokens = Arc::new(Tokens::new(pool.clone(), admin));
    let sessions = Arc::new(Sessions::new(pool.clone(), admin));
    let ended = Arc::new(Ended::new(heartbeat));
    let forget = {
        let (tokens, sessions) = (Arc::clone(&tokens), Arc::clone(&sessions));
        move || {
            tokens.forget_all();
            sessions.forget_all();
        }
    };
    let looking = Arc::clone(&ended).run(pool.clone(), forget, vital.stop.clone());
    vital.spawn("ended tokens and sessions", looking);
    let pruning = prune_sessions(pool.clone(), vital.stop.clone());
    vital.spawn("expired sessions", pruning);
    (tokens, sessions, ended)
}

fn lane_config(config: &ServeConfig) -> LaneConfig {
    LaneConfig {
        lanes: config.advanced.lanes(),
        gather: Duration::from_millis(config.advanced.gather_ms),
        queue_clicks: usize::try_from(config.advanced.queue_clicks).unwrap_or(usize::MAX),
        retries: Retries::default(),
    }
}

fn streams(config: &ServeConfig, drain: &CancellationToken) -> Streams {
    let advanced = &config.advanced;
    Streams {
        heartbeat: Duration::from_millis(advanced.heartbeat_ms),
        max_age: advanced.stream_max_age_ms.map(Duration::from_millis),
        drain_spread: advanced.drain() / 2,
        drain: drain.clone(),
        most: advanced.max_streams,
        open: 0.into(),
        most_per_token: advanced.max_streams_per_token,
        per_token: Mutex::default(),
    }
}

/// How often rows of deleted books are looked for that nobody rang for.
const PURGE_EVERY: Duration = Duration::from_mins(10);

/// Removes the rows of deleted books, at the start, whenever `purge` rings, and every now and then.
async fn purge_deleted(pool: PgPool, purge: Arc<Notify>, stop: CancellationToken) {
    loop {
        let purged = tokio::select! {
            () = stop.cancelled() => return,
            purged = book::table::purge(&pool) => purged,
        };
        if let Err(error) = purged {
            tracing::warn!(error = %telemetry::chain(&error), "rows of deleted books are left; they go later");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = purge.notified() => {}
            () = tokio::time::sleep(PURGE_EVERY) => {}
        }
    }
}

/// How often expired sessions are removed. They hold no more from the moment on at which they expire.
const PRUNE_SESSIONS_EVERY: Duration = Duration::from_mins(1);

/// Removes expired sessions, at the start and every now and then.
async fn prune_sessions(pool: PgPool, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(PRUNE_SESSIONS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let pruned = tokio::select! {
            () = stop.cancelled() => return,
            pruned = session::prune(&pool, Timestamp::now()) => pruned,
        };
        if let Err(error) = pruned {
            tracing::warn!(error = %telemetry::chain(&error), "expired sessions are left; they go later");
        }
    }
}
