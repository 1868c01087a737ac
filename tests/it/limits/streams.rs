//! How many streams a token may have open.

use serde_json::json;

use crate::harness::steps::{streams_open, token};
use crate::harness::{Database, Server, until};

#[tokio::test]
async fn a_token_with_too_many_streams_is_told_bye_and_the_others_go_on() {
    let database = Database::create().await;
    let env = [("PAGETIDE_MAX_STREAMS_PER_TOKEN", "2")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.book("b", json!({})).await;
    let mut readers = Vec::new();
    for _ in 0..2 {
        let new = token(&api, "b", "read").await;
        readers.push(api.with_token(new["token"].as_str().unwrap()));
    }
    readers.push(api.clone());
    let mut open = Vec::new();
    for reader in &readers {
        for _ in 0..2 {
            let mut events = reader.follow("b", "", None).await;
            events.expect("hello").await;
            open.push(events);
        }
        let mut third = reader.follow("b", "", None).await;
        let bye = third.expect("bye").await;
        assert_eq!(bye.data, json!({"reason": "overloaded"}));
    }
    drop(open.remove(0));
    until("it is gone", async || {
        (streams_open(&api, "b").await == 5).then_some(())
    })
    .await;
    let mut again = readers[0].follow("b", "", None).await;
    again.expect("hello").await;
    let mut third = readers[0].follow("b", "", None).await;
    third.expect("bye").await;
}
