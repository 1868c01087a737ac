//! SIGTERM and SIGINT: what was received is finished, streams are told, and the process ends with
//! status 0 within the grace time. What was not committed is not acknowledged.

#![allow(clippy::print_stdout, reason = "says what was measured")]

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use uuid::Uuid;

use crate::harness::load::{answer, click, hold, metric, stored, waiting};
use crate::harness::sse::{Event, Events};
use crate::harness::{Api, Database, Server, start, until};

const GRACE: Duration = Duration::from_secs(3);
const SHORT_GRACE: [(&str, &str); 1] = [("PAGETIDE_DRAIN_MS", "3000")];

async fn start_with_short_grace() -> (Database, Server) {
    let database = Database::create().await;
    let server = Server::start_with(&database, &SHORT_GRACE).await;
    server.api().plain_book("b", 60_000, 60_000).await;
    (database, server)
}

/// Signals the server, waits for its end, and gives how long that took.
async fn ends(server: Server, signal: &str) -> Duration {
    let began = Instant::now();
    server.signal(signal);
    let status = server.ended().await;
    let took = began.elapsed();
    println!("SIG{signal}: {status} after {took:?}");
    assert!(status.success(), "{status}");
    took
}

/// The same, and in time.
async fn ends_in_time(server: Server, signal: &str) -> Duration {
    let took = ends(server, signal).await;
    assert!(took <= GRACE, "ended after {took:?}");
    took
}

/// Reads a stream to its end.
async fn to_the_end(mut events: Events) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push(event);
    }
    all
}

#[derive(Default)]
struct Posted {
    acknowledged: HashSet<Uuid>,
    /// The connection ended before the answer.
    in_flight: HashSet<Uuid>,
    /// Answered otherwise than 200, or never received.
    refused: HashSet<Uuid>,
}

/// Posts single clicks until the server is gone.
async fn post_until_gone(api: Api) -> Posted {
    let mut posted = Posted::default();
    loop {
        let (id, click) = click("/a");
        let url = format!("{}/v1/books/b/clicks", api.url);
        let request = api.http.post(url).bearer_auth(&api.token).json(&click);
        match request.send().await {
            Err(error) if error.is_connect() => {
                posted.refused.insert(id);
                return posted;
            }
            Err(_) => posted.in_flight.insert(id),
            Ok(response) if response.status() != 200 => posted.refused.insert(id),
            Ok(response) => match response.json::<Value>().await {
                Ok(receipt) => {
                    assert_eq!(receipt["on_time"], 1, "{receipt}");
                    posted.acknowledged.insert(id)
                }
                Err(_) => posted.in_flight.insert(id),
            },
        };
    }
}

async fn drains_under_load(signal: &str) {
    let (database, server) = start_with_short_grace().await;
    let api = server.api();
    let streams = join_all((0..100).map(|_| api.follow("b", "", None))).await;
    let streams: Vec<_> = streams
        .into_iter()
        .map(|stream| tokio::spawn(to_the_end(stream)))
        .collect();
    let posts: Vec<_> = (0..32)
        .map(|_| tokio::spawn(post_until_gone(api.clone())))
        .collect();
    until("posts are under way", async || {
        let taken = metric(&api, "pagetide_clicks_total").await;
        (taken > 300.0).then_some(())
    })
    .await;
    ends_in_time(server, signal).await;

    for stream in streams {
        let events = stream.await.unwrap();
        let bye = events.last().expect("a stream without any event");
        assert_eq!(
            (bye.name.as_str(), &bye.data["reason"]),
            ("bye", &json!("drain"))
        );
        assert!(
            bye.retry_ms.is_some_and(|ms| (1000..=3000).contains(&ms)),
            "{bye:?}"
        );
        let positions: Vec<i64> = events.iter().filter_map(Event::position).collect();
        assert!(positions.is_sorted_by(|a, b| a + 1 == *b), "a gap");
    }
    let mut all = Posted::default();
    for post in posts {
        let posted = post.await.unwrap();
        all.acknowledged.extend(posted.acknowledged);
        all.in_flight.extend(posted.in_flight);
        all.refused.extend(posted.refused);
    }
    let stored = stored(&database).await;
    let lost: Vec<_> = all.acknowledged.difference(&stored).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let unanswered: HashSet<_> = stored.difference(&all.acknowledged).copied().collect();
    println!(
        "{} acknowledged, {} in flight at the end, {} of them committed, {} refused",
        all.acknowledged.len(),
        all.in_flight.len(),
        unanswered.len(),
        all.refused.len()
    );
    assert!(
        unanswered.is_subset(&all.in_flight),
        "stored, though refused"
    );
    let on_time = database.number("SELECT on_time FROM books").await;
    assert_eq!(on_time, i64::try_from(stored.len()).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_what_was_received_and_tells_every_stream() {
    drains_under_load("TERM").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigint_does_the_same() {
    drains_under_load("INT").await;
}

#[tokio::test]
async fn what_waits_for_a_row_at_the_signal_is_answered_when_the_row_is_free() {
    let (database, server) = start_with_short_grace().await;
    let mut row = hold(&database, "b").await;
    let (id, click) = click("/a");
    let api = server.api();
    let post = tokio::spawn(async move { api.clicks("b", click).await });
    until("the transaction waits", async || {
        (waiting(&database).await == 1).then_some(())
    })
    .await;
    server.signal("TERM");
    let api = server.api();
    until("the server listens no more", async || {
        let gone = TcpStream::connect(api.url.trim_start_matches("http://")).await;
        gone.is_err().then_some(())
    })
    .await;
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    assert_eq!(post.await.unwrap()["on_time"], 1);
    assert!(server.ended().await.success());
    assert_eq!(stored(&database).await, HashSet::from([id]));
}

/// Eight posts wait for a row that is held until the server has ended; gives how long that took,
/// and how many of them were told to come back.
async fn ends_while_a_row_is_held(signal: &str) -> (Duration, usize) {
    let (database, server) = start_with_short_grace().await;
    let mut row = hold(&database, "b").await;
    let api = server.api();
    let posts: Vec<_> = (0..8)
        .map(|_| {
            let request = api.http.post(format!("{}/v1/books/b/clicks", api.url));
            let request = request.bearer_auth(&api.token).json(&click("/a").1);
            tokio::spawn(answer(request))
        })
        .collect();
    until("the transaction waits", async || {
        (waiting(&database).await == 1).then_some(())
    })
    .await;
    let took = ends(server, signal).await;
    let mut refused = 0;
    for post in posts {
        // What the row kept from being committed is not acknowledged.
        if let Some(answer) = post.await.unwrap() {
            assert_eq!(answer.status, 503, "{}", answer.text);
            assert!(answer.headers.contains_key("retry-after"));
            refused += 1;
        }
    }
    println!("8 posts waited for the row; {refused} were told to come back");
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    until("the transaction is gone", async || {
        let left = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'pagetide'";
        (database.number(left).await == 0).then_some(())
    })
    .await;
    assert_eq!(stored(&database).await, HashSet::new());
    (took, refused)
}

#[tokio::test]
async fn sigterm_while_a_row_is_held_ends_in_time_and_acknowledges_nothing() {
    let (took, _) = ends_while_a_row_is_held("TERM").await;
    assert!(took <= GRACE, "ended after {took:?}");
}

#[tokio::test]
async fn sigint_while_a_row_is_held_ends_in_time_and_acknowledges_nothing() {
    let (took, _) = ends_while_a_row_is_held("INT").await;
    assert!(took <= GRACE, "ended after {took:?}");
}

#[tokio::test]
async fn what_could_not_be_committed_before_the_end_is_told_to_come_back() {
    let (_, refused) = ends_while_a_row_is_held("TERM").await;
    assert_eq!(refused, 8, "the others were left without an answer");
}

/// A connection with a small window, on which this was sent.
async fn raw(server: &Server, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_stream_that_never_reads_does_not_keep_the_server_from_ending() {
    let (_database, server) = start_with_short_grace().await;
    let api = server.api();
    let token = &api.token;
    let request = format!(
        "GET /v1/books/b/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    let silent = raw(&server, &request).await;
    until("the stream is open", async || {
        let open = metric(&api, "pagetide_streams_open").await;
        (open > 0.0).then_some(())
    })
    .await;
    // More than the sockets hold: the server has frames that it cannot get rid of.
    let mut bytes = 0;
    for n in 0..20 {
        let page = |m| format!("/{n}/{m}/{}", "x".repeat(2000));
        let clicks: Vec<Value> = (0..100).map(|m| click(&page(m)).1).collect();
        api.clicks("b", Value::from(clicks)).await;
        bytes += 100 * 2000;
    }
    assert!(bytes > 3_000_000);
    let sent = metric(&api, "pagetide_frames_sent_total").await;
    assert!(sent < 20.0, "the reader took everything");
    let open = metric(&api, "pagetide_streams_open").await;
    assert!(open > 0.0, "it was let go before the signal");
    ends_in_time(server, "TERM").await;
    drop(silent);
}

#[tokio::test]
async fn idle_and_half_open_connections_do_not_keep_the_server_from_ending() {
    let (_database, server) = start_with_short_grace().await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut stream = raw(&server, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        idle.push(stream);
    }
    let took = ends_in_time(server, "TERM").await;
    assert!(
        took < GRACE / 2,
        "idle connections were waited for: {took:?}"
    );
    drop(idle);
}

#[tokio::test]
async fn connections_that_never_finish_a_request_do_not_keep_the_server_from_ending() {
    let (_database, server) = start_with_short_grace().await;
    let silent = raw(&server, "").await;
    let head = raw(&server, "GET /healthz HTTP/1.1\r\nhos").await;
    let token = &server.api().token;
    let request = format!(
        "POST /v1/books/b/clicks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"page\":"
    );
    let body = raw(&server, &request).await;
    ends_in_time(server, "TERM").await;
    drop((silent, head, body));
}

#[tokio::test]
async fn a_second_start_finds_everything_as_it_was() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    let receipt = api.clicks("b", click("/a").1).await;
    let before = api.get("/v1/books/b/snapshot").await.expect(200);
    assert!(server.terminate().await.success());
    let server = Server::start(&database).await;
    let after = server.api().get("/v1/books/b/snapshot").await.expect(200);
    assert_eq!(after, before);
    assert_eq!(after["position"], receipt["position"]);
}
