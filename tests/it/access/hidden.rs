//! A book that a caller may not know of is answered like one that does not exist: to the byte, and
//! as fast.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pagetide::book::directory::Directory;
use rand::seq::SliceRandom;
use reqwest::Method;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::{id, secret, token};
use crate::harness::{Api, Database, PATIENCE, start};

/// The bytes of an answer, but for the lines that say when it was and which.
async fn bytes(api: &Api, method: &Method, path: &str) -> String {
    let host = api.url.strip_prefix("http://").unwrap();
    let body = if [Method::GET, Method::DELETE].contains(method) {
        ""
    } else {
        "{}"
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
         connection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        api.token,
        body.len()
    );
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer));
    read.await.expect("the answer has no end").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let same = |line: &&str| {
        !["x-request-id:", "date:"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let head: Vec<&str> = head.split("\r\n").filter(same).collect();
    format!("{}\r\n\r\n{body}", head.join("\r\n"))
}

/// Every address with a book, as the description of the interface names them.
async fn routes(api: &Api) -> Vec<(Method, String)> {
    let description = api.get("/openapi.json").await.expect(200);
    let mut routes = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let known =
            |name: &&String| ["get", "put", "post", "patch", "delete"].contains(&name.as_str());
        for method in methods.as_object().unwrap().keys().filter(known) {
            if path.contains("{book}") {
                let path = path.replace("{id}", &Uuid::nil().to_string());
                routes.push((method.to_uppercase().parse().unwrap(), path));
            }
        }
    }
    assert!(routes.len() >= 14, "{routes:?}");
    routes
}

#[tokio::test]
async fn every_route_answers_a_hidden_book_like_one_that_does_not_exist_to_the_byte() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("mine", 1000, 0).await;
    let hidden = api.plain_book("hidden", 1000, 0).await;
    let missing_id = Uuid::now_v7().to_string();
    for scopes in [&["read"][..], &["write"], &["manage"]] {
        let made = token(&api, &["mine"], scopes).await;
        let stranger = api.with_token(secret(&made));
        for (method, path) in routes(&api).await {
            for query in ["", "?rollup=pages", "?since=x&last_event_id=x&limit=x"] {
                let ask = async |name: &str| {
                    let path = format!("{}{query}", path.replace("{book}", name));
                    bytes(&stranger, &method, &path).await
                };
                let expected = ask("missing").await;
                assert!(
                    expected.starts_with("HTTP/1.1 4"),
                    "{method} {path}: {expected}"
                );
                for name in ["hidden", id(&hidden), &missing_id] {
                    assert_eq!(
                        ask(name).await,
                        expected,
                        "{method} {path}{query} of {name}"
                    );
                }
            }
        }
    }
}

/// A pool that counts how often somebody asks the database for something.
fn counting(database: &Database) -> (PgPool, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let options = PgConnectOptions::from_str(&database.url()).unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .after_release(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(true) })
        })
        .connect_lazy_with(options);
    (pool, asked)
}

#[tokio::test]
async fn a_hidden_book_costs_as_many_readings_as_one_that_does_not_exist() {
    let (database, server) = start().await;
    let api = server.api();
    let mine = api.plain_book("mine", 1000, 0).await;
    let hidden = api.plain_book("hidden", 1000, 0).await;
    let mine = [Uuid::parse_str(id(&mine)).unwrap()];
    let (pool, asked) = counting(&database);
    // Nothing is remembered of the hidden book, or all of it; it was read just now, or long ago.
    for age in [
        None,
        Some(Duration::ZERO),
        Some(Duration::from_millis(1100)),
    ] {
        let directory = Directory::new(pool.clone());
        if let Some(age) = age {
            for name in ["hidden", id(&hidden)] {
                assert!(directory.find(name).await.unwrap().is_some());
            }
            tokio::time::sleep(age).await;
        }
        let readings = async |name: &str| {
            // The pool tells of a reading when its connection has come back.
            drop(pool.acquire().await.unwrap());
            let before = {
                let _held = pool.acquire().await.unwrap();
                asked.load(Ordering::SeqCst)
            };
            assert!(
                directory.find_among(name, &mine).await.unwrap().is_none(),
                "{name}"
            );
            let _held = pool.acquire().await.unwrap();
            // Less the one that has just come back from counting.
            asked.load(Ordering::SeqCst) - before - 1
        };
        assert_eq!(readings("hidden").await, 1, "{age:?}");
        assert_eq!(readings("missing").await, 1, "{age:?}");
        assert_eq!(readings(id(&hidden)).await, 0, "{age:?}");
        assert_eq!(readings(&Uuid::now_v7().to_string()).await, 0, "{age:?}");
        for name in ["mine", "mine"] {
            assert!(directory.find_among(name, &mine).await.unwrap().is_some());
        }
    }
}

/// By how many standard deviations the answers of one side come later than those of the other
/// (Mann and Whitney): beyond 6 about once in a billion times by chance, whatever else the machine
/// has to do, for the two take turns at random.
#[allow(
    clippy::cast_precision_loss,
    reason = "there are a few hundred of them"
)]
fn deviations(left: &[Duration], right: &[Duration]) -> f64 {
    let mut all: Vec<(Duration, bool)> = left.iter().map(|took| (*took, true)).collect();
    all.extend(right.iter().map(|took| (*took, false)));
    all.sort_unstable();
    let ranks = all.iter().enumerate().filter(|(_, (_, left))| *left);
    let ranks: f64 = ranks.map(|(rank, _)| (rank + 1) as f64).sum();
    let (n, m) = (left.len() as f64, right.len() as f64);
    let u = ranks - n * (n + 1.0) / 2.0;
    (u - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

/// Asks for books under two names in random order, and tells by how many deviations they differ.
async fn compare(api: &Api, names: [&str; 2]) -> f64 {
    const TURNS: usize = 500;
    let mut took = [const { Vec::new() }; 2];
    let mut turns: Vec<usize> = (0..2 * TURNS).map(|turn| turn % 2).collect();
    turns.shuffle(&mut rand::rng());
    for side in turns {
        let path = format!("/v1/books/{}/snapshot", names[side]);
        let began = Instant::now();
        let status = api.get(&path).await.status;
        took[side].push(began.elapsed());
        assert_eq!(status, 404);
    }
    deviations(&took[0], &took[1])
}

#[tokio::test]
async fn a_hidden_book_is_answered_as_fast_as_one_that_does_not_exist() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("mine", 1000, 0).await;
    let hidden = api.plain_book("hidden", 1000, 0).await;
    // The owner is at work, so the server remembers the book.
    api.get("/v1/books/hidden").await.expect(200);
    let made = token(&api, &["mine"], &["read"]).await;
    let stranger = api.with_token(secret(&made));
    let missing_id = Uuid::now_v7().to_string();
    for names in [["hidden", "absent"], [id(&hidden), &missing_id]] {
        let deviations = compare(&stranger, names).await;
        eprintln!("{names:?}: {deviations:.1} deviations");
        assert!(deviations.abs() < 6.0, "{names:?}: {deviations}");
    }
    // By its slug a book is asked for in the database once, by its id not at all: the same
    // comparison sees that one question.
    let deviations = compare(&stranger, ["absent", &missing_id]).await;
    eprintln!("one question more: {deviations:.1} deviations");
    assert!(deviations > 6.0, "{deviations}");
}

#[test]
fn the_comparison_sees_a_shift_and_no_noise() {
    let side = |shift: u64| {
        let noise = |turn: u64| Duration::from_micros(300 + (turn * 7919) % 400 + shift);
        (0..600).map(noise).collect::<Vec<_>>()
    };
    assert!(deviations(&side(0), &side(0)).abs() < 0.5);
    assert!(deviations(&side(100), &side(0)) > 6.0);
    assert!(deviations(&side(0), &side(100)) < -6.0);
}
