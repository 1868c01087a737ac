//! The first start: the admin token, and the lines that show a person how to begin.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sqlx::PgPool;
use uuid::Uuid;

use super::{AppError, Database};
use crate::access::scope::Scope;
use crate::access::token::{self, Token};
use crate::db::embedded::Embedded;
use crate::time::Timestamp;

/// An admin token that was made at this start.
pub(super) struct NewAdmin {
    secret: String,
    file: Option<PathBuf>,
}

/// Makes the admin token of a database that has none, unless one was chosen. With the embedded
/// database it is kept in a file too.
pub(super) async fn make_admin(
    pool: &PgPool,
    chosen: Option<&str>,
    database: &Database,
) -> Result<Option<NewAdmin>, AppError> {
    if chosen.is_some() || token::admin_exists(pool).await? {
        return Ok(None);
    }
    let secret = token::generate();
    let file = database.embedded.as_ref();
    let file = file.map(|_| database.data_dir.join("admin-token"));
    if let Some(file) = &file {
        write_private(file, &secret)
            .map_err(|error| AppError::AdminTokenFile(file.clone(), error))?;
    }
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
pub(super) fn announce(
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    embedded: Option<&Embedded>,
    admin: Option<&NewAdmin>,
) {
    let url = format!("http://{address}");
    if let Some(embedded) = embedded {
        println!("database: {}", embedded.describe());
    }
    if let Some(NewAdmin { secret, file }) = admin {
        match file {
            Some(file) => println!("admin token, also kept in {}: {secret}", file.display()),
            None => println!("admin token, shown this once: {secret}"),
        }
        println!(
            "\nTo begin, in another terminal: make a book, post a click, follow the stream.\n"
        );
        println!("export PAGETIDE={url} TOKEN={secret}");
        for line in FIRST_STEPS {
            println!("{line}");
        }
        println!();
    }
    if let Some(metrics) = metrics {
        println!("metrics, open to anyone, on http://{metrics}/metrics");
    }
    println!("listening on {url}");
}

/// Lines for a shell that has `PAGETIDE` and `TOKEN`; the README shows the same.
const FIRST_STEPS: [&str; 3] = [
    r#"curl -X PUT "$PAGETIDE/v1/books/my-book" -H "authorization: Bearer $TOKEN" -H "content-type: application/json" -d '{"title":"My book"}'"#,
    r#"curl "$PAGETIDE/v1/books/my-book/clicks" -H "authorization: Bearer $TOKEN" -H "content-type: application/json" -d '{"page":"/ch01.html"}'"#,
    r#"curl -N "$PAGETIDE/v1/books/my-book/events?snapshot=1" -H "authorization: Bearer $TOKEN""#,
];
