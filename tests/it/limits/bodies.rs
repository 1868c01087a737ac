//! The memory that bodies may take up together.

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{head, said};
use crate::harness::{Api, Database, Server, until};

/// Posts clicks of about so many bytes.
async fn post(api: &Api, bytes: usize) -> crate::harness::Answer {
    let line = format!("{}\n", json!({"page": "/a", "at": 1000}));
    let request = api.request(reqwest::Method::POST, "/v1/books/b/clicks");
    let request = request.header("content-type", "application/x-ndjson");
    crate::harness::Answer::of(request.body(line.repeat(bytes / line.len()))).await
}

#[tokio::test]
async fn bodies_that_do_not_end_take_their_room_and_no_more() {
    let database = Database::create().await;
    let env = [("PAGETIDE_BODIES_MAX_BYTES", "1048576")];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.plain_book("b", 60_000, 60_000).await;
    assert_eq!(post(&api, 200_000).await.status, 200);
    // What is only announced takes none.
    let mut announced = Vec::new();
    for _ in 0..20 {
        announced.push(said(&api, head(&api, 1_000_000).as_bytes()).await);
    }
    assert_eq!(post(&api, 200_000).await.status, 200);

    let mut stuck = Vec::new();
    for _ in 0..2 {
        let mut stream = said(&api, head(&api, 600_000).as_bytes()).await;
        stream.write_all(&vec![b' '; 500_000]).await.unwrap();
        stuck.push(stream);
    }
    let refused = until("there is no room", async || {
        let answer = post(&api, 200_000).await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(refused.problem(503), "overloaded");
    // What needs none goes on.
    assert_eq!(post(&api, 5_000).await.status, 200);
    assert_eq!(api.get("/v1/books/b").await.status, 200);
    drop(stuck);
    until("there is room again", async || {
        (post(&api, 200_000).await.status == 200).then_some(())
    })
    .await;
}
