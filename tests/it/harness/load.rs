//! Clicks under load, and what became of them.

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Answer, Api, Database, PATIENCE};

/// A click with an id of its own, of a moment that all clicks share, so that none is late.
pub(crate) fn click(page: &str) -> (Uuid, Value) {
    let id = Uuid::new_v4();
    (id, json!({"id": id, "page": page, "at": 1000}))
}

/// How often each page was counted.
pub(crate) async fn views(api: &Api, book: &str) -> BTreeMap<String, i64> {
    let mut views = BTreeMap::new();
    for item in api.counts(book, "pages").await {
        let page = item["group"].as_str().unwrap().to_owned();
        *views.entry(page).or_default() += item["value"].as_i64().unwrap();
    }
    views
}

/// All clicks that were counted.
pub(crate) async fn counted(api: &Api, book: &str) -> i64 {
    views(api, book).await.values().sum()
}

/// The book's totals.
pub(crate) async fn totals(api: &Api, book: &str) -> Value {
    let book = api.get(&format!("/v1/books/{book}")).await.expect(200);
    book["totals"].clone()
}

/// The ids of all clicks that are stored.
pub(crate) async fn stored(database: &Database) -> HashSet<Uuid> {
    let mut conn = database.connect().await;
    let ids = sqlx::query_scalar("SELECT click_id FROM clicks");
    ids.fetch_all(&mut conn)
        .await
        .unwrap()
        .into_iter()
        .collect()
}

/// The sum of a metric over its labels.
pub(crate) async fn metric(api: &Api, name: &str) -> f64 {
    let text = api.get("/metrics").await.text;
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let values = lines.filter(|rest| rest.starts_with([' ', '{']));
    values
        .filter_map(|rest| f64::from_str(rest.rsplit(' ').next()?).ok())
        .sum()
}

/// Begins a transaction that holds the row of a book; `ROLLBACK` lets it go.
pub(crate) async fn hold(database: &Database, book: &str) -> PgConnection {
    let mut conn = database.connect().await;
    sqlx::raw_sql("BEGIN").execute(&mut conn).await.unwrap();
    let lock = sqlx::query("UPDATE books SET next_seq = next_seq + 1 WHERE slug = $1");
    let locked = lock.bind(book).execute(&mut conn).await.unwrap();
    assert_eq!(locked.rows_affected(), 1);
    conn
}

/// How many transactions of servers wait for a row that another one holds.
pub(crate) async fn waiting(database: &Database) -> i64 {
    let sql = "SELECT count(DISTINCT a.pid) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
               WHERE a.datname = current_database() AND a.application_name = 'pagetide'
                 AND a.wait_event_type = 'Lock' AND NOT l.granted";
    database.number(sql).await
}

/// Writers that post clicks one by one, each until it is acknowledged, again with the same id if
/// it was not.
pub(crate) struct Load {
    url: watch::Sender<String>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    writers: JoinSet<Written>,
}

/// What writers did.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) acknowledged: HashSet<Uuid>,
    /// Posts that were not acknowledged.
    pub(crate) failed: usize,
    /// Clicks whose first acknowledgement was "duplicate": an earlier post had been committed.
    pub(crate) duplicates: usize,
}

impl Load {
    pub(crate) fn start(api: &Api, book: &str, writers: usize) -> Self {
        let mut load = Self {
            url: watch::Sender::new(api.url.clone()),
            stop: Arc::default(),
            acknowledged: Arc::default(),
            writers: JoinSet::new(),
        };
        for number in 0..writers {
            let api = api.clone();
            let path = format!("/v1/books/{book}/clicks");
            let (url, stop) = (load.url.subscribe(), Arc::clone(&load.stop));
            let acknowledged = Arc::clone(&load.acknowledged);
            load.writers.spawn(async move {
                let mut written = Written::default();
                while !stop.load(Ordering::SeqCst) {
                    let (id, click) = click(&format!("/{number}"));
                    written.post_until_taken(&api, &url, &path, &click).await;
                    written.acknowledged.insert(id);
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                written
            });
        }
        load
    }

    /// How many clicks were acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// The server is at another address now.
    pub(crate) fn move_to(&self, url: &str) {
        self.url.send_replace(url.to_owned());
    }

    /// Stops, once every click that was begun is acknowledged.
    pub(crate) async fn finish(self) -> Written {
        self.stop.store(true, Ordering::SeqCst);
        let all = tokio::time::timeout(PATIENCE, self.writers.join_all()).await;
        let mut sum = Written::default();
        for one in all.expect("some click was never acknowledged") {
            sum.acknowledged.extend(one.acknowledged);
            sum.failed += one.failed;
            sum.duplicates += one.duplicates;
        }
        sum
    }
}

impl Written {
    async fn post_until_taken(
        &mut self,
        api: &Api,
        url: &watch::Receiver<String>,
        path: &str,
        click: &Value,
    ) {
        loop {
            let url = format!("{}{path}", url.borrow().clone());
            let request = api.http.post(url).bearer_auth(&api.token).json(click);
            if let Some(answer) = answer(request).await {
                if answer.status == 200 {
                    let receipt = answer.json();
                    assert_eq!(receipt["received"], 1, "{receipt}");
                    if receipt["duplicates"] == 1 {
                        self.duplicates += 1;
                    } else {
                        assert_eq!(receipt["on_time"], 1, "{receipt}");
                    }
                    return;
                }
                assert_eq!(answer.status, 503, "{}", answer.text);
                assert!(answer.headers.contains_key("retry-after"));
            }
            self.failed += 1;
            // As a client would, only sooner.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// An answer, unless the connection failed before its end.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Option<Answer> {
    let response = request.send().await.ok()?;
    Some(Answer {
        status: response.status(),
        headers: response.headers().clone(),
        text: response.text().await.ok()?,
    })
}
