//! `pagetide token`: tokens made, listed and revoked from the terminal.

use std::process::Output;

use serde_json::json;

use crate::embedded::Scratch;
use crate::harness::steps::token as make;
use crate::harness::{Api, Database, Server, start, until};

async fn run(database: &Database, arguments: &[&str]) -> Output {
    let mut command = Server::command();
    command.env("DATABASE_URL", database.url());
    command.arg("token").args(arguments);
    command.output().await.unwrap()
}

/// What a command that went well wrote to standard output, and to standard error.
async fn said(database: &Database, arguments: &[&str]) -> (String, String) {
    let output = run(database, arguments).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{arguments:?}: {err}");
    (out, err)
}

/// Makes a token and gives what it reads as, which is all that is on standard output.
async fn create(database: &Database, arguments: &[&str]) -> String {
    let arguments: Vec<&str> = ["create"].iter().chain(arguments).copied().collect();
    let (out, err) = said(database, &arguments).await;
    let secret = out.strip_suffix('\n').unwrap().to_owned();
    assert!(secret.starts_with("pt_") && secret.len() == 46, "{out}");
    assert!(!err.contains(&secret), "{err}");
    secret
}

#[tokio::test]
async fn a_lost_admin_token_is_replaced_in_the_database() {
    // Before anything else was there, and beside a server that runs.
    let database = Database::create().await;
    let first = create(&database, &["--admin", "--label", "for the night shift"]).await;
    let server = Server::start(&database).await;
    let second = create(&database, &["--admin"]).await;
    for secret in [first, second] {
        let api = Api::new(&server.url, &secret);
        api.put("/v1/books/b", &json!({})).await;
        api.get("/v1/books/b").await.expect(200);
        assert_eq!(api.get("/metrics").await.status, 200);
    }
}

#[tokio::test]
async fn a_token_for_books_gives_what_was_said_and_ends_when_it_was_said() {
    let (database, server) = start().await;
    let api = server.api();
    for name in ["one", "two", "three"] {
        api.plain_book(name, 1000, 0).await;
    }
    let two = api.get("/v1/books/two").await.expect(200);
    let two_id = two["id"].as_str().unwrap();
    let secret = create(
        &database,
        &[
            "--book",
            "one",
            "--book",
            two_id,
            "--scope",
            "read",
            "--scope",
            "write",
            "--label",
            "the site",
            "--expires-in",
            "90d",
        ],
    )
    .await;
    let reader = api.with_token(&secret);
    for (name, status) in [("one", 200), ("two", 200), ("three", 404)] {
        let path = format!("/v1/books/{name}");
        assert_eq!(reader.get(&path).await.status, status, "{name}");
    }
    reader.clicks("one", json!({"page": "/a", "at": 1})).await;
    let listed = api.get("/v1/tokens").await.expect(200);
    let made = &listed["items"][0];
    assert_eq!(made["label"], "the site");
    assert_eq!(made["scopes"], json!(["read", "write"]));
    let ends = chrono::DateTime::parse_from_rfc3339(made["expires_at"].as_str().unwrap());
    let left = ends.unwrap().to_utc() - chrono::Utc::now();
    assert_eq!(left.num_days(), 89, "{left}");

    let every = create(&database, &["--book", "*", "--scope", "manage"]).await;
    let manager = api.with_token(&every);
    manager
        .patch("/v1/books/three", &json!({}))
        .await
        .expect(200);
    assert_eq!(manager.get("/metrics").await.problem(403), "forbidden");

    let (list, _) = said(&database, &["list"]).await;
    let lines: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(lines[0], ["ID", "SCOPES", "BOOKS", "EXPIRES", "LABEL"]);
    assert_eq!(lines[1][1..3], ["read,write", "one,two"]);
    assert_eq!(lines[1][3], made["expires_at"]);
    assert_eq!(lines[1][4], "the site");
    assert_eq!(lines[2][1..], ["manage", "*", "never", ""]);
    assert_eq!(lines.len(), 3);
    assert!(!list.contains(&secret) && !list.contains(&every));
}

#[tokio::test]
async fn a_server_that_runs_notices_a_revocation_from_the_terminal() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let made = make(&api, "b", "read").await;
    let kept = make(&api, "b", "read").await;
    let reader = api.with_token(made["token"].as_str().unwrap());
    let mut stream = reader.follow("b", "", None).await;
    stream.expect("hello").await;
    let id = made["id"].as_str().unwrap();
    said(&database, &["revoke", id]).await;
    let ended = stream.expect("session_ended").await;
    assert_eq!(ended.data, json!({"reason": "revoked"}));
    assert!(stream.next().await.is_none());
    until("the token holds no more", || async {
        (reader.get("/v1/books/b").await.status == 401).then_some(())
    })
    .await;
    api.with_token(kept["token"].as_str().unwrap())
        .get("/v1/books/b")
        .await
        .expect(200);
    let again = run(&database, &["revoke", id]).await;
    assert_eq!(again.status.code(), Some(1));
    let err = String::from_utf8(again.stderr).unwrap();
    assert!(err.contains(&format!("there is no token {id}")), "{err}");
}

#[tokio::test]
async fn what_makes_no_sense_makes_no_token() {
    let (database, server) = start().await;
    server.api().plain_book("b", 1000, 0).await;
    let long = "l".repeat(201);
    for arguments in [
        &[][..],
        &["--book", "b"],
        &["--scope", "read"],
        &["--admin", "--book", "b", "--scope", "read"],
        &["--admin", "--scope", "read"],
        &["--book", "b", "--scope", "admin"],
        &["--book", "b", "--scope", "all"],
        &["--book", "none", "--scope", "read"],
        &["--admin", "--expires-in", "0d"],
        &["--admin", "--expires-in", "90"],
        &["--admin", "--expires-in", "9000000d"],
        &["--admin", "--label", &long],
        &["--admin", "--label", "a\tb"],
    ] {
        let arguments: Vec<&str> = ["create"].iter().chain(arguments).copied().collect();
        let output = run(&database, &arguments).await;
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
    assert_eq!(database.number("SELECT count(*) FROM tokens").await, 0);
}

#[tokio::test]
async fn the_embedded_postgres_is_that_of_the_server_which_runs_or_is_brought_up() {
    let scratch = Scratch::new();
    let run = async |arguments: &[&str]| {
        let mut command = Server::command();
        command.env("PAGETIDE_DATA_DIR", scratch.data());
        let output = command.arg("token").args(arguments).output().await.unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{err}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    };
    let before = run(&["create", "--admin"]).await;
    let mut command = Server::command();
    command.env("PAGETIDE_DATA_DIR", scratch.data());
    let server = Server::spawn(command).await;
    let beside = run(&["create", "--admin"]).await;
    for secret in [&before, &beside] {
        let api = Api::new(&server.url, secret);
        api.get("/v1/books").await.expect(200);
    }
    let list = run(&["list"]).await;
    let id = list
        .lines()
        .nth(1)
        .unwrap()
        .split('\t')
        .next()
        .unwrap()
        .to_owned();
    server.terminate().await;
    run(&["revoke", &id]).await;
    assert_eq!(run(&["list"]).await.lines().count(), 2);
}
