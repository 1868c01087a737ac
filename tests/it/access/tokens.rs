//! Tokens are made, listed, revoked, and kept as a hash alone.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{id, secret, token};
use crate::harness::{Api, Server, start, until};
use crate::raw::fields;

#[tokio::test]
async fn whoever_manages_a_book_makes_tokens_for_it() {
    let (_database, server) = start().await;
    let api = server.api();
    let mine = api.plain_book("mine", 1000, 0).await;
    api.plain_book("other", 1000, 0).await;
    let manager = token(&api, &["mine"], &["manage"]).await;
    let manager = api.with_token(secret(&manager));
    let new = json!({"books": ["mine"], "scopes": ["write"], "label": "the site"});
    let answer = manager.post("/v1/tokens", &new).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let made = answer.expect(201);
    assert!(secret(&made).starts_with("pt_") && secret(&made).len() == 46);
    assert_eq!(made["books"], json!([mine["id"]]));
    assert_eq!(
        (&made["scopes"], &made["label"]),
        (&json!(["write"]), &json!("the site"))
    );
    assert_eq!(made["expires_at"], Value::Null);
    let writer = api.with_token(secret(&made));
    assert_eq!(
        writer.clicks("mine", json!({"page": "/a", "at": 1})).await["on_time"],
        1
    );

    // A book that it may not know of is one that does not exist.
    for name in ["other", "missing"] {
        let new = json!({"books": ["mine", name], "scopes": ["read"]});
        let problem = manager.post("/v1/tokens", &new).await.expect(422);
        assert_eq!(problem["errors"][0]["code"], "no_such_book");
    }
    let list = api.get("/v1/tokens").await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_token_that_makes_no_sense_is_refused_with_all_that_is_wrong() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let new = json!({"books": ["missing"], "scopes": [], "label": "a\u{0}", "expires_in_ms": 0});
    let problem = api.post("/v1/tokens", &new).await.expect(422);
    let mut wrong = fields(&problem);
    wrong.sort();
    assert_eq!(wrong, ["books", "expires_in_ms", "label", "scopes"]);
    for new in [
        json!({"scopes": ["read"]}),
        json!({"books": [], "scopes": ["read"]}),
        json!({"books": ["b"], "scopes": ["all"]}),
        json!({"books": ["b"], "scopes": "read"}),
        json!({"books": "b", "scopes": ["read"]}),
        json!({"books": ["b"], "scopes": ["read"], "expires_in_ms": -1}),
        json!({"books": ["b"], "scopes": ["read"], "expires_in_ms": i64::MAX}),
        json!({"books": ["b"], "scopes": ["read"], "expires_in_ms": 1.5}),
        json!({"books": ["b"], "scopes": ["read"], "label": "l".repeat(201)}),
        json!({"books": ["b"], "scopes": ["read"], "ttl": 5}),
        json!({"books": ["b"]}),
        json!([["b"], ["read"]]),
    ] {
        let answer = api.post("/v1/tokens", &new).await;
        assert_eq!(answer.problem(422), "invalid", "{new}");
    }
    assert_eq!(api.get("/v1/tokens").await.expect(200)["items"], json!([]));
}

/// All tokens that `api` sees, and the text of all pages.
async fn listed(api: &Api, limit: usize) -> (Vec<String>, String) {
    let (mut ids, mut texts, mut cursor) = (Vec::new(), String::new(), String::new());
    loop {
        let answer = api.get(&format!("/v1/tokens?limit={limit}{cursor}")).await;
        texts.push_str(&answer.text);
        let page = answer.expect(200);
        ids.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| id(t).to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (ids, texts),
        }
    }
}

#[tokio::test]
async fn the_list_of_tokens_shows_those_of_the_callers_books_and_no_secrets() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("mine", 1000, 0).await;
    api.plain_book("other", 1000, 0).await;
    let mut all = Vec::new();
    for (books, scopes) in [
        (&["mine"][..], &["manage"][..]),
        (&["other"], &["read"]),
        (&["mine"], &["read"]),
        (&["mine", "other"], &["read"]),
        (&["*"], &["read"]),
        (&[], &["admin"]),
        (&["mine"], &["write"]),
    ] {
        all.push(token(&api, books, scopes).await);
    }
    let ids: Vec<&str> = all.iter().map(id).collect();
    let manager = api.with_token(secret(&all[0]));
    for limit in [1, 2, 1000] {
        let (seen, text) = listed(&manager, limit).await;
        assert_eq!(seen, [ids[0], ids[2], ids[6]], "{limit} at a time");
        let (seen, everything) = listed(&api, limit).await;
        assert_eq!(seen, ids, "{limit} at a time");
        for token in &all {
            assert!(!text.contains(secret(token)) && !everything.contains(secret(token)));
        }
    }
}

#[tokio::test]
async fn a_page_of_the_list_of_tokens_names_none_that_the_caller_may_not_see() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("mine", 1000, 0).await;
    let mine = token(&api, &["mine"], &["manage"]).await;
    let foreign = token(&api, &[], &["admin"]).await;
    token(&api, &["mine"], &["read"]).await;
    let (_, text) = listed(&api.with_token(secret(&mine)), 1).await;
    assert!(!text.contains(id(&foreign)), "{text}");
}

#[tokio::test]
async fn a_revoked_token_holds_nowhere_after_a_second() {
    let (database, server) = start().await;
    let other = Server::start(&database).await;
    let api = server.api();
    api.book("b", json!({})).await;
    let revoked = token(&api, &["b"], &["read"]).await;
    let kept = token(&api, &["b"], &["read"]).await;
    let here = api.with_token(secret(&revoked));
    let there = other.api().with_token(secret(&revoked));
    for api in [&here, &there] {
        api.get("/v1/books/b").await.expect(200);
    }
    api.delete(&format!("/v1/tokens/{}", id(&revoked)))
        .await
        .expect(204);
    let began = Instant::now();
    assert_eq!(here.get("/v1/books/b").await.problem(401), "unauthorized");
    until("the other process forgets it too", || async {
        (there.get("/v1/books/b").await.status == 401).then_some(())
    })
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let again = api.delete(&format!("/v1/tokens/{}", id(&revoked))).await;
    assert_eq!(again.problem(404), "not_found");
    assert_eq!(
        api.delete("/v1/tokens/nonsense").await.problem(404),
        "not_found"
    );
    api.with_token(secret(&kept))
        .get("/v1/books/b")
        .await
        .expect(200);
}

#[tokio::test]
async fn a_token_ends_when_it_expires() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let new = json!({"books": ["b"], "scopes": ["read"], "expires_in_ms": 1500});
    let before = chrono::Utc::now().timestamp_millis();
    let made = api.post("/v1/tokens", &new).await.expect(201);
    let after = chrono::Utc::now().timestamp_millis();
    let ends = made["expires_at"].as_str().unwrap();
    let ends = chrono::DateTime::parse_from_rfc3339(ends)
        .unwrap()
        .timestamp_millis();
    assert!((before + 1500..=after + 1500).contains(&ends));
    let short = api.with_token(secret(&made));
    short.get("/v1/books/b").await.expect(200);
    until("the token expires", || async {
        (short.get("/v1/books/b").await.status == 401).then_some(())
    })
    .await;
    assert!(chrono::Utc::now().timestamp_millis() >= ends);
}

/// Every row of every table, as text.
async fn everything(conn: &mut PgConnection) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name)
         FROM information_schema.tables
         WHERE table_schema NOT IN ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&mut *conn)
    .await
    .unwrap();
    let mut rows = Vec::new();
    for table in tables {
        let sql = AssertSqlSafe(format!("SELECT t::text FROM {table} t"));
        let more: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut *conn).await.unwrap();
        rows.extend(more);
    }
    rows
}

#[tokio::test]
async fn of_a_secret_the_database_holds_only_the_sha_256() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let made = token(&api, &["b"], &["manage"]).await;
    let manager = api.with_token(secret(&made));
    manager.clicks("b", json!({"page": "/a", "at": 1})).await;
    manager
        .patch("/v1/books/b", &json!({"title": "T"}))
        .await
        .expect(200);
    let rows = everything(&mut database.connect().await).await;
    assert!(rows.len() > 5);
    let hex = |bytes: &[u8]| {
        let mut text = String::new();
        for byte in bytes {
            write!(text, "{byte:02x}").unwrap();
        }
        text
    };
    let hash = hex(&Sha256::digest(secret(&made)));
    assert_eq!(rows.iter().filter(|row| row.contains(&hash)).count(), 1);
    for secret in [secret(&made), &secret(&made)[3..], &api.token] {
        let in_hex = hex(secret.as_bytes());
        let held = rows
            .iter()
            .any(|row| row.contains(secret) || row.contains(&in_hex));
        assert!(!held, "the database holds a secret");
    }
}
