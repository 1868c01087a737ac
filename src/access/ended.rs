//! Tokens and sessions that end while a stream is open: one look for all streams of the process, not
//! one each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::scope::Caller;
use crate::telemetry;
use crate::time::Timestamp;

/// Least and most time between two looks; in between, it is half a heartbeat.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// How long the database may take to answer a look: what expires does so all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why credentials hold no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The session's or the token's time was over.
    Expired,
    /// The token was revoked.
    Revoked,
    /// The session was deleted.
    Deleted,
}

impl Ending {
    /// As the stream tells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Deleted => "deleted",
        }
    }
}

/// Tells when the credentials behind a stream end, and why.
pub type WhenEnded = watch::Receiver<Option<Ending>>;

/// What must stay for a stream to go on. The admin token of the configuration has neither id, and
/// stays for as long as the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Credentials {
    token: Option<Uuid>,
    session: Option<Uuid>,
}

/// The credentials behind the open streams.
#[derive(Debug)]
pub struct Ended {
    look_every: Duration,
    watched: Mutex<HashMap<Credentials, Watched>>,
}

#[derive(Debug)]
struct Watched {
    streams: usize,
    expires_at: Option<Timestamp>,
    ended: watch::Sender<Option<Ending>>,
}

/// A stream's interest in its credentials.
#[derive(Debug)]
pub struct Interest {
    all: Arc<Ended>,
    credentials: Credentials,
    /// Tells when they end.
    pub ended: WhenEnded,
}

impl Ended {
    /// What has ended is noticed within a `heartbeat`.
    #[must_use]
    pub fn new(heartbeat: Duration) -> Self {
        let [least, most] = LOOK_EVERY;
        Self {
            look_every: (heartbeat / 2).clamp(least, most),
            watched: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Credentials, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look after the credentials of `caller`.
    #[must_use]
    pub fn watch(self: &Arc<Self>, caller: &Caller) -> Interest {
        let credentials = Credentials {
            token: caller.token,
            session: caller.session,
        };
        let mut watched = self.lock();
        let entry = watched.entry(credentials).or_insert_with(|| Watched {
            streams: 0,
            expires_at: caller.expires_at,
            ended: watch::Sender::new(None),
        });
        entry.streams += 1;
        Interest {
            all: Arc::clone(self),
            credentials,
            ended: entry.ended.subscribe(),
        }
    }

    /// Looks again and again, until `stop`. Calls `forget` where something was revoked or deleted,
    /// before its streams are told: whoever comes back at once must not be let in because it is
    /// still remembered.
    pub async fn run(
        self: Arc<Self>,
        pool: PgPool,
        forget: impl Fn() + Send,
        stop: CancellationToken,
    ) {
        let mut ticks = tokio::time::interval(self.look_every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let looked = self.look(&pool, Timestamp::now());
            match tokio::time::timeout(PATIENCE, looked).await {
                Ok(Ok(endings)) if endings.is_empty() => {}
                Ok(Ok(endings)) => {
                    forget();
                    self.tell(&endings);
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = %telemetry::chain(&error), "the tokens and sessions behind the streams could not be read");
                }
                Err(_) => {
                    tracing::warn!(
                        "the tokens and sessions behind the streams could not be read in time"
                    );
                }
            }
        }
    }

    /// Ends what has expired, and gives what has ended otherwise since the last look.
    async fn look(
        &self,
        pool: &PgPool,
        now: Timestamp,
    ) -> Result<Vec<(Credentials, Ending)>, sqlx::Error> {
        let held = self.end_expired(now);
        let ids = held.iter().flat_map(|held| [held.token, held.session]);
        let ids: Vec<Uuid> = ids.flatten().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let there = sqlx::query!(
            r#"SELECT id AS "id!", expires_ms FROM tokens WHERE id = ANY($1)
               UNION ALL SELECT id, expires_ms FROM sessions WHERE id = ANY($1)"#,
            &ids,
        )
        .fetch_all(pool)
        .await?;
        let ends = there.into_iter().map(|row| (row.id, row.expires_ms));
        let ends: HashMap<Uuid, Option<i64>> = ends.collect();
        let endings = held
            .into_iter()
            .filter_map(|held| Some((held, held.ending(&ends, now)?)));
        Ok(endings.collect())
    }

    fn tell(&self, endings: &[(Credentials, Ending)]) {
        let watched = self.lock();
        for (credentials, ending) in endings {
            if let Some(entry) = watched.get(credentials) {
                entry.ended.send_replace(Some(*ending));
            }
        }
    }

    /// Ends what has expired, for which nobody needs to be asked, and gives what has not ended.
    fn end_expired(&self, now: Timestamp) -> Vec<Credentials> {
        let watched = self.lock();
        let mut held = Vec::with_capacity(watched.len());
        for (credentials, entry) in watched.iter() {
            if entry.ended.borrow().is_some() {
                continue;
            }
            if entry.expires_at.is_some_and(|end| end <= now) {
                entry.ended.send_replace(Some(Ending::Expired));
            } else {
                held.push(*credentials);
            }
        }
        held
    }
}

impl Credentials {
    /// Why they hold no more, if `ends` are the tokens and sessions that are there and when they
    /// expire.
    fn ending(self, ends: &HashMap<Uuid, Option<i64>>, now: Timestamp) -> Option<Ending> {
        // A token that is revoked takes its sessions with it, so it is asked for first.
        let parts = [
            (self.token, Ending::Revoked),
            (self.session, Ending::Deleted),
        ];
        let mut parts = parts
            .into_iter()
            .filter_map(|(id, gone)| Some((ends.get(&id?).copied(), gone)));
        parts.find_map(|(end, gone)| match end {
            None => Some(gone),
            Some(Some(end)) if end <= now.millis() => Some(Ending::Expired),
            Some(_) => None,
        })
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut watched = self.all.lock();
        if let Some(entry) = watched.get_mut(&self.credentials) {
            entry.streams -= 1;
            if entry.streams == 0 {
                watched.remove(&self.credentials);
            }
        }
    }
}
