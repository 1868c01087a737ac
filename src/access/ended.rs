//! Tokens that end while a stream is open: one look for all streams of the process, not one each.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::telemetry;
use crate::time::Timestamp;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The tokens behind the open streams.
#[derive(Debug, Default)]
pub struct EndedTokens {
    watched: Mutex<HashMap<Uuid, Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    streams: usize,
    ended: CancellationToken,
}

/// A stream's interest in its token; tells when it ends.
#[derive(Debug)]
pub struct Interest {
    all: Arc<EndedTokens>,
    token: Option<Uuid>,
    /// Cancelled when the token has expired or was revoked.
    pub ended: CancellationToken,
}

impl EndedTokens {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look after `token`; `None`, the admin token of the configuration, never ends.
    #[must_use]
    pub fn watch(self: &Arc<Self>, token: Option<Uuid>) -> Interest {
        let ended = token.map_or_else(CancellationToken::new, |token| {
            let mut watched = self.lock();
            let entry = watched.entry(token).or_default();
            entry.streams += 1;
            entry.ended.clone()
        });
        Interest {
            all: Arc::clone(self),
            token,
            ended,
        }
    }

    /// Looks again and again, until `stop`.
    pub async fn run(self: Arc<Self>, pool: PgPool, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.look(&pool, Timestamp::now()).await {
                tracing::warn!(error = %telemetry::chain(&error), "the tokens behind the streams could not be read");
            }
        }
    }

    async fn look(&self, pool: &PgPool, now: Timestamp) -> Result<(), sqlx::Error> {
        let tokens: Vec<Uuid> = self.lock().keys().copied().collect();
        if tokens.is_empty() {
            return Ok(());
        }
        let alive = sqlx::query_scalar!(
            "SELECT id FROM tokens
             WHERE id = ANY($1) AND (expires_ms IS NULL OR expires_ms > $2)",
            &tokens,
            now.millis(),
        )
        .fetch_all(pool)
        .await?;
        let alive: HashSet<Uuid> = alive.into_iter().collect();
        let watched = self.lock();
        for token in tokens.iter().filter(|token| !alive.contains(token)) {
            if let Some(entry) = watched.get(token) {
                entry.ended.cancel();
            }
        }
        Ok(())
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let Some(token) = self.token else { return };
        let mut watched = self.all.lock();
        if let Some(entry) = watched.get_mut(&token) {
            entry.streams -= 1;
            if entry.streams == 0 {
                watched.remove(&token);
            }
        }
    }
}
