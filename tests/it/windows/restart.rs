//! A server that is killed after every click counts like one that is not.

use std::cmp::Ordering;

use super::cases::{self, Case, Player};
use crate::harness::{Database, Server};

/// Of every kind of window; sessions that merge, fired ones among them; corrections; drops.
const CASES: [&str; 10] = [
    "b01_overlap_forgotten_session",
    "b09_session_takes_late_click",
    "b23_merge_identity",
    "e07_bridge_fired_and_open",
    "e13_late_click_creates_session",
    "n12_day_windows_dst",
    "s06_all_windows_gone",
    "s08_slide_1",
    "t04_lateness_is_exclusive",
    "t07_shared_watermark_two_pages",
];

/// Ends the process as a crash does, and starts another on the same database.
async fn crash(server: Server, database: &Database) -> Server {
    server.signal("KILL");
    server.ended().await;
    Server::start(database).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_every_click_changes_nothing() {
    let database = Database::create().await;
    let mut server = Server::start(&database).await;
    let all = cases::all();
    let cases: Vec<&Case> = all.iter().filter(|c| CASES.contains(&&*c.name)).collect();
    assert_eq!(cases.len(), CASES.len());
    let mut players = Vec::new();
    for case in &cases {
        players.push((Player::new(&server.api(), case).await, 0, case.clicks.len()));
    }
    let mut index = 0;
    while players.iter().any(|(_, _, clicks)| *clicks >= index) {
        let api = server.api();
        let mut told = Vec::new();
        for (player, _, clicks) in &players {
            let place = i64::try_from(index).unwrap();
            told.push(match index.cmp(clicks) {
                Ordering::Less => Some((player.post(&api, index).await, place)),
                Ordering::Equal => Some((player.close(&api).await, -1)),
                Ordering::Greater => None,
            });
        }
        // Before anybody has read of it.
        server = crash(server, &database).await;
        let api = server.api();
        for ((player, seen, _), told) in players.iter_mut().zip(told) {
            let Some((position, index)) = told else {
                continue;
            };
            let cursor = seen.to_string();
            let mut events = api.follow(&player.book, "", Some(&cursor)).await;
            events.expect("hello").await;
            player.read(&events.through(position).await, index);
            *seen = position;
        }
        index += 1;
    }
    let api = server.api();
    for (player, _, _) in &players {
        player.judge(&api).await;
    }
}
