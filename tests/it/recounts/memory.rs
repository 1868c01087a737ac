//! What a recount takes in memory does not hang on how many clicks there are.

use super::{days_book, fill, in_log, recount, shown};
use crate::harness::{Database, Server};

const FEW: i64 = 100_000;
const MANY: i64 = 1_000_000;

/// What may lie between the two, in KiB: an allocator keeps more or less, as it comes.
const MORE_KIB: u64 = 16 * 1024;

/// The most memory that the server had at a time, in KiB.
fn peak_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    peak.parse().unwrap()
}

/// The most memory of a server that does nothing but count so many clicks again.
async fn peak_of_recount(database: &Database, book: &str, clicks: i64) -> u64 {
    let server = Server::start(database).await;
    days_book(&server.api(), book).await;
    fill(database, book, clicks).await;
    let before = peak_kib(&server);
    let run = recount(&server.api(), book).await;
    assert_eq!(run["processed"], clicks, "{run}");
    let peak = peak_kib(&server);
    assert_eq!(
        shown(&server.api(), book).await,
        in_log(database, book).await
    );
    assert!(server.terminate().await.success());
    eprintln!("{clicks} clicks: {before} KiB before, {peak} KiB at most");
    peak
}

#[tokio::test]
async fn a_recount_of_a_million_clicks_takes_no_more_memory_than_one_of_a_tenth() {
    let database = Database::create().await;
    crate::harness::steps::without_waiting_for_the_disk(&database).await;
    let few = peak_of_recount(&database, "few", FEW).await;
    let many = peak_of_recount(&database, "many", MANY).await;
    assert!(many <= few + MORE_KIB, "{few} KiB, and {many} KiB");
}
