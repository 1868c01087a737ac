//! Sessions: opened with a token, in place of which a browser carries them.
//!
//! **Promises.** A session gives what its token gives, and no more; it ends when it expires, is
//! deleted, or its token expires or is revoked. One that was opened with the admin token of the
//! configuration holds wherever that same token is configured, and nowhere else. Of a session's
//! secret only hashes are stored.
//!
//! This module owns the table `sessions`.

use std::sync::Arc;

use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use super::scope::{Caller, Scope};
use super::secret::{self, Hash};
use crate::memo::Memo;
use crate::time::Timestamp;

const PREFIX: &str = "ps_";

/// Longest that a session may last, in milliseconds: 30 days.
pub const MAX_TTL_MS: i64 = 30 * 24 * 60 * 60 * 1000;

/// How long a session lasts if nobody says, in milliseconds: 12 hours.
pub const DEFAULT_TTL_MS: i64 = 12 * 60 * 60 * 1000;

/// A session that was just opened. Not to be logged, so it has no `Debug`.
pub struct Opened {
    /// What the client shows from now on: `ps_` and 43 URL-safe characters.
    pub secret: String,
    /// When it ends by itself; no later than its token.
    pub expires_at: Timestamp,
}

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The token was revoked meanwhile.
    #[error("the token has been revoked")]
    TokenEnded,
    /// What the database says.
    #[error("the session could not be stored")]
    Database(#[from] sqlx::Error),
}

/// Opens sessions, finds out whose they are, and remembers it for a moment.
#[derive(Debug)]
pub struct Sessions {
    pool: PgPool,
    /// SHA-256 of the admin token of the configuration.
    chosen_admin: Option<Hash>,
    known: Memo<Hash, Arc<Caller>>,
}

impl Sessions {
    /// Keeps sessions in the database behind `pool`; `chosen_admin` is the admin token of the
    /// configuration.
    #[must_use]
    pub fn new(pool: PgPool, chosen_admin: Option<&str>) -> Self {
        Self {
            pool,
            chosen_admin: chosen_admin.map(secret::hash),
            known: Memo::new(),
        }
    }

    /// Opens a session of `ttl_ms` milliseconds for `caller`, who showed a token.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(
        &self,
        caller: &Caller,
        ttl_ms: i64,
        now: Timestamp,
    ) -> Result<Opened, OpenError> {
        let secret = secret::generate(PREFIX);
        let asked = Timestamp::saturating_from_millis(now.millis().saturating_add(ttl_ms));
        let expires_at = caller.expires_at.map_or(asked, |end| end.min(asked));
        let seal = match caller.token {
            Some(_) => None,
            None => self.chosen_admin.map(|admin| secret::seal(&secret, &admin)),
        };
        let hash = secret::hash(&secret);
        let inserted = sqlx::query!(
            "INSERT INTO sessions (id, hash, token_id, admin_seal, created_ms, expires_ms)
             VALUES ($1, $2, $3, $4, $5, $6)",
            Uuid::now_v7(),
            hash.as_slice(),
            caller.token,
            seal.as_ref().map(Hash::as_slice),
            now.millis(),
            expires_at.millis(),
        )
        .execute(&self.pool)
        .await;
        match inserted {
            Ok(_) => Ok(Opened { secret, expires_at }),
            Err(sqlx::Error::Database(error))
                if error.constraint() == Some("sessions_token_fkey") =>
            {
                Err(OpenError::TokenEnded)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The caller whose session `secret` is, unless it is unknown or has ended.
    ///
    /// # Errors
    /// What the database says.
    pub async fn caller(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Caller>>, sqlx::Error> {
        if !secret::has_the_form(secret, PREFIX) {
            return Ok(None);
        }
        let hash = secret::hash(secret);
        let found = self.known.get(&hash, self.read(&hash, secret)).await?;
        let alive = |caller: &Arc<Caller>| caller.expires_at.is_some_and(|end| now < end);
        Ok(found.filter(alive))
    }

    async fn read(&self, hash: &Hash, secret: &str) -> Result<Option<Arc<Caller>>, sqlx::Error> {
        let row = sqlx::query!(
            r#"SELECT s.id, s.expires_ms, s.admin_seal, t.id AS "token?", t.books AS "books?",
                      t.scopes AS "scopes?", t.expires_ms AS "token_expires_ms?"
               FROM sessions s LEFT JOIN tokens t ON t.id = s.token_id
               WHERE s.hash = $1"#,
            hash.as_slice()
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let (scopes, books) = match (row.token, row.scopes, row.admin_seal) {
            (Some(_), Some(scopes), _) => (Scope::parse_all(&scopes), row.books),
            (_, _, Some(seal)) if self.holds(secret, &seal) => (vec![Scope::Admin], None),
            // Opened with an admin token that is configured no more, or elsewhere.
            _ => return Ok(None),
        };
        let end = row.token_expires_ms.unwrap_or(i64::MAX).min(row.expires_ms);
        Ok(Some(Arc::new(Caller {
            token: row.token,
            session: Some(row.id),
            scopes,
            books,
            expires_at: Some(Timestamp::saturating_from_millis(end)),
            token_expires_at: row.token_expires_ms.map(Timestamp::saturating_from_millis),
        })))
    }

    fn holds(&self, secret: &str, seal: &[u8]) -> bool {
        let admin = self.chosen_admin.as_ref();
        admin.is_some_and(|admin| secret::same(&secret::seal(secret, admin), seal))
    }

    /// Forgets everything, because this process has just ended a session or a token.
    pub fn forget_all(&self) {
        self.known.forget_all();
    }
}

/// Ends the session `id`.
///
/// # Errors
/// What the database says.
pub async fn delete(db: impl PgExecutor<'_>, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!("DELETE FROM sessions WHERE id = $1", id)
        .execute(db)
        .await?;
    Ok(())
}

/// Removes the sessions that have expired by `now`, in pieces, so that no transaction is long.
///
/// # Errors
/// What the database says.
pub async fn prune(pool: &PgPool, now: Timestamp) -> Result<(), sqlx::Error> {
    loop {
        let expired = sqlx::query!(
            "DELETE FROM sessions WHERE id = ANY(ARRAY(
                 SELECT id FROM sessions WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT 1000))",
            now.millis(),
        );
        if expired.execute(pool).await?.rows_affected() == 0 {
            return Ok(());
        }
    }
}
