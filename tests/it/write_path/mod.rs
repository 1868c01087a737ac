//! The write path where things go wrong: what passes is tried again, what cannot pass is set aside,
//! and nothing is acknowledged that was not committed.

mod dead_letters;
mod debounce;
mod gathering;
mod keys;
mod remembered;
mod retries;
mod single_statement;
mod stopping;
mod twice;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use pagetide::click::{Click, ClickId};
use pagetide::ingest::commit::{Batch, Receipt};
use pagetide::ingest::lane::{LaneConfig, Lanes, SubmitError, Work};
use pagetide::ingest::retry::Retries;
use pagetide::stream::hub::Hub;
use pagetide::time::Timestamp;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::harness::Database;

/// Lanes without a server around them.
struct Runtime {
    lanes: Arc<Lanes>,
    tasks: TaskTracker,
    hurry: CancellationToken,
}

impl Runtime {
    fn start(database: &Database, lanes: usize, retries: Retries) -> Self {
        let options: PgConnectOptions = database.url().parse().unwrap();
        let pool = PgPoolOptions::new().connect_lazy_with(options.clone());
        let hub = Arc::new(Hub::new(pool.clone(), pool));
        let (tasks, hurry) = (TaskTracker::new(), CancellationToken::new());
        let config = LaneConfig {
            lanes,
            gather: Duration::from_millis(3),
            queue_clicks: 100_000,
            retries,
        };
        let options = options.disable_statement_logging();
        Self {
            lanes: Arc::new(Lanes::start(&config, &options, &hub, &tasks, &hurry)),
            tasks,
            hurry,
        }
    }

    /// One click a request.
    async fn click(&self, book: Uuid, page: &str) -> Result<Receipt, SubmitError> {
        let clicks = vec![click(page)];
        let batch = Batch {
            clicks,
            ..Batch::default()
        };
        self.lanes.submit(book, Work::Clicks(Arc::new(batch))).await
    }

    /// Many requests of one click each, all at once.
    async fn clicks(&self, book: Uuid, pages: &[String]) -> Vec<Result<Receipt, SubmitError>> {
        join_all(pages.iter().map(|page| self.click(book, page))).await
    }

    /// Ends the lanes at once, and waits until they have.
    async fn stop(self) {
        self.hurry.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn click(page: &str) -> Click {
    let at = Timestamp::from_millis(1000).unwrap();
    Click {
        id: ClickId::made(),
        at,
        received_at: Timestamp::now(),
        page: page.to_owned(),
        visitor: None,
        referrer: None,
        source: None,
        value: None,
    }
}

fn id_of(book: &serde_json::Value) -> Uuid {
    book["id"].as_str().unwrap().parse().unwrap()
}
