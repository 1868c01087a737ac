//! Peers that are a few lines of this very program, which runs itself again as a process of its own.

use std::net::Ipv4Addr;

use axum::Router;
use clap::Subcommand;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use super::{naive, parse_only};
use crate::Error;
use crate::report::say;
use crate::service::{self, LISTENING};

/// What the program is when it runs itself.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Role {
    /// A handler that parses a click.
    #[command(hide = true)]
    ParseOnly,
    /// A handler with a transaction for each click.
    #[command(hide = true)]
    Naive {
        /// As Postgres wants it.
        database: String,
    },
}

impl Role {
    /// Is that, until it is killed.
    pub(crate) async fn play(self) -> Result<(), Error> {
        let router: Router = match self {
            Self::ParseOnly => parse_only::router(),
            Self::Naive { database } => naive::router(&database).await?,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        say(&format!("{LISTENING}{}", listener.local_addr()?));
        axum::serve(listener, router).await?;
        Ok(())
    }

    fn arguments(&self) -> Vec<&str> {
        match self {
            Self::ParseOnly => vec!["parse-only"],
            Self::Naive { database } => vec!["naive", database],
        }
    }
}

/// A peer that runs; killed when dropped.
pub(crate) struct Peer {
    child: Child,
    /// Host and port.
    pub(crate) address: String,
}

impl Peer {
    /// Starts one.
    pub(crate) async fn start(role: &Role) -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(role.arguments());
        let (child, address) = service::listening(command).await?;
        Ok(Self { child, address })
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        Ok(self.child.kill().await?)
    }
}
