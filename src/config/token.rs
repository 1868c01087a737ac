//! What `pagetide token` can do.

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::DatabaseConfig;
use crate::access::scope::Scope;

/// Make, list and revoke tokens, straight in the database; a server need not run.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token. It alone goes to standard output, this once; what it is to standard error.
    Create(TokenCreate),
    /// List tokens, oldest first, without what they read as: id, scopes, books, end and label,
    /// separated by tabs.
    List(TokenList),
    /// Revoke a token: it holds nowhere after a second, nor do its sessions, and streams that it
    /// opened end within a heartbeat.
    Revoke(TokenRevoke),
}

/// A new token.
#[derive(Clone, Debug, Args)]
pub struct TokenCreate {
    /// Which database: with the embedded one, that of the server which runs, or its own.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// One that may do everything, in place of an admin token that was lost.
    #[arg(long, conflicts_with_all = ["books", "scopes"], required_unless_present = "books")]
    pub admin: bool,
    /// Id or slug of a book that it is for, or `*` for all; several times for several.
    #[arg(long = "book", value_name = "BOOK", requires = "scopes")]
    pub books: Vec<String>,
    /// What it gives: manage, write or read; several times for several.
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scope, requires = "books")]
    pub scopes: Vec<Scope>,
    /// For people, to 200 characters.
    #[arg(long)]
    pub label: Option<String>,
    /// How long it holds, as in 90d, 12h, 30m or 45s [default: for ever]
    #[arg(long = "expires-in", value_name = "TIME", value_parser = millis)]
    pub expires_in_ms: Option<i64>,
}

/// The list of tokens.
#[derive(Clone, Debug, Args)]
pub struct TokenList {
    /// Which database: with the embedded one, that of the server which runs, or its own.
    #[command(flatten)]
    pub database: DatabaseConfig,
}

/// The end of a token.
#[derive(Clone, Debug, Args)]
pub struct TokenRevoke {
    /// Which database: with the embedded one, that of the server which runs, or its own.
    #[command(flatten)]
    pub database: DatabaseConfig,
    /// Its id, as the list shows it.
    pub id: Uuid,
}

impl TokenCommand {
    /// Which database it is about.
    #[must_use]
    pub fn database(&self) -> &DatabaseConfig {
        match self {
            Self::Create(create) => &create.database,
            Self::List(list) => &list.database,
            Self::Revoke(revoke) => &revoke.database,
        }
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    let scope = Scope::parse(text).filter(|scope| *scope != Scope::Admin);
    scope.ok_or_else(|| "one of manage, write, read".to_owned())
}

/// Milliseconds of a whole number with its unit.
fn millis(text: &str) -> Result<i64, String> {
    let wrong = || "a whole number above 0 and a unit: s, m, h, d or w, as in 90d".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        "w" => 7 * 24 * 3_600_000,
        _ => return Err(wrong()),
    };
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    let millis = number.checked_mul(unit).filter(|ms| *ms > 0);
    millis.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_numbers_with_a_unit() {
        for (text, expected) in [
            ("45s", 45_000),
            ("30m", 1_800_000),
            ("12h", 43_200_000),
            ("90d", 7_776_000_000),
            ("1w", 604_800_000),
        ] {
            assert_eq!(millis(text), Ok(expected));
        }
        for text in [
            "",
            "d",
            "90",
            "0d",
            "-1d",
            "1.5h",
            "1 h",
            "1y",
            "1D",
            "9223372036854775807s",
        ] {
            assert!(millis(text).is_err(), "{text}");
        }
    }

    #[test]
    fn admin_is_a_flag_of_its_own() {
        assert_eq!(scope("read"), Ok(Scope::Read));
        assert!(scope("admin").is_err());
        assert!(scope("Read").is_err());
    }
}
