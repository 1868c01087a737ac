//! All golden cases, click by click over HTTP, read from the event stream.

use futures_util::StreamExt;

use super::cases::{self, Case, Player};
use crate::harness::{Api, start};

async fn play(api: &Api, case: &Case) {
    let mut player = Player::new(api, case).await;
    let mut events = api.follow(&player.book, "", None).await;
    events.expect("hello").await;
    for index in 0..case.clicks.len() {
        let position = player.post(api, index).await;
        let frames = events.through(position).await;
        player.read(&frames, i64::try_from(index).unwrap());
        player.compare(api).await;
    }
    let position = player.close(api).await;
    player.read(&events.through(position).await, -1);
    events.expect("end").await;
    player.judge(api).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_cases_over_http_and_read_from_the_stream() {
    let (_database, server) = start().await;
    let api = server.api();
    let cases = cases::all();
    assert_eq!(cases.len(), 50, "cases");
    let mut plays = futures_util::stream::iter(&cases)
        .map(|case| play(&api, case))
        .buffer_unordered(6);
    while plays.next().await.is_some() {}
}
