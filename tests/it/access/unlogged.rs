//! Credentials are in no log, whatever its level, in no metric and in no problem.

use std::process::Stdio;

use reqwest::{Client, Method};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;

use super::sessions::{by_cookie, open, session};
use super::{id, secret, token};
use crate::harness::api::Answer;
use crate::harness::server::ADMIN;
use crate::harness::{Api, Database, Server};

/// A server that logs all that it can, and what it will have logged.
async fn talkative(database: &Database, format: &str) -> (Server, JoinHandle<String>) {
    let mut command = Server::command();
    command
        .env("DATABASE_URL", database.url())
        .env("PAGETIDE_ADMIN_TOKEN", ADMIN)
        .env("PAGETIDE_LOG", "trace")
        .env("PAGETIDE_LOG_FORMAT", format)
        .stderr(Stdio::piped());
    let mut server = Server::spawn(command).await;
    let mut stderr = server.stderr().unwrap();
    let log = tokio::spawn(async move {
        let mut text = String::new();
        stderr.read_to_string(&mut text).await.unwrap();
        text
    });
    (server, log)
}

/// Shows credentials in every place that takes some and in others, right and wrong, and gives the
/// credentials and what was answered where none belong.
async fn show_credentials(api: &Api) -> (Vec<String>, String) {
    let admin = api.with_token(ADMIN);
    let book = if admin.get("/v1/books/b").await.status == 404 {
        admin.plain_book("b", 1000, 0).await
    } else {
        admin.get("/v1/books/b").await.expect(200)
    };
    let writer = token(&admin, &["b"], &["write"]).await;
    let reader = token(&admin, &["b"], &["read"]).await;
    let by_reader = admin.with_token(secret(&reader));
    let opened = open(&by_reader, json!({})).await;
    let (key, own) = (secret(&writer).to_owned(), session(&opened).to_owned());
    let wrong_key = key.replace("pt_", "px_");
    let wrong_session = format!("{own}x");
    let mut said = String::new();
    for session in [&own, &wrong_session] {
        for path in [
            format!("/v1/books/b/snapshot?session={session}"),
            format!("/v1/books/b/snapshot?session={session}&since=x"),
            format!("/v1/books/b/snapshot?session={session}&unknown=1"),
            format!("/v1/books/b/snapshot?session={session}&session={session}"),
            format!("/v1/books/b/counts?session={session}&rollup=pages"),
            format!("/v1/books/b/counts?session={session}"),
            format!(
                "/v1/books/{}/counts?rollup=none&session={session}",
                id(&book)
            ),
            format!("/v1/books/b/events?last_event_id=x&session={session}"),
            format!("/v1/books/b/chapters?session={session}"),
            format!("/v1/books?session={session}"),
            format!("/v1/none?session={session}"),
            format!("/v1/tokens?cursor=x&session={session}"),
        ] {
            let request = api.http.get(format!("{}{path}", api.url));
            said += &Answer::of(request).await.text;
            let request = by_cookie(api, session, Method::GET, &path);
            said += &Answer::of(request).await.text;
            let request = by_cookie(api, session, Method::PUT, &path).json(&json!({}));
            said += &Answer::of(request).await.text;
        }
        // A stream that is open is a request too.
        let url = format!("{}/v1/books/b/events?session={session}", api.url);
        drop(api.http.get(url).send().await.unwrap());
    }
    for key in [&key, &wrong_key] {
        for (path, body) in [
            ("/v1/books/b/clicks", r#"{"page":"/a"}"#),
            ("/v1/books/b/clicks", "no json"),
            ("/v1/books/none/clicks", r#"{"page":"/a"}"#),
            ("/v1/books/b/clicks/more", r#"{"page":"/a"}"#),
        ] {
            let request = api.http.post(format!("{}{path}?key={key}", api.url));
            said += &Answer::of(request.body(body)).await.text;
            let request = admin.with_token(key).request(Method::POST, path);
            said += &Answer::of(request.body(body)).await.text;
        }
    }
    said += &admin.get("/metrics").await.text;
    let logout = by_cookie(api, &own, Method::DELETE, "/v1/sessions/current");
    said += &Answer::of(logout).await.text;
    let secrets = vec![
        key,
        own,
        wrong_key,
        wrong_session,
        secret(&reader).to_owned(),
    ];
    (secrets, said)
}

#[tokio::test]
async fn no_credentials_are_logged_or_shown_whatever_the_level_of_the_log() {
    for format in ["text", "json"] {
        let database = Database::create().await;
        let (server, log) = talkative(&database, format).await;
        let api = server.api();
        let http2 = Client::builder().http2_prior_knowledge().build().unwrap();
        let (mut secrets, mut said) = show_credentials(&api).await;
        let http2 = Api { http: http2, ..api };
        let (more, more_said) = show_credentials(&http2).await;
        secrets.extend(more);
        secrets.push(ADMIN.to_owned());
        said += &more_said;
        assert!(server.terminate().await.success());
        let log = log.await.unwrap();
        // It is the log that is meant, and it is as talkative as can be.
        for part in [
            "TRACE",
            "/v1/books/b/snapshot",
            "/v1/books/b/clicks",
            "/v1/none",
        ] {
            assert!(log.contains(part), "{part} is not in the log");
        }
        assert!(said.contains("/problems/bad_query") && said.contains("/problems/unauthorized"));
        for secret in &secrets {
            // Neither whole nor without what stands before it.
            let bare = secret.split_once('_').map_or(&**secret, |(_, bare)| bare);
            for (place, text) in [("log", &log), ("answers", &said)] {
                let line = text.lines().find(|line| line.contains(bare));
                assert_eq!(line, None, "{secret} is in the {place}");
            }
        }
    }
}
