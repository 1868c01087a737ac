use pagetide::ingest::retry::Retries;

use super::{Runtime, id_of};
use crate::harness::start;
use crate::harness::steps::execute;
use crate::harness::steps::metric;

/// From now on commits fail in a way that passes, until `tries` of them have failed each time.
fn failing(tries: u32, code: &str) -> String {
    format!(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION not_yet() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             -- What a sequence gives out stays given out when a transaction is rolled back.
             IF nextval('tries') % {} <> 0 THEN
                 RAISE EXCEPTION 'not yet' USING ERRCODE = '{code}';
             END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER not_yet BEFORE INSERT ON clicks
         FOR EACH STATEMENT EXECUTE FUNCTION not_yet()",
        tries + 1
    )
}

#[tokio::test]
async fn what_passes_is_tried_again_and_committed() {
    // A failed serialization, a deadlock, a server that shuts down, a primary that is one no more.
    for code in ["40001", "40P01", "57P01", "25006"] {
        let (database, server) = start().await;
        let api = server.api();
        api.plain_book("b", 60_000, 60_000).await;
        execute(&database, &failing(2, code)).await;
        for _ in 0..4 {
            let receipt = api
                .clicks("b", serde_json::json!({"page": "/a", "at": 1000}))
                .await;
            assert_eq!(receipt["on_time"], 1);
        }
        assert_eq!(database.number("SELECT count(*) FROM clicks").await, 4);
        assert_eq!(metric(&api, "pagetide_retries_total").await, 8, "{code}");
        assert_eq!(metric(&api, "pagetide_dead_letters_total").await, 0);
        let letters = "SELECT count(*) FROM dead_letters";
        assert_eq!(database.number(letters).await, 0, "{code}");
    }
}

#[tokio::test]
async fn what_does_not_pass_in_time_is_told_to_come_back_and_is_no_dead_letter() {
    let (database, server) = start().await;
    let api = server.api();
    let book = id_of(&api.plain_book("b", 60_000, 60_000).await);
    execute(&database, &failing(1_000_000, "40001")).await;
    let answer = api
        .post(
            "/v1/books/b/clicks",
            &serde_json::json!({"page": "/a", "at": 1000}),
        )
        .await;
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(answer.problem(503), "unavailable");
    assert_eq!(metric(&api, "pagetide_retries_total").await, 3);
    let runtime = Runtime::start(
        &database,
        1,
        Retries {
            tries: 0,
            ..Retries::default()
        },
    );
    assert!(runtime.click(book, "/a").await.is_err());
    runtime.stop().await;
    let left = "SELECT (SELECT count(*) FROM dead_letters) + (SELECT count(*) FROM clicks)";
    assert_eq!(database.number(left).await, 0);
}
