//! Tokens: made, found, listed, revoked. Only their SHA-256 is stored.

use std::sync::Arc;

use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use super::scope::{Caller, Scope};
use super::secret::{self, Hash, hash};
use crate::memo::Memo;
use crate::time::Timestamp;

/// Shortest admin token that a person may choose.
pub const MIN_CHOSEN_LENGTH: usize = 20;

/// A new token: `pt_` and 43 URL-safe characters, 256 random bits.
#[must_use]
pub fn generate() -> String {
    secret::generate("pt_")
}

/// Whether `text` may be the label of a token: at most 200 characters, none of them a control
/// character.
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.chars().count() <= 200 && !text.chars().any(char::is_control)
}

/// A token as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Version 7.
    pub id: Uuid,
    /// With which books; `None`: all.
    pub books: Option<Vec<Uuid>>,
    /// What it gives.
    pub scopes: Vec<Scope>,
    /// For people.
    pub label: Option<String>,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
}

struct Row {
    id: Uuid,
    books: Option<Vec<Uuid>>,
    scopes: Vec<String>,
    label: Option<String>,
    expires_ms: Option<i64>,
}

impl From<Row> for Token {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            books: row.books,
            scopes: Scope::parse_all(&row.scopes),
            label: row.label,
            expires_at: row.expires_ms.map(Timestamp::saturating_from_millis),
        }
    }
}

/// Stores `token` under the SHA-256 of `secret`.
///
/// # Errors
/// What the database says.
pub async fn insert(
    db: impl PgExecutor<'_>,
    token: &Token,
    secret: &str,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let scopes: Vec<&str> = token.scopes.iter().map(|s| s.as_str()).collect();
    let hash = hash(secret);
    sqlx::query!(
        "INSERT INTO tokens (id, hash, books, scopes, label, created_ms, expires_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        token.id,
        hash.as_slice(),
        token.books.as_deref(),
        &scopes as &[&str],
        token.label,
        now.millis(),
        token.expires_at.map(Timestamp::millis),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Up to `limit` tokens after `after`, oldest first: all, or those that `caller` may revoke.
///
/// # Errors
/// What the database says.
pub async fn list(
    db: impl PgExecutor<'_>,
    caller: &Caller,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Token>, sqlx::Error> {
    // The same as `Caller::may_give`, where the list is cut.
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, books, scopes, label, expires_ms FROM tokens
         WHERE id > $1
           AND ($3 OR NOT 'admin' = ANY(scopes))
           AND ($3 OR $4::uuid[] IS NULL OR (books IS NOT NULL AND books <@ $4))
         ORDER BY id LIMIT $2",
        after,
        limit,
        caller.is_admin(),
        caller.books.as_deref(),
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Token::from).collect())
}

/// The token `id`.
///
/// # Errors
/// What the database says.
pub async fn find(db: impl PgExecutor<'_>, id: Uuid) -> Result<Option<Token>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, books, scopes, label, expires_ms FROM tokens WHERE id = $1",
        id
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Token::from))
}

/// Revokes the token `id`, and ends its sessions. False: there is none.
///
/// # Errors
/// What the database says.
pub async fn delete(db: impl PgExecutor<'_>, id: Uuid) -> Result<bool, sqlx::Error> {
    let deleted = sqlx::query!("DELETE FROM tokens WHERE id = $1", id);
    Ok(deleted.execute(db).await?.rows_affected() > 0)
}

/// Whether any token gives everything.
///
/// # Errors
/// What the database says.
pub async fn admin_exists(db: impl PgExecutor<'_>) -> Result<bool, sqlx::Error> {
    let any = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM tokens WHERE 'admin' = ANY(scopes)) AS "any!""#
    );
    any.fetch_one(db).await
}

/// Finds out who calls, and remembers it for a moment.
#[derive(Debug)]
pub struct Tokens {
    pool: PgPool,
    /// SHA-256 of the admin token of the configuration.
    chosen_admin: Option<Hash>,
    known: Memo<Hash, Arc<Caller>>,
}

impl Tokens {
    /// Looks tokens up through `pool`; `chosen_admin` may do everything besides.
    #[must_use]
    pub fn new(pool: PgPool, chosen_admin: Option<&str>) -> Self {
        Self {
            pool,
            chosen_admin: chosen_admin.map(hash),
            known: Memo::new(),
        }
    }

    /// The caller that `secret` stands for, unless it is unknown, revoked or expired.
    ///
    /// # Errors
    /// What the database says.
    pub async fn caller(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Caller>>, sqlx::Error> {
        let hash = hash(secret);
        if let Some(admin) = &self.chosen_admin
            && secret::same(admin, &hash)
        {
            return Ok(Some(Arc::new(Caller::admin())));
        }
        let Some(caller) = self.known.get(&hash, self.read(&hash)).await? else {
            return Ok(None);
        };
        let alive = caller.expires_at.is_none_or(|end| now < end);
        Ok(alive.then_some(caller))
    }

    async fn read(&self, hash: &Hash) -> Result<Option<Arc<Caller>>, sqlx::Error> {
        let row = sqlx::query_as!(
            Row,
            "SELECT id, books, scopes, label, expires_ms FROM tokens WHERE hash = $1",
            hash.as_slice()
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(Token::from).map(|token| {
            Arc::new(Caller {
                token: Some(token.id),
                session: None,
                scopes: token.scopes,
                books: token.books,
                expires_at: token.expires_at,
                token_expires_at: token.expires_at,
            })
        }))
    }

    /// Forgets everything, because this process has just revoked a token.
    pub fn forget_all(&self) {
        self.known.forget_all();
    }
}
