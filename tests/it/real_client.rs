//! A client that others wrote follows a real log on a bad line: it comes back by itself with its last id, and what it
//! dispatches is whole, in order, and everything.
//!
//! Each client of `eventsource-client` reconnects through a proxy that breaks its connections after
//! a random number of bytes: in the headers, in a frame, between two.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use eventsource_client::{Client, ClientBuilder, ReconnectOptions, SSE};
use futures_util::StreamExt;
use launchdarkly_sdk_transport::HyperTransport;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::steps::Known;
use crate::harness::{self, Api};
use crate::real_log;

/// Beside one another, for the server tells each to wait a second or more before it comes back.
const CLIENTS: usize = 10;

const CUTS: usize = 50 / CLIENTS;

/// A proxy that cuts its first connections, and says how many cuts are left.
async fn bad_line(server: SocketAddr, mut rng: StdRng) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let left = Arc::new(AtomicUsize::new(CUTS));
    let cuts = Arc::clone(&left);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let cut_after = match cuts.load(Ordering::SeqCst) {
                0 => usize::MAX,
                _ => rng.random_range(1..8000),
            };
            let cuts = Arc::clone(&cuts);
            tokio::spawn(async move {
                pass(client, server, cut_after).await;
                if cut_after < usize::MAX {
                    cuts.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    (address, left)
}

/// Passes on everything to the server, and so many bytes back; then both connections are gone.
async fn pass(client: TcpStream, server: SocketAddr, cut_after: usize) {
    let (mut from_client, mut to_client) = client.into_split();
    let server = TcpStream::connect(server).await.unwrap();
    let (mut from_server, mut to_server) = server.into_split();
    let up = copy(&mut from_client, &mut to_server);
    let down = async {
        let mut left = cut_after;
        let mut buffer = vec![0; 4096];
        while left > 0 {
            let most = left.min(buffer.len());
            match from_server.read(&mut buffer[..most]).await {
                Ok(read) if read > 0 => {
                    left -= read;
                    if to_client.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    };
    tokio::select! { _ = up => {}, () = down => {} }
}

/// What a client went through.
#[derive(Debug)]
struct Seen {
    known: Known,
    hellos: usize,
}

/// Follows the book until the position that `last` comes to tell.
async fn watch_book(api: Api, proxy: SocketAddr, mut last: watch::Receiver<Option<i64>>) -> Seen {
    let url = format!("http://{proxy}/v1/books/b/events");
    let reconnect = ReconnectOptions::reconnect(true)
        .retry_initial(true)
        .delay(Duration::from_millis(10))
        .delay_max(Duration::from_secs(3))
        .build();
    let client = ClientBuilder::for_url(&url).unwrap();
    let client = client
        .header("authorization", &format!("Bearer {}", api.token))
        .unwrap();
    // From the beginning, even if the first connection breaks before its first frame.
    let client = client.last_event_id("0".to_owned()).reconnect(reconnect);
    let transport = HyperTransport::builder()
        .disable_proxy()
        .build_http()
        .unwrap();
    let mut stream = client.build_with_transport(transport).stream();
    let mut seen = Seen {
        known: Known::default(),
        hellos: 0,
    };
    let mut position = 0;
    loop {
        let done = *last.borrow_and_update();
        if done.is_some_and(|done| position >= done) {
            return seen;
        }
        let item = tokio::select! {
            item = stream.next() => item.expect("the client gave up"),
            changed = last.changed() => {
                changed.unwrap();
                continue;
            }
        };
        // An error is a cut: the client comes back by itself.
        let Ok(SSE::Event(event)) = item else {
            continue;
        };
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let id: i64 = event.id.as_deref().expect("no id").parse().unwrap();
        match event.event_type.as_str() {
            "hello" => {
                seen.hellos += 1;
                assert_eq!(id, position, "it did not come back with its last id");
            }
            "counts" => {
                assert!(id > position, "{id} after {position}");
                assert_eq!(data["position"], id);
                position = id;
                seen.known.learn(&data);
            }
            other => panic!("{other}: {}", event.data),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_others_on_a_bad_line_ends_up_with_the_counts() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    let fields = json!({
        "rollups": [{"name": "pages", "group_by": "page", "aggregate": "count",
                     "window": {"kind": "tumbling", "size_ms": 3_600_000}}],
        "settings": {"delay_ms": 0, "lateness_ms": 86_400_000, "max_future_ms": null,
                     "buffer_frames": 65_536},
    });
    api.book("b", fields).await;
    let random_seed: u64 = rand::random();
    eprintln!("random_seed {random_seed}");
    let mut rng = StdRng::seed_from_u64(random_seed);

    let (tell, last) = watch::channel(None);
    let address = api.url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut lines = Vec::new();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (proxy, left) = bad_line(address, StdRng::seed_from_u64(rng.random())).await;
        lines.push(left);
        clients.spawn(watch_book(api.clone(), proxy, last.clone()));
    }

    let all_cut = AtomicBool::new(false);
    let writer = async {
        // A real log, in small batches as long as lines are cut, the rest of it in large ones.
        let log = real_log::clicks();
        let mut rest = &log[..];
        while !rest.is_empty() || !all_cut.load(Ordering::SeqCst) {
            if rest.is_empty() {
                // The cuts want bytes, so somebody reads on.
                api.clicks("b", json!({"page": "/", "at": "2015-05-20T21:05:59Z"}))
                    .await;
                continue;
            }
            let few = if all_cut.load(Ordering::SeqCst) {
                500
            } else {
                2
            };
            let (now, later) = rest.split_at(few.min(rest.len()));
            rest = later;
            real_log::post(&api, "b", now, few).await;
        }
        let book = api.get("/v1/books/b").await.expect(200);
        assert!(book["totals"]["received"].as_u64().unwrap() >= 10_000);
        book["position"].as_i64().unwrap()
    };
    let cuts = async {
        harness::until("every line was cut often enough", || async {
            let left = lines.iter().all(|left| left.load(Ordering::SeqCst) == 0);
            left.then_some(())
        })
        .await;
        all_cut.store(true, Ordering::SeqCst);
    };
    let (position, ()) = tokio::join!(writer, cuts);
    tell.send_replace(Some(position));

    let counts = Known::of_counts(&api, "b", "pages").await;
    let mut hellos = 0;
    while let Some(seen) = clients.join_next().await {
        let seen = seen.unwrap();
        hellos += seen.hellos;
        assert!(seen.known == counts);
    }
    eprintln!("{position} frames, {hellos} connections that got as far as hello");
    assert!(hellos > CLIENTS * 2, "{hellos}");
}
