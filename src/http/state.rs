//! What handlers share.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::aside::Aside;
use super::body::Receiving;
use super::client::Proxies;
use super::rate::Rates;
use crate::access::ended::Ended;
use crate::access::session::Sessions;
use crate::access::token::Tokens;
use crate::book::directory::Directory;
use crate::config::beacon::BeaconPath;
use crate::counts::public::PublicCounts;
use crate::ingest::lane::Lanes;
use crate::ingest::tier::Tier;
use crate::network::Networks;
use crate::origin::Origins;
use crate::runs::Runs;
use crate::stream::hub::Hub;
use crate::stream::stall::Stalls;
use crate::telemetry;
use crate::visitor::Visitors;

/// What handlers share. Each request takes a share of its own, several times.
#[derive(Clone)]
pub(crate) struct AppState(Arc<Shared>);

impl AppState {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// What handlers share, one by one.
pub(crate) struct Shared {
    pub(crate) pool: PgPool,
    /// For readings that may take long, so that they do not keep others from the database.
    pub(crate) long_reads: PgPool,
    pub(crate) directory: Arc<Directory>,
    /// For anyone.
    pub(crate) public_counts: PublicCounts,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) ended: Arc<Ended>,
    /// For commands.
    pub(crate) lanes: Arc<Lanes>,
    /// For clicks.
    pub(crate) tier: Arc<Tier>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) runs: Arc<Runs>,
    /// What goes on after its request is gone.
    pub(crate) tasks: TaskTracker,
    pub(crate) streams: Arc<Streams>,
    pub(crate) stalls: Arc<Stalls>,
    pub(crate) metrics: PrometheusHandle,
    /// Whose pages may call.
    pub(crate) origins: Origins,
    pub(crate) proxies: Proxies,
    /// Where the beacon is served, besides its usual address.
    pub(crate) beacon_path: BeaconPath,
    pub(crate) rates: Arc<Rates>,
    pub(crate) receiving: Receiving,
    pub(crate) visitors: Arc<Visitors>,
    /// Whose clicks with a key are left out.
    pub(crate) ignored: Networks,
    /// The address at which people reach this server, where it was told.
    pub(crate) public_url: Option<String>,
    /// Whose pages may show the dashboard in a frame.
    pub(crate) frame_ancestors: Origins,
    /// Where large bodies are read.
    pub(crate) aside: Aside,
    /// Rings when a book was deleted, so that its rows are removed.
    pub(crate) purge: Arc<tokio::sync::Notify>,
}

/// The event streams of this process.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) heartbeat: Duration,
    pub(crate) max_age: Option<Duration>,
    /// Over how much time goodbyes are spread at most when the process shuts down.
    pub(crate) drain_spread: Duration,
    /// Cancelled when the process shuts down.
    pub(crate) drain: CancellationToken,
    pub(crate) most: usize,
    pub(crate) open: AtomicUsize,
    pub(crate) most_per_token: usize,
    /// By the token's id; `None` is the admin token of the configuration.
    pub(crate) per_token: Mutex<HashMap<Option<Uuid>, usize>>,
}

/// One open stream; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    streams: Arc<Streams>,
    token: Option<Uuid>,
}

impl Streams {
    /// Counts one stream more of `token`, unless there are too many.
    pub(crate) fn open(self: &Arc<Self>, token: Option<Uuid>) -> Option<OpenStream> {
        let before = self.open.fetch_add(1, Ordering::SeqCst);
        let of_token = {
            let mut per_token = self.per_token();
            let of_token = per_token.entry(token).or_default();
            *of_token += 1;
            *of_token
        };
        telemetry::stream_opened();
        let stream = OpenStream {
            streams: Arc::clone(self),
            token,
        };
        (before < self.most && of_token <= self.most_per_token).then_some(stream)
    }

    fn per_token(&self) -> MutexGuard<'_, HashMap<Option<Uuid>, usize>> {
        self.per_token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// At what age a stream is closed: 0.8 to 1.0 of what is configured, so that streams which were
    /// opened together do not end together.
    pub(crate) fn jittered_max_age(&self) -> Option<Duration> {
        let part = rand::random_range(0.8..=1.0);
        self.max_age.map(|age| age.mul_f64(part))
    }

    /// How long one of the open streams waits with its goodbye: a millisecond for each stream,
    /// so that few do not wait for nothing and many do not come back all at once.
    pub(crate) fn drain_after(&self) -> Duration {
        let most = u64::try_from(self.open.load(Ordering::SeqCst)).unwrap_or(u64::MAX);
        let spread = Duration::from_millis(most).min(self.drain_spread);
        spread.mul_f64(rand::random())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.open.fetch_sub(1, Ordering::SeqCst);
        let mut per_token = self.streams.per_token();
        if let Some(open) = per_token.get_mut(&self.token) {
            *open -= 1;
            if *open == 0 {
                per_token.remove(&self.token);
            }
        }
        telemetry::stream_ended();
    }
}
