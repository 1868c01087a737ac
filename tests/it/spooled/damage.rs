use super::{Folder, away, back, click, drained, server, spool};
use crate::harness::load::counted;
use crate::harness::start;
use crate::harness::steps::metric;

#[tokio::test]
async fn a_damaged_line_is_set_aside_and_the_rest_is_counted() {
    let (database, _other) = start().await;
    let folder = Folder::new();
    let first = server(&database, &folder).await;
    let api = first.api();
    api.plain_book("b", 60_000, 60_000).await;
    api.clicks("b", click("0", "/a")).await;
    away(&database).await;
    for id in ["first", "second", "third"] {
        spool(&api, "b", &click(id, "/a")).await;
    }
    first.kill().await;
    // A flipped bit in a string, which is JSON all the same, and a torn end.
    let mut flipped = 0;
    for path in folder.segments() {
        let text = std::fs::read_to_string(&path).unwrap();
        let damaged = text.replace("second", "secOnd");
        flipped += usize::from(damaged != text);
        std::fs::write(&path, damaged + "{\"crc\":1,\"rec").unwrap();
    }
    assert_eq!(flipped, 1);
    back(&database).await;
    let next = server(&database, &folder).await;
    let api = next.api();
    drained(&api).await;
    assert_eq!(counted(&api, "b").await, 3);
    let bad = folder.files("bad");
    assert_eq!(bad.len(), 1);
    let kept = std::fs::read_to_string(&bad[0]).unwrap();
    assert!(
        kept.contains("secOnd") && kept.lines().count() == 1,
        "{kept}"
    );
    assert_eq!(metric(&api, "pagetide_spool_damaged_lines_total").await, 1);
    assert!(folder.segments().is_empty());
}
