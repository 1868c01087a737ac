//! Steps that tests of the stream share.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::sse::Event;
use super::{Api, Database, Server, load};

/// Posts clicks one by one, each a commit and a frame of its own, and gives the last position.
pub(crate) async fn single_clicks(api: &Api, book: &str, clicks: usize) -> i64 {
    let mut position = 0;
    for _ in 0..clicks {
        let answer = api.clicks(book, json!({"page": "/p", "at": 1000})).await;
        position = answer["position"].as_i64().unwrap();
    }
    position
}

/// Posts clicks and gives the frames of their commit.
pub(crate) async fn frames_of(api: &Api, book: &str, clicks: Value) -> Vec<Event> {
    let mut events = api.follow(book, "", None).await;
    let before = events.expect("hello").await.data["position"].as_i64();
    let position = api.clicks(book, clicks).await["position"].as_i64();
    assert!(position > before);
    events.through(position.unwrap()).await
}

/// Does something to the database behind the server's back.
pub(crate) async fn execute(database: &Database, sql: &str) {
    let mut conn = database.connect().await;
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
}

/// A frame of another process that tells nobody of it; `more` is set on the book with it.
pub(crate) async fn frame_by_hand(database: &Database, event: &str, more: &str) {
    let sql = format!(
        "WITH moved AS (UPDATE books SET position = position + 1, revision = revision + 1 {more}
                        RETURNING id, position)
         INSERT INTO frames (book_id, position, event, data)
         SELECT id, position, '{event}',
                json_build_object('type', '{event}', 'position', position, 'by', 'hand')::text
         FROM moved"
    );
    execute(database, &sql).await;
}

/// Lets commits of servers that are started from now on not wait for the disk: what a test shows of
/// order and loss is the same, and it shows it at a rate that is worth showing.
pub(crate) async fn without_waiting_for_the_disk(database: &Database) {
    let sql = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off',
                                          current_database()); END $$";
    execute(database, sql).await;
}

/// The value of a metric, over all its labels; 0 if nothing was counted yet.
#[allow(clippy::cast_possible_truncation, reason = "it is a whole number")]
pub(crate) async fn metric(api: &Api, name: &str) -> i64 {
    load::metric(api, name).await.round() as i64
}

/// How many streams the book says are open.
pub(crate) async fn streams_open(api: &Api, book: &str) -> i64 {
    let body = api.get(&format!("/v1/books/{book}")).await.expect(200);
    body["streams_open"].as_i64().unwrap()
}

/// A token of its own for a book.
pub(crate) async fn token(api: &Api, book: &str, scope: &str) -> Value {
    let new = json!({"books": [book], "scopes": [scope]});
    api.post("/v1/tokens", &new).await.expect(201)
}

/// What a reader knows of a book's windows: (rollup, start, end, group) and value.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Known(BTreeMap<[String; 4], i64>);

impl Known {
    fn set(&mut self, window: &Value, rollup: &str, group: &str, value: &Value) {
        let text = |name: &str| window[name].as_str().unwrap().to_owned();
        let key = [
            rollup.to_owned(),
            text("start"),
            text("end"),
            group.to_owned(),
        ];
        self.0.insert(key, value.as_i64().unwrap());
    }

    fn set_all(&mut self, windows: &Value) {
        for window in windows.as_array().unwrap() {
            assert_eq!(window.get("truncated"), None);
            let rollup = window["rollup"].as_str().unwrap();
            for (group, value) in window["values"].as_object().unwrap() {
                self.set(window, rollup, group, value);
            }
        }
    }

    /// All that a snapshot shows.
    pub(crate) fn of_snapshot(snapshot: &Value) -> Self {
        let mut known = Self::default();
        known.set_all(&snapshot["windows"]);
        known
    }

    /// All that `GET …/counts` shows of a rollup.
    pub(crate) async fn of_counts(api: &Api, book: &str, rollup: &str) -> Self {
        let mut known = Self::default();
        for item in api.counts(book, rollup).await {
            known.set(
                &item,
                rollup,
                item["group"].as_str().unwrap(),
                &item["value"],
            );
        }
        known
    }

    /// Takes in what a frame says: values are absolute, and what is replaced goes first.
    pub(crate) fn learn(&mut self, data: &Value) {
        if data["type"] != "counts" {
            return;
        }
        for pane in data["panes"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            for gone in pane["replaces"].as_array().unwrap_or(&Vec::new()) {
                let [start, end, group] = ["start", "end", "group"].map(|name| text(&gone[name]));
                self.0.remove(&[text(&pane["rollup"]), start, end, group]);
            }
        }
        self.set_all(&data["panes"]);
    }
}

/// Pages of all panes of these events, in order.
pub(crate) fn pages(events: &[Event]) -> Vec<String> {
    let mut pages = Vec::new();
    for event in events.iter().filter(|e| e.name == "counts") {
        for pane in event.data["panes"].as_array().unwrap() {
            pages.extend(pane["values"].as_object().unwrap().keys().cloned());
        }
    }
    pages
}

/// A server that does not wait for the disk, and a book `b` on it whose buffer holds so many frames.
pub(crate) async fn buffered_book(buffer_frames: i64) -> (Database, Server, Api) {
    let database = Database::create().await;
    without_waiting_for_the_disk(&database).await;
    let server = Server::start(&database).await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": 3_600_000}}],
        "settings": {"delay_ms": 0, "lateness_ms": 0, "max_future_ms": null,
                     "canonical_pages": false, "buffer_frames": buffer_frames},
    });
    api.book("b", fields).await;
    (database, server, api)
}

/// From now on clicks whose page begins with `/poison` are refused for good.
pub(crate) async fn poison(database: &Database) {
    let sql = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
               BEGIN
                   RAISE EXCEPTION 'a secret of the database' USING ERRCODE = '23514';
               END $$;
               CREATE TRIGGER refuse BEFORE INSERT ON clicks FOR EACH ROW
               WHEN (NEW.page LIKE '/poison%') EXECUTE FUNCTION refuse()";
    execute(database, sql).await;
}

/// The trigger of [`poison`] is gone.
pub(crate) async fn cure(database: &Database) {
    execute(database, "DROP TRIGGER refuse ON clicks").await;
}
