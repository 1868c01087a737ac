//! Whatever numbers it is given, the server refuses them or counts right, and never fails.

use std::process::Stdio;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::{DAY, MAX, MIN, Random, SPAN, by_page, clicks, counted, session, sliding, tumbling};
use crate::harness::server::ADMIN;
use crate::harness::{Api, Database, Server};

/// Whatever the numbers are: refused with 422, or counted so that the sums are right.
async fn try_numbers(api: &Api, seed: u64) {
    const LENGTHS: [i64; 12] = [
        1,
        2,
        7,
        1000,
        DAY,
        SPAN / 2,
        SPAN / 2 + 1,
        SPAN,
        SPAN + 1,
        i64::MAX,
        0,
        -1,
    ];
    const TIMES: [i64; 13] = [
        i64::MIN,
        MIN - 1,
        MIN,
        MIN + 1,
        MIN + DAY,
        -1,
        0,
        1,
        1_700_000_000_000,
        MAX - DAY,
        MAX - 1,
        MAX,
        i64::MAX,
    ];
    let mut random = Random(seed);
    let mut length = |most: usize| LENGTHS[random.below(most)];
    // Mostly lengths that are allowed.
    let window = match seed % 3 {
        0 => tumbling(length(9)),
        1 => sliding(length(5), length(5)),
        _ => session(length(9)),
    };
    let settings = json!({"delay_ms": length(9), "lateness_ms": length(9),
                          "idle_timeout_ms": length(8), "max_future_ms": null});
    let slug = format!("b{seed}");
    let fields = json!({"rollups": [by_page("r", window)], "settings": settings});
    let path = format!("/v1/books/{slug}");
    let made = api.put(&path, &fields).await;
    if made.status == 422 {
        return;
    }
    made.expect(201);
    let (mut taken, mut position) = (0, 0);
    for round in 0..3 {
        let times: Vec<i64> = (0..6).map(|_| TIMES[random.below(TIMES.len())]).collect();
        let answer = api.post(&format!("{path}/clicks"), &clicks(&times)).await;
        if answer.status == 200 {
            let answer = answer.json();
            taken += answer["on_time"].as_i64().unwrap() + answer["late"].as_i64().unwrap();
            position = answer["position"].as_i64().unwrap();
        } else {
            answer.problem(422);
        }
        if round == 1 {
            api.post(&format!("{path}/close"), &Value::Null)
                .await
                .expect(200);
            api.post(&format!("{path}/reopen"), &Value::Null)
                .await
                .expect(200);
        }
    }
    api.get(&format!("{path}/snapshot")).await.expect(200);
    let windows = counted(api, &slug, "r").await;
    if seed % 3 != 1 {
        let sum: i64 = windows.values().map(|(v, _)| v.as_i64().unwrap()).sum();
        assert_eq!(sum, taken, "{fields}: {windows:?}");
    }
    if position > 0 {
        let mut events = api.follow(&slug, "", Some("0")).await;
        events.through(position).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_numbers_make_the_server_fail() {
    let database = Database::create().await;
    let log = std::env::temp_dir().join(format!("pagetide-{}.log", uuid::Uuid::new_v4()));
    let mut command = Server::command();
    command
        .env("DATABASE_URL", database.url())
        .env("PAGETIDE_ADMIN_TOKEN", ADMIN)
        .stderr(Stdio::from(std::fs::File::create(&log).unwrap()));
    let server = Server::spawn(command).await;
    let api = server.api();
    let tries = (0..48).map(|seed| try_numbers(&api, seed));
    let mut tries = futures_util::stream::iter(tries).buffer_unordered(4);
    while tries.next().await.is_some() {}
    let made = database.number("SELECT count(*) FROM books").await;
    assert!(made >= 10, "only {made} books could be made");
    // A step is taken only when it fires or closes a window.
    let steps = "SELECT count(*) FROM books b
                 WHERE (SELECT count(*) FROM book_log WHERE book_id = b.id AND kind = 'idle')
                     > 2 * (SELECT count(*) FROM windows WHERE book_id = b.id)";
    assert_eq!(database.number(steps).await, 0);
    server.signal("KILL");
    server.ended().await;
    let said = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    for word in ["panic", "ERROR", "WARN", "overflow"] {
        assert!(!said.contains(word), "{said}");
    }
}
