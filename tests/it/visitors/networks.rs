//! Proxies that are believed, and networks that are left out.

use std::process::Stdio;

use serde_json::json;
use tokio::io::AsyncReadExt;

use super::{key, send, view, visitor};
use crate::harness::steps::metric;
use crate::harness::{Api, Database, Server};

/// What a server writes to standard error in a run in which three requests speak for others.
async fn said_of_proxies(env: &[(&str, &str)]) -> String {
    let database = Database::create().await;
    let mut command = Server::command();
    command.env("DATABASE_URL", database.url());
    command.env("PAGETIDE_ADMIN_TOKEN", "an-admin-token-of-this-test");
    command.envs(env.iter().copied()).stderr(Stdio::piped());
    let mut server = Server::spawn(command).await;
    let mut stderr = server.stderr().unwrap();
    let api = Api::new(&server.url, "an-admin-token-of-this-test");
    for (name, value) in [
        ("x-forwarded-for", "198.51.100.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-for", "198.51.100.2"),
    ] {
        let request = api.request(reqwest::Method::GET, "/healthz");
        assert_eq!(
            request.header(name, value).send().await.unwrap().status(),
            200
        );
    }
    assert!(server.terminate().await.success());
    let mut said = String::new();
    stderr.read_to_string(&mut said).await.unwrap();
    assert!(!said.contains("198.51.100"), "{said}");
    said
}

#[tokio::test]
async fn a_peer_that_is_not_trusted_and_speaks_for_others_is_told_of_once() {
    let said = said_of_proxies(&[("PAGETIDE_TRUSTED_PROXIES", "192.0.2.0/24")]).await;
    let warnings = said.matches("PAGETIDE_TRUSTED_PROXIES").count();
    assert_eq!(warnings, 1, "{said}");
    for env in [
        &[][..],
        &[("PAGETIDE_TRUSTED_PROXIES", "10.0.0.0/8, 127.0.0.1")],
    ] {
        let said = said_of_proxies(env).await;
        assert!(!said.contains("PAGETIDE_TRUSTED_PROXIES"), "{said}");
    }
}

#[tokio::test]
async fn a_proxy_that_is_not_trusted_is_taken_for_the_reader_itself() {
    let database = Database::create().await;
    let env = [("PAGETIDE_TRUSTED_PROXIES", "192.0.2.0/24")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.book("b", json!({})).await;
    let key = key(&api, "b").await;
    for (page, address) in [("/1", "198.51.100.1"), ("/2", "198.51.100.2")] {
        send(view(&api, "b", &key, address), &json!({"page": page}), 200).await;
    }
    let (one, two) = (
        visitor(&database, "/1").await,
        visitor(&database, "/2").await,
    );
    assert!(one.is_some());
    assert_eq!(one, two, "a header that anyone can send was believed");
}

#[tokio::test]
async fn clicks_with_a_key_from_an_ignored_network_are_left_out_and_the_answer_says_so() {
    let database = Database::create().await;
    let env = [("PAGETIDE_IGNORE_IPS", "198.51.100.0/24,2001:db8::/32")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.book("b", json!({})).await;
    let key = key(&api, "b").await;
    let click = json!({"page": "/a"});
    for address in ["198.51.100.7", "2001:db8::5", "192.0.2.1, 198.51.100.7"] {
        let receipt = send(view(&api, "b", &key, address), &click, 200).await;
        assert_eq!(
            (&receipt["received"], &receipt["filtered"]),
            (&json!(1), &json!(1))
        );
        let exception = &receipt["exceptions"][0];
        assert_eq!(exception["status"], "filtered", "{address}");
        assert_eq!(exception["reason"], "ignored_network");
    }
    for address in ["192.0.2.1", "198.51.100.7, 192.0.2.1", "198.51.101.1"] {
        let receipt = send(view(&api, "b", &key, address), &click, 200).await;
        assert_eq!(receipt["on_time"], 1, "{address}");
    }
    // A back end that sends a token means it.
    let request = api.request(reqwest::Method::POST, "/v1/books/b/clicks");
    let request = request
        .header("x-forwarded-for", "198.51.100.7")
        .json(&click);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let body = api.get("/v1/books/b").await.expect(200);
    assert_eq!(body["totals"]["filtered"], 3);
    assert_eq!(body["totals"]["on_time"], 4);
    let name = "pagetide_clicks_filtered_total{reason=\"ignored_network\"}";
    assert_eq!(metric(&api, name).await, 3);
}
