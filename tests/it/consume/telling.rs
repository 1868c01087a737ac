//! Who is told of what a job does: readers of the book, and whoever looks at the terminal.

use super::{Job, LINE, Source, row, run};
use crate::harness::steps::pages;
use crate::harness::{self, until};

#[tokio::test]
async fn consume_reaches_the_readers_of_a_server_beside_it() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let source = Source::new("{\"page\":\"/one\",\"at\":1}\n{\"page\":\"/two\",\"at\":2}\n");
    run(&database, &[], source.path()).await.well();
    let frames = events.through(1).await;
    assert_eq!(pages(&frames), ["/one", "/two"]);
}

#[tokio::test]
async fn consume_speaks_in_plain_lines_where_no_terminal_is() {
    let (database, server) = harness::start().await;
    server.api().plain_book("b", 10_000, 0).await;
    let source = Source::of(4);
    let job = Job::start(&database, &["--follow"], source.path());
    let told = async || {
        let said = job.said();
        let line = said.lines().find(|line| line.contains("at byte 96"))?;
        Some(line.to_owned())
    };
    let line = until("a line is told", told).await;
    assert!(line.starts_with("pagetide: job j: 4 lines, "), "{line}");
    assert!(line.contains(" a second, "), "{line}");
    let said = job.terminate().await.well();
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("in all 4 on time, 0 late, 0 dropped, 0 duplicates, 0 rejected"),
        "{said}"
    );
    assert!(!said.contains(['\u{1b}', '\r']), "{said:?}");
}

#[tokio::test]
async fn consume_tells_of_rejected_lines_and_goes_on() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let mut text = format!("{LINE}no json\n\n{{\"page\":\"\"}}\n");
    let long = text.len();
    text += &["{\"page\":\"", &"x".repeat(1 << 20), "\"}\n"].concat();
    text += &"[]\n".repeat(20);
    text += LINE;
    let source = Source::new(&text);
    let said = run(&database, &[], source.path()).await.well();
    for line in [
        "line at byte 24 rejected: not_json: ",
        "line at byte 33 rejected: page_empty: ",
        &format!("line at byte {long} rejected: it has more than 1048576 bytes"),
        "further rejected lines are only counted",
        "2 on time, 0 late, 0 dropped, 0 duplicates, 23 rejected",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(said.matches(" rejected: ").count(), 10, "{said}");
    let (offset, state) = row(&database).await.unwrap();
    assert_eq!(offset, i64::try_from(text.len()).unwrap());
    assert_eq!(
        (&state["processed"], &state["rejected"]),
        (&25.into(), &23.into())
    );
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["totals"]["rejected"], 23);
}

#[tokio::test]
async fn consume_takes_ids_of_its_own_only_where_a_line_has_none() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 10_000, 0).await;
    let known = serde_json::json!({"id": "known", "page": "/p", "at": 1000});
    api.clicks("b", known.clone()).await;
    let source = Source::new(&format!("{known}\n{LINE}{LINE}"));
    let said = run(&database, &[], source.path()).await.well();
    assert!(
        said.contains("in all 2 on time, 0 late, 0 dropped, 1 duplicates"),
        "{said}"
    );
    // The same file under another name is another source.
    let other = ["--job", "k"];
    run(&database, &other, source.path()).await.well();
    assert_eq!(super::logged(&database).await, 5);
    assert_eq!(source.text().lines().count(), 3);
}
