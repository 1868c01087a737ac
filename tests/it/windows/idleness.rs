//! When nothing is received, a book's event time goes on with the clock.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::Row;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Shown, by_page, counted, ms, now_ms, session, tumbling};
use crate::harness::load::hold;
use crate::harness::sse::Events;
use crate::harness::{Api, Database, Server, start, until};

/// A step that an idle book's watermark took, as it is logged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) taken_ms: i64,
    pub(super) watermark_ms: i64,
}

pub(super) async fn steps(database: &Database, book: &str) -> Vec<Step> {
    let sql = "SELECT l.received_ms, (l.body->>'watermark_ms')::bigint
               FROM book_log l JOIN books b ON b.id = l.book_id
               WHERE b.slug = $1 AND l.kind = 'idle' ORDER BY l.seq";
    let rows = sqlx::query(sql).bind(book);
    let rows = rows.fetch_all(&mut database.connect().await).await.unwrap();
    let step = |row: &sqlx::postgres::PgRow| Step {
        taken_ms: row.get(0),
        watermark_ms: row.get(1),
    };
    rows.iter().map(step).collect()
}

/// Makes a book with one rollup, `pages`, and these settings.
pub(super) async fn book(api: &Api, slug: &str, size_ms: i64, settings: Value) {
    let rollups = [by_page("pages", tumbling(size_ms))];
    let fields = json!({"rollups": rollups, "settings": settings});
    api.book(slug, fields).await;
}

pub(super) async fn show(api: &Api, book: &str) -> Value {
    api.get(&format!("/v1/books/{book}")).await.expect(200)
}

/// Reads on up to and with the frame that says that a window fired, and gives its data.
pub(super) async fn fires(events: &mut Events) -> Value {
    loop {
        let event = events.next().await.expect("the stream ended");
        if event.name == "counts" && event.data["panes"][0]["pane"] == "on_time" {
            return event.data;
        }
    }
}

#[tokio::test]
async fn the_last_window_of_an_idle_book_fires_by_itself_and_later_closes_without_a_frame() {
    const DELAY: i64 = 100;
    const LATENESS: i64 = 3000;
    let (database, server) = start().await;
    let api = server.api();
    // A minute old when it is posted; and ahead of its receipt: never past the time of day.
    let books = [("behind", -60_000), ("ahead", 700)];
    let mut following = Vec::new();
    for (slug, offset) in books {
        let settings = json!({"delay_ms": DELAY, "lateness_ms": LATENESS, "idle_timeout_ms": 300,
                              "max_future_ms": 1000});
        book(&api, slug, 200, settings).await;
        let mut events = api.follow(slug, "", None).await;
        events.expect("hello").await;
        let at = now_ms() + offset;
        let click = json!({"page": "/a", "at": at});
        let taken = api.clicks(slug, click).await;
        assert_eq!(ms(&taken["watermark"]), at - DELAY);
        following.push((slug, at, events));
    }
    let mut left_alone = Vec::new();
    for (slug, at, mut events) in following {
        let first = events.expect("counts").await.data;
        assert_eq!(first["panes"][0]["pane"], "early", "{slug}");
        let fired = events.expect("counts").await.data;
        let panes = fired["panes"].as_array().unwrap();
        assert_eq!(panes.len(), 1, "{fired}");
        assert_eq!(panes[0]["pane"], "on_time", "{fired}");
        assert_eq!(panes[0]["values"], json!({"/a": 1}));
        let end = ms(&panes[0]["end"]);
        let closes_at = end + LATENESS;
        let window = until("the window closes", async || {
            let mut windows = counted(&api, slug, "pages").await;
            let (key, (value, state)) = windows.pop_first().unwrap();
            (state == "closed").then_some((key, value))
        });
        let (key, value) = window.await;
        assert_eq!((key.2, value), (end, json!(1)));

        let sql = format!("SELECT last_received_ms FROM books WHERE slug = '{slug}'");
        let received = database.number(&sql).await;
        let steps = steps(&database, slug).await;
        assert_eq!(steps.len(), 2, "one to fire, one to close: {steps:?}");
        for step in &steps {
            let idle = step.taken_ms - received;
            assert!(idle >= 300, "{slug}: {step:?}, received at {received}");
            let ran_to = (at + idle).min(step.taken_ms) - DELAY;
            assert_eq!(step.watermark_ms, ran_to, "{slug}");
        }
        let told = Step {
            taken_ms: ms(&fired["at"]),
            watermark_ms: ms(&fired["watermark"]),
        };
        assert_eq!(told, steps[0]);
        let (first, second) = (steps[0].watermark_ms, steps[1].watermark_ms);
        assert!(end <= first && first < closes_at && closes_at <= second);
        let now = show(&api, slug).await;
        assert_eq!(ms(&now["watermark"]), second);
        assert_eq!(now["position"], fired["position"], "no frame for a closing");
        let revision = fired["revision"].as_i64().unwrap();
        assert_eq!(now["revision"], revision + 1);
        left_alone.push((slug, now));
    }
    // Nothing is left to fire or close, so nothing moves any more, while another book goes on.
    let settings = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": 1});
    book(&api, "clock", 1, settings).await;
    let mut clock = api.follow("clock", "", None).await;
    for _ in 0..2 {
        api.clicks("clock", json!({"page": "/a"})).await;
        fires(&mut clock).await;
    }
    for (slug, before) in left_alone {
        assert_eq!(show(&api, slug).await["revision"], before["revision"]);
    }
}

#[tokio::test]
async fn an_honest_click_after_an_idle_step_is_on_time_without_any_delay_or_lateness() {
    let (database, server) = start().await;
    let api = server.api();
    let settings = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": 300});
    book(&api, "b", 50, settings).await;
    let mut events = api.follow("b", "", None).await;
    for round in 1..=3 {
        let taken = api.clicks("b", json!({"page": "/a", "at": now_ms()})).await;
        assert_eq!(taken["on_time"], 1, "{taken}");
        fires(&mut events).await;
        assert_eq!(steps(&database, "b").await.len(), round);
    }
}

#[tokio::test]
async fn one_fast_clock_makes_no_honest_click_too_late() {
    let (_database, server) = start().await;
    let api = server.api();
    let settings = [
        (json!({}), 62_000),
        (json!({"lateness_ms": 0}), 2000),
        (json!({"delay_ms": 0, "lateness_ms": 500}), 500),
        (json!({"delay_ms": 0, "lateness_ms": 0}), 0),
    ];
    for (n, (settings, bound)) in settings.into_iter().enumerate() {
        let slug = format!("b{n}");
        let by_visitor = json!({"name": "visits", "group_by": "visitor", "aggregate": "count",
                                "window": session(1)});
        let rollups = [by_page("pages", tumbling(1)), by_visitor];
        let fields = json!({"rollups": rollups, "settings": settings});
        let made = api.book(&slug, fields).await;
        let allowed = made["settings"]["max_future_ms"].as_i64().unwrap();
        assert_eq!(allowed, bound.min(2000));
        for ahead in [allowed, bound] {
            let path = format!("/v1/books/{slug}");
            let set = json!({"settings": {"max_future_ms": ahead}});
            api.patch(&path, &set).await.expect(200);
            let fast = json!({"page": "/fast", "visitor": "fast", "at": now_ms() + ahead});
            let taken = api.clicks(&slug, fast).await;
            assert_eq!(taken["on_time"], 1, "{settings}: {taken}");
            for visitor in 0..8 {
                let page = format!("/{visitor}");
                let honest = json!({"page": page, "visitor": format!("v{visitor}")});
                let taken = api.clicks(&slug, honest).await;
                assert_eq!(taken["dropped"], 0, "{settings}: {taken}");
                for exception in taken["exceptions"].as_array().unwrap() {
                    assert_eq!(exception.get("reason"), None, "{settings}: {taken}");
                }
            }
            let set = json!({"settings": {"max_future_ms": bound + 1}});
            let problem = api.patch(&path, &set).await.expect(422);
            assert_eq!(problem["errors"][0]["field"], "settings.max_future_ms");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_held_up_is_not_idleness() {
    let (database, server) = start().await;
    let api = server.api();
    // Whatever an idle step moved would make every click below too late.
    let settings = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": 500,
                          "max_future_ms": null});
    book(&api, "b", 10, settings).await;
    let mut events = api.follow("b", "", None).await;
    // From then on, every look finds the book idle, as far as its row tells.
    api.clicks("b", json!({"page": "/a", "at": 1000})).await;
    let mut row = hold(&database, "b").await;
    let held_since = Instant::now();
    let held_for = async |time: Duration| {
        until("time goes by", async || {
            (held_since.elapsed() >= time).then_some(())
        })
        .await;
    };
    let id = show(&api, "b").await["id"].as_str().unwrap().to_owned();
    let mut posts = Vec::new();
    // The looks for idle books come between them.
    for (n, name) in [(0, "b"), (1, &*id), (2, "b"), (3, &*id.to_uppercase())] {
        held_for(Duration::from_millis(700 * n)).await;
        let (api, name) = (api.clone(), name.to_owned());
        posts.push(tokio::spawn(async move {
            api.clicks(&name, json!({"page": "/a", "at": 1000 + n}))
                .await
        }));
    }
    held_for(Duration::from_secs(3)).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    for post in posts {
        let taken = post.await.unwrap();
        assert_eq!(taken["on_time"], 1, "{taken}");
    }
    // Afterwards it is as idle as any.
    let fired = fires(&mut events).await;
    assert_eq!(fired["panes"][0]["values"], json!({"/a": 5}));
    assert_eq!(fired["totals"]["on_time"], 5);
}

/// A page that is left sends its last clicks and does not wait for the answer.
#[tokio::test]
async fn clicks_whose_sender_has_gone_away_are_in_hand_until_they_are_committed() {
    let (database, server) = start().await;
    let api = server.api();
    let settings = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": 200,
                          "max_future_ms": null});
    book(&api, "b", 10, settings).await;
    let mut events = api.follow("b", "", None).await;
    api.clicks("b", json!({"page": "/a", "at": 1000})).await;
    let mut row = hold(&database, "b").await;
    let since = Instant::now();
    let first = {
        let api = api.clone();
        tokio::spawn(async move { api.clicks("b", json!({"page": "/a", "at": 1001})).await })
    };
    // Two looks for idle books: behind the first click waits the book's step.
    until("time goes by", async || {
        (since.elapsed() >= Duration::from_millis(2200)).then_some(())
    })
    .await;
    for n in 0..5 {
        // Whatever has to be known of book and token is known then.
        show(&api, "b").await;
        send_and_leave(&api, &json!({"page": "/a", "at": 1002 + n})).await;
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    assert_eq!(first.await.unwrap()["on_time"], 1);
    fires(&mut events).await;
    // Those who left before their click was read left nothing.
    let totals = until("a click of those who left is there", async || {
        let totals = show(&api, "b").await["totals"].clone();
        (totals["received"].as_i64() > Some(2)).then_some(totals)
    });
    let totals = totals.await;
    assert_eq!(totals["on_time"], totals["received"], "{totals}");
}

/// Sends a click and closes the connection without waiting for the answer.
async fn send_and_leave(api: &Api, click: &Value) {
    let body = click.to_string();
    let address = api.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/books/b/clicks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        api.token,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; 12];
    stream.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100");
    stream.write_all(body.as_bytes()).await.unwrap();
    for _ in 0..10 {
        api.get("/healthz").await.expect(200);
    }
}

#[tokio::test]
async fn of_two_servers_one_takes_each_step() {
    const BOOKS: usize = 10;
    const ROUNDS: usize = 2;
    let database = Database::create().await;
    let servers = [
        Server::start(&database).await,
        Server::start(&database).await,
    ];
    let apis = [servers[0].api(), servers[1].api()];
    let mut readers = Vec::new();
    for n in 0..BOOKS {
        let slug = format!("b{n}");
        let settings = json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": 100});
        book(&apis[0], &slug, 1, settings).await;
        let mut events = apis[n % 2].follow(&slug, "", None).await;
        events.expect("hello").await;
        readers.push((slug, events, Shown::default()));
    }
    for round in 0..ROUNDS {
        for (n, (slug, _, _)) in readers.iter().enumerate() {
            let page = format!("/{round}");
            let api = &apis[(n + round) % 2];
            let taken = api.clicks(slug, json!({"page": page})).await;
            assert_eq!(taken["on_time"], 1, "{taken}");
        }
        for (slug, events, shown) in &mut readers {
            // Two a round: the click's and the step's, which fires and closes at once.
            for frame in 1..=2 {
                let event = events.expect("counts").await;
                let position = i64::try_from(2 * round + frame).unwrap();
                assert_eq!(event.position(), Some(position), "{slug}: {event:?}");
                // That a window fires once is checked there.
                let emissions = shown.learn(&event.data);
                assert_eq!(emissions.len(), frame - 1, "{slug}: {event:?}");
            }
        }
    }
    for (slug, _, shown) in &readers {
        assert_eq!(shown.fired.len(), ROUNDS, "{slug}");
        assert_eq!(steps(&database, slug).await.len(), ROUNDS, "{slug}");
        shown
            .equals_counts_and_snapshot(&apis[0], slug, &["pages"])
            .await;
    }
}
