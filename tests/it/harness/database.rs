//! A database of its own for each test.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

/// An empty database on the test cluster; dropped with it.
pub(crate) struct Database {
    name: String,
    cluster: String,
}

impl Database {
    pub(crate) async fn create() -> Self {
        let cluster = std::env::var("PAGETIDE_TEST_POSTGRES")
            .expect("PAGETIDE_TEST_POSTGRES names no Postgres: run the tests by `make test`");
        Self::create_on(cluster).await
    }

    /// On a cluster that the test brought up.
    pub(crate) async fn create_on(cluster: String) -> Self {
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        let mut conn = PgConnection::connect(&cluster).await.unwrap();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create).execute(&mut conn).await.unwrap();
        Self { name, cluster }
    }

    /// Its address, as `DATABASE_URL` takes it.
    pub(crate) fn url(&self) -> String {
        self.cluster
            .replacen("///postgres?", &format!("///{}?", self.name), 1)
    }

    /// Its address through something that listens on a port of the loopback.
    pub(crate) fn url_over_tcp(&self, port: u16) -> String {
        let name = &self.name;
        format!("postgres:///{name}?host=127.0.0.1&port={port}&user=postgres&sslmode=disable")
    }

    /// A connection to it.
    pub(crate) async fn connect(&self) -> PgConnection {
        let options = PgConnectOptions::from_str(&self.url()).unwrap();
        let options = options.application_name("test").disable_statement_logging();
        options.connect().await.unwrap()
    }

    /// One number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut conn = self.connect().await;
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&mut conn)
            .await
            .unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // By psql, for there may be no runtime to wait in.
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let dropped = std::process::Command::new("psql")
            .args(["-q", &self.cluster, "-c", &sql])
            .output();
        drop(dropped);
    }
}
