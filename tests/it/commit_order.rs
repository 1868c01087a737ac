//! Order of positions is order of commits: no reader skips a frame that was minted earlier and
//! committed later.

use serde_json::json;
use sqlx::{PgConnection, Row};

use crate::harness::load::{click, waiting};
use crate::harness::{Api, Database, Server, start, until};

/// A transaction of another writer, open: it has minted the book's next position.
struct Minted {
    conn: PgConnection,
    position: i64,
}

/// Locks the book's row, mints a frame and moves the row, as the write path does.
async fn mint(database: &Database, book: &str) -> Minted {
    let mut conn = database.connect().await;
    sqlx::raw_sql("BEGIN").execute(&mut conn).await.unwrap();
    let lock = "UPDATE books SET next_seq = next_seq + 1 WHERE slug = $1
                RETURNING id, position, revision";
    let row = sqlx::query(lock).bind(book).fetch_one(&mut conn);
    let row = row.await.unwrap();
    let id: uuid::Uuid = row.get("id");
    let (position, revision): (i64, i64) = (row.get("position"), row.get("revision"));
    let (position, revision) = (position + 1, revision + 1);
    let data = json!({"type": "counts", "book": id, "position": position,
                      "at": "2026-03-01T12:00:00.000Z", "revision": revision,
                      "structure_version": 0, "panes": []});
    let insert =
        "INSERT INTO frames (book_id, position, event, data) VALUES ($1, $2, 'counts', $3)";
    let insert = sqlx::query(insert).bind(id).bind(position);
    let inserted = insert.bind(data.to_string()).execute(&mut conn).await;
    inserted.unwrap();
    let advance = "UPDATE books SET position = $2, revision = $3 WHERE id = $1";
    let advance = sqlx::query(advance).bind(id).bind(position).bind(revision);
    advance.execute(&mut conn).await.unwrap();
    Minted { conn, position }
}

impl Minted {
    async fn commit(mut self) {
        let commit = sqlx::raw_sql("COMMIT").execute(&mut self.conn);
        commit.await.unwrap();
    }
}

async fn post_one(api: Api, book: &'static str) -> i64 {
    let receipt = api.clicks(book, click("/second").1).await;
    receipt["position"].as_i64().unwrap()
}

#[tokio::test]
async fn two_transactions_the_first_minting_and_sleeping_no_reader_skips() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("slow", 60_000, 60_000).await;
    let p = post_one(api.clone(), "slow").await;
    let mut before = api.follow("slow", "", Some(&p.to_string())).await;
    before.expect("hello").await;

    let first = mint(&database, "slow").await;
    assert_eq!(first.position, p + 1);
    let second = tokio::spawn(post_one(api.clone(), "slow"));
    until("the second transaction waits for the first", async || {
        (waiting(&database).await == 1).then_some(())
    })
    .await;
    let mut meanwhile = api.follow("slow", "", Some(&p.to_string())).await;
    assert_eq!(meanwhile.expect("hello").await.data["position"], p);
    assert!(!second.is_finished(), "it did not wait for the first");
    assert_eq!(waiting(&database).await, 1);

    first.commit().await;
    assert_eq!(second.await.unwrap(), p + 2);
    let mut after = api.follow("slow", "", Some(&p.to_string())).await;
    after.expect("hello").await;
    for reader in [&mut before, &mut meanwhile, &mut after] {
        for position in [p + 1, p + 2] {
            assert_eq!(reader.expect("counts").await.position(), Some(position));
        }
    }
}

#[tokio::test]
async fn a_reader_of_another_book_is_not_held_up_by_a_transaction_that_sleeps() {
    let (database, server) = start().await;
    let other_server = Server::start(&database).await;
    let (api, other) = (server.api(), other_server.api());
    api.plain_book("slow", 60_000, 60_000).await;
    api.plain_book("quick", 60_000, 60_000).await;
    let p = post_one(api.clone(), "slow").await;
    let mut slow = api.follow("slow", "", Some(&p.to_string())).await;
    let mut quick = api.follow("quick", "", None).await;
    slow.expect("hello").await;
    quick.expect("hello").await;

    let first = mint(&database, "slow").await;
    let second = tokio::spawn(post_one(api.clone(), "slow"));
    until("the second transaction waits for the first", async || {
        (waiting(&database).await == 1).then_some(())
    })
    .await;
    // From another process: in this one the two books may share a lane.
    for position in 1..=3 {
        assert_eq!(post_one(other.clone(), "quick").await, position);
        assert_eq!(quick.expect("counts").await.position(), Some(position));
    }
    assert_eq!(waiting(&database).await, 1, "the first was over too soon");

    first.commit().await;
    second.await.unwrap();
    for position in [p + 1, p + 2] {
        assert_eq!(slow.expect("counts").await.position(), Some(position));
    }
}

#[tokio::test]
async fn a_transaction_that_mints_and_rolls_back_leaves_no_gap() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("slow", 60_000, 60_000).await;
    let p = post_one(api.clone(), "slow").await;
    let mut reader = api.follow("slow", "", Some(&p.to_string())).await;
    reader.expect("hello").await;
    let mut first = mint(&database, "slow").await;
    let second = tokio::spawn(post_one(api.clone(), "slow"));
    until("the second transaction waits for the first", async || {
        (waiting(&database).await == 1).then_some(())
    })
    .await;
    let rollback = sqlx::raw_sql("ROLLBACK").execute(&mut first.conn);
    rollback.await.unwrap();
    assert_eq!(second.await.unwrap(), p + 1);
    let event = reader.expect("counts").await;
    assert_eq!(event.position(), Some(p + 1));
    assert_eq!(
        event.data["totals"]["on_time"], 2,
        "not the frame that was rolled back"
    );
}
