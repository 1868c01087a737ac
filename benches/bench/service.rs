//! The program as a user has it: the release build as a process, over the Postgres that it would
//! bring up itself.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use pagetide::db::embedded::Embedded;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Error;
use crate::context::Context;
use crate::cpu::{self, Usage};
use crate::http::Client;
use crate::readers::{self, Wanted};

/// The admin token of every measured server.
pub(crate) const ADMIN: &str = "an-admin-token-for-benches-alone";

/// A Postgres in a fresh folder, with the settings of the program's own, which end with it.
pub(crate) struct Database {
    embedded: Embedded,
    folder: PathBuf,
}

impl Database {
    /// Brings one up.
    pub(crate) async fn start(context: &Context) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = context.folder.join(format!("data-{process}-{next}"));
        let _ = std::fs::remove_dir_all(&folder);
        let embedded = Embedded::start(&folder).await?;
        Ok(Self { embedded, folder })
    }

    /// What its server logs.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("postgres.log")
    }

    /// Ends all its processes at once, as a crash would.
    pub(crate) async fn crash(mut self) -> Result<Crashed, Error> {
        let pid = self.embedded.pid().ok_or("Postgres has ended")?;
        signal("-QUIT", pid).await?;
        self.embedded.wait().await?;
        Ok(Crashed {
            folder: self.folder,
        })
    }

    /// Empties the log of clicks; fails unless there were so many.
    pub(crate) async fn expect_clicks(&self, acknowledged: u64) -> Result<(), Error> {
        let there = self.take_clicks().await?;
        if there == acknowledged {
            return Ok(());
        }
        Err(format!("{acknowledged} clicks were acknowledged, {there} are there").into())
    }

    /// How many clicks are in the log. It is empty afterwards, and what was written is on the disk,
    /// so that what comes next neither finds a larger table nor writes out another's pages.
    pub(crate) async fn take_clicks(&self) -> Result<u64, Error> {
        let mut conn = self.connect().await?;
        let count = sqlx::query_scalar("SELECT count(*) FROM clicks");
        let count: i64 = count.fetch_one(&mut conn).await?;
        sqlx::raw_sql("TRUNCATE clicks").execute(&mut conn).await?;
        sqlx::raw_sql("CHECKPOINT").execute(&mut conn).await?;
        Ok(u64::try_from(count)?)
    }

    /// Brings one up that counts statements: with `pg_stat_statements`, which every Postgres brings
    /// along and none loads by itself.
    pub(crate) async fn start_counting(context: &Context) -> Result<Self, Error> {
        let Self { embedded, folder } = Self::start(context).await?;
        let mut conn = PgConnection::connect_with(&embedded.connect_options()).await?;
        let load = "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'";
        sqlx::raw_sql(load).execute(&mut conn).await?;
        conn.close().await?;
        // Libraries are loaded at the start alone.
        embedded.stop().await?;
        let embedded = Embedded::start(&folder).await?;
        let database = Self { embedded, folder };
        let create = sqlx::raw_sql("CREATE EXTENSION pg_stat_statements");
        create.execute(&mut database.connect().await?).await?;
        Ok(database)
    }

    /// How to connect to it.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.embedded.connect_options()
    }

    /// A connection.
    pub(crate) async fn connect(&self) -> Result<PgConnection, Error> {
        Ok(PgConnection::connect_with(&self.options()).await?)
    }

    /// As `psql` and the program want it.
    pub(crate) fn url(&self) -> Result<String, Error> {
        let options = self.options();
        let socket = options.get_socket().ok_or("the database has no socket")?;
        let database = options.get_database().unwrap_or_default();
        let (user, port) = (options.get_username(), options.get_port());
        let socket = socket.display();
        Ok(format!(
            "postgres:///{database}?host={socket}&port={port}&user={user}"
        ))
    }

    /// What all its processes cost so far.
    pub(crate) fn usage(&self) -> Result<Usage, Error> {
        cpu::of_tree(self.embedded.pid().ok_or("Postgres has ended")?)
    }

    /// Ends it, and removes what it held.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        self.embedded.stop().await?;
        std::fs::remove_dir_all(&self.folder)?;
        Ok(())
    }
}

/// What is left of a database that has crashed.
pub(crate) struct Crashed {
    folder: PathBuf,
}

impl Crashed {
    /// Brings it up again.
    pub(crate) async fn recover(self) -> Result<Database, Error> {
        let embedded = Embedded::start(&self.folder).await?;
        let folder = self.folder;
        Ok(Database { embedded, folder })
    }
}

/// A running `pagetide serve`; killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Where it listens: host and port.
    pub(crate) address: String,
    http: reqwest::Client,
}

impl Server {
    /// Starts it over `database`, with more settings by environment.
    pub(crate) async fn start(database: &Database, env: &[(&str, &str)]) -> Result<Self, Error> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagetide"));
        command
            .arg("serve")
            .env("DATABASE_URL", database.url()?)
            .env("PAGETIDE_DATA_DIR", database.folder.join("server"))
            .env("PAGETIDE_ADMIN_TOKEN", ADMIN)
            .env("PAGETIDE_LISTEN", "127.0.0.1:0")
            .env("PAGETIDE_LOG", "warn")
            .envs(env.iter().copied());
        let (child, address) = listening(command).await?;
        // The client wants to know how it would encrypt, though it never will. It may be known.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::new();
        Ok(Self {
            child,
            address,
            http,
        })
    }

    /// What it cost so far.
    pub(crate) fn usage(&self) -> Result<Usage, Error> {
        cpu::of_tree(self.child.id().ok_or("the server has ended")?)
    }

    /// The most memory that it had at a time, in bytes.
    pub(crate) fn peak_resident(&self) -> Result<u64, Error> {
        cpu::peak_resident(self.child.id().ok_or("the server has ended")?)
    }

    /// Its resident memory.
    pub(crate) fn memory(&self) -> Result<u64, Error> {
        cpu::memory_of_tree(self.child.id().ok_or("the server has ended")?)
    }

    /// Connections to it that are kept, with what it takes to be let in.
    pub(crate) async fn clients(&self, number: usize) -> Result<Vec<Client>, Error> {
        Client::several(&self.address, &authorization(), number).await
    }

    /// The request for the stream of a book, after `cursor` if there is one.
    pub(crate) fn follow(&self, book: &str, cursor: Option<i64>) -> Wanted {
        let after = cursor.map_or(String::new(), |c| format!("Last-Event-ID: {c}\r\n"));
        let headers = authorization() + &after;
        let path = format!("/v1/books/{book}/events");
        let request = readers::request(&self.address, &path, &headers);
        Wanted { request, cursor }
    }

    /// Makes a book; `body` as `PUT /v1/books/{slug}` wants it.
    pub(crate) async fn put_book(&self, slug: &str, body: &Value) -> Result<Value, Error> {
        let path = format!("books/{slug}");
        self.ask(Method::PUT, &path, Some(body)).await
    }

    /// The position of a book.
    pub(crate) async fn position(&self, book: &str) -> Result<i64, Error> {
        let book = self
            .ask(Method::GET, &format!("books/{book}"), None)
            .await?;
        let position = book["position"].as_i64();
        Ok(position.ok_or("a book does not say its position")?)
    }

    /// A token that may do this to all books.
    pub(crate) async fn token(&self, scope: &str) -> Result<String, Error> {
        let wanted = json!({"books": ["*"], "scopes": [scope]});
        let made = self.ask(Method::POST, "tokens", Some(&wanted)).await?;
        let token = made["token"]
            .as_str()
            .ok_or("a token does not say what it is")?;
        Ok(token.to_owned())
    }

    /// What it answers to whoever may do everything; `path` is what follows `/v1/`.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let url = format!("http://{}/v1/{path}", self.address);
        let mut request = self.http.request(method, url).bearer_auth(ADMIN);
        if let Some(body) = body {
            request = request.json(body);
        }
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// Ends it as an operator would.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        signal("-TERM", self.child.id().ok_or("the server has ended")?).await?;
        self.child.wait().await?;
        Ok(())
    }

    /// Ends it without a word.
    pub(crate) async fn kill(mut self) -> Result<(), Error> {
        Ok(self.child.kill().await?)
    }
}

/// Starts a program that says on standard output where it listens: host and port.
pub(crate) async fn listening(mut command: Command) -> Result<(Child, String), Error> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("a program has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let address = loop {
        let line = lines.next_line().await?.ok_or("a program did not start")?;
        if let Some(address) = line.strip_prefix(LISTENING) {
            break address.to_owned();
        }
    };
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, address))
}

/// What comes before the address.
pub(crate) const LISTENING: &str = "listening on http://";

async fn signal(name: &str, pid: u32) -> Result<(), Error> {
    let mut kill = Command::new("kill");
    kill.arg(name).arg(pid.to_string()).status().await?;
    Ok(())
}

/// How many statements a database of [`Database::start_counting`] has carried out, those of this
/// question left out.
pub(crate) async fn statements(conn: &mut PgConnection) -> Result<u32, Error> {
    let count = sqlx::query_scalar(
        "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
         WHERE query NOT LIKE '%pg_stat_statements%'",
    );
    let count: i64 = count.fetch_one(conn).await?;
    Ok(u32::try_from(count)?)
}

/// The header by which the admin is known, as a line.
fn authorization() -> String {
    format!("Authorization: Bearer {ADMIN}\r\n")
}

/// A book that counts the clicks of each page in windows of ten seconds.
pub(crate) fn counting_book() -> Value {
    json!({
        "title": "Bench",
        "rollups": [{
            "name": "pages", "group_by": "page", "aggregate": "count",
            "window": {"kind": "tumbling", "size_ms": 10_000},
        }],
    })
}
