//! Addresses of readers are nowhere afterwards: not in the database, not on the disk, not in the logs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::{key, send, view};
use crate::harness::api::http2_client;
use crate::harness::server::ADMIN;
use crate::harness::{Answer, Api, Database, Server};
use crate::spooled::{Folder, away, back, drained};

/// Readers, of which each has an address that stands nowhere else.
const ADDRESSES: [&str; 4] = [
    "203.0.113.77",
    "198.51.100.213",
    "2001:db8:5ca1:ab1e::beef",
    "2001:db8:0:1::77",
];

/// All forms in which an address might have been kept.
fn forms(address: &str) -> Vec<Vec<u8>> {
    let parsed: IpAddr = address.parse().unwrap();
    let octets = match parsed {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let hex: Vec<String> = octets.iter().map(|byte| format!("{byte:02x}")).collect();
    vec![
        address.as_bytes().to_vec(),
        hex.concat().into_bytes(),
        octets,
    ]
}

/// Everything that a run left, with where it was found.
struct Left(Vec<(String, Vec<u8>)>);

impl Left {
    fn holds(&self, what: &[u8]) -> Vec<&str> {
        let holds = |text: &[u8]| text.windows(what.len()).any(|window| window == what);
        let found = self.0.iter().filter(|(_, text)| holds(text));
        found.map(|(place, _)| place.as_str()).collect()
    }
}

fn dump(database: &Database) -> Vec<u8> {
    let dumped = Command::new("pg_dump")
        .arg(database.url())
        .output()
        .unwrap();
    assert!(dumped.status.success(), "{dumped:?}");
    dumped.stdout
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Clicks, of readers at all addresses, with whatever else a browser may do.
async fn visits(api: &Api, key: &str, page: &str, status: u16) {
    for address in ADDRESSES {
        let click = json!({"page": page});
        send(view(api, "b", key, address), &click, status).await;
        let forwarded = |request: reqwest::RequestBuilder| {
            request
                .header("x-forwarded-for", address)
                .header("forwarded", format!("for={address}"))
        };
        // Refusals are logged elsewhere than commits.
        for (method, path, body) in [
            (Method::POST, "/v1/books/b/clicks?key=pt_wrong", "{}"),
            (Method::POST, "/v1/books/b/clicks", "no JSON"),
            (Method::GET, "/v1/books/missing", ""),
            (Method::GET, "/nothing", ""),
        ] {
            let request = api.http.request(method, format!("{}{path}", api.url));
            let answer = Answer::of(forwarded(request.body(body))).await;
            assert!(answer.status.is_client_error());
        }
        let events = forwarded(api.request(Method::GET, "/v1/books/b/events"));
        drop(events.send().await.unwrap());
    }
}

#[tokio::test]
async fn no_address_is_left_in_the_database_the_spool_or_the_log() {
    let database = Database::create().await;
    let folder = Folder::new();
    let mut command = Server::command();
    command
        .env("DATABASE_URL", database.url())
        .env("PAGETIDE_ADMIN_TOKEN", ADMIN)
        .env("PAGETIDE_SPOOL", "jsonl")
        .env("PAGETIDE_DATA_DIR", folder.path())
        .env("PAGETIDE_LOG", "trace,sqlx=trace")
        .stderr(Stdio::piped());
    let mut server = Server::spawn(command).await;
    let mut stderr = server.stderr().unwrap();
    let logging = tokio::spawn(async move {
        let mut log = Vec::new();
        stderr.read_to_end(&mut log).await.unwrap();
        log
    });
    let api = server.api();
    let http2 = Api {
        http: http2_client(),
        ..api.clone()
    };
    api.book("b", json!({})).await;
    let key = key(&api, "b").await;
    visits(&api, &key, "/kept-in-the-database", 200).await;
    visits(&http2, &key, "/kept-in-the-database", 200).await;
    away(&database).await;
    visits(&api, &key, "/kept-in-the-spool", 202).await;
    // A dead letter, and what a command keeps.
    api.put("/v1/books/b/chapters", &json!([]))
        .await
        .expect(200);
    let mut left: Vec<(String, Vec<u8>)> = Vec::new();
    for file in files(folder.path()) {
        left.push((file.display().to_string(), std::fs::read(&file).unwrap()));
    }
    left.push((
        "the database, while clicks wait".to_owned(),
        dump(&database),
    ));
    back(&database).await;
    drained(&api).await;
    left.push(("the database".to_owned(), dump(&database)));
    assert!(server.terminate().await.success());
    left.push(("the log".to_owned(), logging.await.unwrap()));
    let left = Left(left);

    // What ought to be there is found.
    assert!(
        left.holds(b"/kept-in-the-database")
            .contains(&"the database")
    );
    assert!(
        left.holds(b"/kept-in-the-spool")
            .iter()
            .any(|place| place.contains("/spool/"))
    );
    assert!(left.holds(b"TRACE").contains(&"the log"));
    assert!(left.holds(b"/v1/books/b/clicks").contains(&"the log"));
    for address in ADDRESSES {
        for form in forms(address) {
            let found = left.holds(&form);
            assert!(found.is_empty(), "{address} is in {found:?}");
        }
    }
    let names = "SELECT count(DISTINCT visitor) FROM clicks";
    assert_eq!(database.number(names).await, 4);
}
