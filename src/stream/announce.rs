//! Wake-ups between processes: `LISTEN` and `NOTIFY`.
//!
//! Sent after the commit, from a connection of its own, at most every few milliseconds: inside a
//! write transaction a notification would make the commits of all lanes wait for one another. It is
//! a hint only; what gets lost, the hub's poll finds.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::{PgConnectOptions, PgListener};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::hub::Hub;
use crate::{db, telemetry};

const CHANNEL: &str = "pagetide_frames";

/// Shortest time between two announcements.
const SPACING: Duration = Duration::from_millis(5);

/// How long to wait before a lost connection is made again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Postgres takes 8,000 bytes with a notification, its end included.
const PAYLOAD_BYTES: usize = 7_900;

/// Stands for every book, where there are too many to name.
const EVERY_BOOK: &str = "*";

/// The books that this process has yet to announce.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    books: Mutex<HashSet<Uuid>>,
    filled: Notify,
}

impl Outbox {
    pub(super) fn put(&self, books: &[Uuid]) {
        if books.is_empty() {
            return;
        }
        let mut waiting = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(books);
        self.filled.notify_one();
    }

    fn take(&self) -> HashSet<Uuid> {
        let mut waiting = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting)
    }
}

/// `sender:id,id,…`, where a process does not listen to itself.
fn payload(sender: Uuid, books: &HashSet<Uuid>) -> String {
    let sender = sender.simple();
    let each = uuid::fmt::Simple::LENGTH + 1;
    if (books.len() + 1) * each > PAYLOAD_BYTES {
        return format!("{sender}:{EVERY_BOOK}");
    }
    let ids: Vec<String> = books.iter().map(|b| b.simple().to_string()).collect();
    format!("{sender}:{}", ids.join(","))
}

/// How long the last announcement may take.
const LAST: Duration = Duration::from_millis(500);

/// Announces what this process commits, until `stop`; then what is left, so that a process which
/// ends right after its last commit is heard of.
pub async fn announce(hub: Arc<Hub>, database: PgConnectOptions, stop: CancellationToken) {
    let mut connection: Option<PgConnection> = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => {}
            () = hub.outbox.filled.notified() => {}
        }
        let books = hub.outbox.take();
        if stop.is_cancelled() {
            if !books.is_empty() {
                let payload = payload(hub.process, &books);
                let last = notify(&mut connection, &database, &payload);
                let _ = tokio::time::timeout(LAST, last).await;
            }
            return;
        }
        let pause = match notify(&mut connection, &database, &payload(hub.process, &books)).await {
            Ok(()) => SPACING,
            Err(error) => {
                tracing::warn!(error = %telemetry::chain(&error), "other processes were not told of new frames; they will find them");
                connection = None;
                RECONNECT
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn notify(
    connection: &mut Option<PgConnection>,
    database: &PgConnectOptions,
    payload: &str,
) -> Result<(), sqlx::Error> {
    let connection = match connection {
        Some(connection) => connection,
        none => none.insert(db::connect(database).await?),
    };
    sqlx::query!("SELECT pg_notify($1, $2)", CHANNEL, payload)
        .execute(connection)
        .await?;
    Ok(())
}

/// Wakes the hub for what other processes announce, until `stop`.
pub async fn listen(hub: Arc<Hub>, stop: CancellationToken) {
    loop {
        let listening = async {
            let mut listener = PgListener::connect_with(&hub.pool).await?;
            listener.listen(CHANNEL).await?;
            loop {
                // Whatever was announced while nobody listened is looked for.
                hub.wake_all();
                while let Some(heard) = listener.try_recv().await? {
                    hear(&hub, heard.payload());
                }
                tracing::warn!("the listening connection was lost; making it again");
            }
        };
        let Err::<std::convert::Infallible, sqlx::Error>(error) = tokio::select! {
            () = stop.cancelled() => return,
            failed = listening => failed,
        };
        tracing::warn!(error = %telemetry::chain(&error), "cannot listen for other processes; polling");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RECONNECT) => {}
        }
    }
}

fn hear(hub: &Hub, payload: &str) {
    let Some((sender, books)) = payload.split_once(':') else {
        return;
    };
    if Uuid::try_parse(sender) == Ok(hub.process) {
        return;
    }
    if books == EVERY_BOOK {
        hub.wake_all();
        return;
    }
    let books: Vec<Uuid> = books
        .split(',')
        .filter_map(|id| Uuid::try_parse(id).ok())
        .collect();
    hub.wake_here(&books);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_becomes_a_star() {
        let of = |n: u128| payload(Uuid::nil(), &(0..n).map(Uuid::from_u128).collect());
        assert!(of(238).len() <= PAYLOAD_BYTES);
        assert!(!of(238).ends_with(EVERY_BOOK));
        assert!(of(239).ends_with(EVERY_BOOK));
    }
}
