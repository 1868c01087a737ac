//! `pagetide token`: tokens from the terminal, straight in the database.

use std::time::Duration;

use sqlx::PgPool;
use tokio::signal::unix::SignalKind;
use uuid::Uuid;

use super::{AppError, asked_to_end, catch, embedded_end, join_database};
use crate::access::scope::{Caller, Scope};
use crate::access::token::{self, Token};
use crate::book::directory::{Directory, LookupError};
use crate::book::table;
use crate::config::token::{TokenCommand, TokenCreate};
use crate::time::Timestamp;
use crate::{db, telemetry};

/// Connections to the database.
const CONNECTIONS: u32 = 1;

/// How many tokens are read at once.
const PIECE: i64 = 1000;

/// How long connections may take to be closed.
const LAST_STEP: Duration = Duration::from_secs(1);

/// Why a token could not be made or revoked.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There is no such book.
    #[error("there is no book {0}")]
    NoBook(String),
    /// There is no such token.
    #[error("there is no token {0}")]
    NoToken(Uuid),
    /// The label is too long, or has control characters.
    #[error("a label has at most 200 characters, none of them a control character")]
    BadLabel,
    /// It would end after the year 9999.
    #[error("the token would end after the year 9999")]
    TooLate,
    /// A book cannot be looked up.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// What the database says.
    #[error("the tokens cannot be read or written")]
    Database(#[from] sqlx::Error),
}

/// Does with tokens what `command` says.
///
/// # Errors
/// The database cannot be used, or the command makes no sense.
pub async fn token(command: TokenCommand) -> Result<(), AppError> {
    let config = command.database();
    telemetry::start_logging(&config.log, config.log_format);
    let mut signals = (
        catch(SignalKind::terminate())?,
        catch(SignalKind::interrupt())?,
    );
    let joined = tokio::select! {
        joined = join_database(config) => joined?,
        () = asked_to_end(&mut signals) => return Ok(()),
    };
    let mut database = joined;
    let pool = db::read_pool(&database.options, CONNECTIONS);
    let outcome = tokio::select! {
        outcome = run(command, &pool) => outcome.map_err(AppError::from),
        () = asked_to_end(&mut signals) => Ok(()),
        status = embedded_end(&mut database.embedded) => Err(AppError::PostgresEnded(status)),
    };
    let _ = tokio::time::timeout(LAST_STEP, pool.close()).await;
    if let Some(embedded) = database.embedded {
        embedded.stop().await?;
    }
    outcome
}

async fn run(command: TokenCommand, pool: &PgPool) -> Result<(), TokenError> {
    match command {
        TokenCommand::Create(new) => create(new, pool).await,
        TokenCommand::List(_) => list(pool).await,
        TokenCommand::Revoke(revoke) => {
            if token::delete(pool, revoke.id).await? {
                Ok(())
            } else {
                Err(TokenError::NoToken(revoke.id))
            }
        }
    }
}

async fn create(new: TokenCreate, pool: &PgPool) -> Result<(), TokenError> {
    if !new.label.as_deref().is_none_or(token::is_label) {
        return Err(TokenError::BadLabel);
    }
    let now = Timestamp::now();
    let end = new.expires_in_ms.map(|ms| now.millis().checked_add(ms));
    let end = end.map(|end| {
        end.and_then(Timestamp::from_millis)
            .ok_or(TokenError::TooLate)
    });
    let every_book = new.admin || new.books.iter().any(|name| name == "*");
    let books = if every_book {
        None
    } else {
        Some(ids(&new.books, pool).await?)
    };
    let made = Token {
        id: Uuid::now_v7(),
        books,
        scopes: if new.admin {
            vec![Scope::Admin]
        } else {
            new.scopes
        },
        label: new.label,
        expires_at: end.transpose()?,
    };
    let secret = token::generate();
    token::insert(pool, &made, &secret, now).await?;
    show_new(&made, &secret);
    Ok(())
}

async fn ids(names: &[String], pool: &PgPool) -> Result<Vec<Uuid>, TokenError> {
    let directory = Directory::new(pool.clone());
    let mut ids = Vec::with_capacity(names.len());
    for name in names {
        let found = directory.find(name).await?;
        let known = found.ok_or_else(|| TokenError::NoBook(name.clone()))?;
        ids.push(known.book.id);
    }
    Ok(ids)
}

/// The token alone stands where a script reads it.
#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is what the command says"
)]
fn show_new(made: &Token, secret: &str) {
    eprintln!("token {} ({}), shown this once:", made.id, scopes(made));
    println!("{secret}");
}

#[allow(clippy::print_stdout, reason = "this is what the command says")]
async fn list(pool: &PgPool) -> Result<(), TokenError> {
    println!("ID\tSCOPES\tBOOKS\tEXPIRES\tLABEL");
    let mut after = Uuid::nil();
    loop {
        let tokens = token::list(pool, &Caller::admin(), after, PIECE).await?;
        let Some(last) = tokens.last() else {
            return Ok(());
        };
        after = last.id;
        for token in &tokens {
            println!("{}", line(token, pool).await?);
        }
    }
}

async fn line(token: &Token, pool: &PgPool) -> Result<String, TokenError> {
    let books = match &token.books {
        None => "*".to_owned(),
        Some(ids) => names(ids, pool).await?.join(","),
    };
    let end = token.expires_at.map(|end| end.to_string());
    let parts = [
        token.id.to_string(),
        scopes(token),
        books,
        end.unwrap_or_else(|| "never".to_owned()),
        token.label.clone().unwrap_or_default(),
    ];
    Ok(parts.join("\t"))
}

/// The slugs of books; of those that are deleted, the ids.
async fn names(ids: &[Uuid], pool: &PgPool) -> Result<Vec<String>, TokenError> {
    let most = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    let books = table::list(pool, Some(ids), Uuid::nil(), most).await;
    let books = books.map_err(LookupError::from)?;
    let name = |id: &Uuid| {
        let book = books.iter().find(|book| book.id == *id);
        book.map_or_else(|| id.to_string(), |book| book.slug.clone())
    };
    Ok(ids.iter().map(name).collect())
}

fn scopes(token: &Token) -> String {
    let names: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
    names.join(",")
}
