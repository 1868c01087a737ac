//! Clicks are counted by chapter.

use serde_json::json;

use super::{book, by_chapter, chapter, click, counts, put, read};
use crate::harness::load::{hold, waiting};
use crate::harness::{Server, start, until};

#[tokio::test]
async fn clicks_are_counted_by_chapter_and_under_an_empty_name_in_none() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let chapters = json!([
        chapter("one", &["/ch01", "/ch01/a"]),
        chapter("two", &["/ch02/*"]),
        chapter("three", &["/ch03/*"]),
        chapter("intro", &["/ch03"]),
    ]);
    click(&api, 1, &["/ch01", "/ch02/a"]).await;
    put(&api, &chapters).await.expect(200);
    let pages = [
        "/ch01.html",
        "/ch01/a",
        "/ch01/b",
        "/ch02/a/b/c",
        "/ch02/",
        "/ch020",
        "/ch03/index.html",
        "/ch03/x",
        "/",
        "/ch02x/y",
    ];
    click(&api, 2, &pages).await;
    let expected = [
        (1, "", 2),
        (2, "", 4),
        (2, "intro", 1),
        (2, "one", 2),
        (2, "three", 1),
        (2, "two", 2),
    ];
    assert_eq!(by_chapter(&api).await, counts(&expected));
}

#[tokio::test]
async fn a_change_counts_from_then_on_and_leaves_what_was_counted() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    put(&api, &json!([chapter("old", &["/a", "/b"])]))
        .await
        .expect(200);
    click(&api, 1, &["/a", "/b"]).await;
    put(
        &api,
        &json!([chapter("new", &["/a"]), chapter("old", &["/b"])]),
    )
    .await
    .expect(200);
    // Into the same window as well: what is counted there already stays where it is.
    click(&api, 1, &["/a", "/b"]).await;
    click(&api, 2, &["/a", "/b"]).await;
    put(&api, &json!([])).await.expect(200);
    click(&api, 3, &["/a"]).await;
    let expected = [
        (1, "new", 1),
        (1, "old", 3),
        (2, "new", 1),
        (2, "old", 1),
        (3, "", 1),
    ];
    assert_eq!(by_chapter(&api).await, counts(&expected));
}

#[tokio::test]
async fn what_a_folder_takes_follows_the_setting_of_canonical_pages() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({"canonical_pages": false})).await;
    put(&api, &json!([chapter("a", &["/a/*"])]))
        .await
        .expect(200);
    click(&api, 1, &["/a", "/a/b"]).await;
    let canonical = json!({"settings": {"canonical_pages": true}});
    api.patch("/v1/books/b", &canonical).await.expect(200);
    click(&api, 2, &["/a/", "/a/b"]).await;
    let expected = [(1, "", 1), (1, "a", 1), (2, "a", 2)];
    assert_eq!(by_chapter(&api).await, counts(&expected));
}

#[tokio::test]
async fn a_change_comes_after_the_clicks_that_were_posted_before_it() {
    let (database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    put(&api, &json!([chapter("old", &["/a"])]))
        .await
        .expect(200);
    let mut row = hold(&database, "b").await;
    let post = {
        let api = api.clone();
        tokio::spawn(async move { click(&api, 1, &["/a"]).await })
    };
    until("the click waits for the row", async || {
        (waiting(&database).await == 1).then_some(())
    })
    .await;
    let change = {
        let api = api.clone();
        let new = json!([chapter("new", &["/a"])]);
        tokio::spawn(async move { put(&api, &new).await.expect(200) })
    };
    // By now it is in the queue, behind the click.
    for _ in 0..20 {
        api.get("/healthz").await.expect(200);
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    post.await.unwrap();
    change.await.unwrap();
    click(&api, 2, &["/a"]).await;
    let expected = [(1, "old", 1), (2, "new", 1)];
    assert_eq!(by_chapter(&api).await, counts(&expected));
}

#[tokio::test]
async fn another_process_counts_by_a_change_at_once() {
    let (database, one) = start().await;
    let other = Server::start(&database).await;
    let (here, there) = (one.api(), other.api());
    book(&here, json!({})).await;
    for second in 1..=9 {
        // Both have counted by the list before this one, so both remember it.
        let id = format!("c{second}");
        put(&here, &json!([chapter(&id, &["/a"])]))
            .await
            .expect(200);
        click(&there, second, &["/a"]).await;
        click(&here, second, &["/a"]).await;
        assert_eq!(read(&there).await.1, format!("\"{second}\""));
        let counted = by_chapter(&there).await;
        assert_eq!(counted.last(), Some(&(second, id, 2)));
    }
    assert_eq!(by_chapter(&here).await.len(), 9);
}

#[tokio::test]
async fn many_books_are_counted_by_their_own_chapters() {
    let (database, server) = start().await;
    let api = server.api();
    let rollup = json!({"name": "chapters", "group_by": "chapter", "aggregate": "count",
                        "window": {"kind": "tumbling", "size_ms": 1000}});
    let settings = json!({"delay_ms": 0, "max_future_ms": null});
    for n in 0..10 {
        let new = json!({"rollups": [rollup], "settings": settings});
        api.book(&format!("b{n}"), new).await;
        let list = json!([chapter(&format!("c{n}"), &["/*"])]);
        api.put(&format!("/v1/books/b{n}/chapters"), &list)
            .await
            .expect(200);
    }
    // Behind a row that is held, so that the others gather and are committed together.
    let mut row = hold(&database, "b0").await;
    let posts: Vec<_> = (0..10)
        .map(|n| {
            let api = api.clone();
            tokio::spawn(async move {
                api.clicks(&format!("b{n}"), json!({"page": "/a", "at": 1}))
                    .await
            })
        })
        .collect();
    until("a transaction waits", async || {
        (waiting(&database).await >= 1).then_some(())
    })
    .await;
    sqlx::raw_sql("ROLLBACK").execute(&mut row).await.unwrap();
    for (n, post) in posts.into_iter().enumerate() {
        post.await.unwrap();
        let counted = api.counts(&format!("b{n}"), "chapters").await;
        assert_eq!(counted[0]["group"], format!("c{n}"));
        assert_eq!(counted.len(), 1);
    }
}
