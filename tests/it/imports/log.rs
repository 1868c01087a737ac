//! A real access log, from the command line and over HTTP, counted as a script counts it that shares
//! no code with the program.

use serde_json::Value;

use super::{
    File, HOUR_MS, LONG, beginning, check_done, command, expected, expected_of_log, hours_book,
    import, import_log, log, newest_run, post_import, runs,
};
use crate::consume::Job;
use crate::embedded::Scratch;
use crate::harness::server::ADMIN;
use crate::harness::{self, Database, Server};
use crate::independent::{ALL_REQUESTS, PAGE_VIEWS, Rules};
use crate::real_log::{self, shown};

#[tokio::test]
async fn a_log_imported_beside_a_server_counts_as_an_independent_script_counts_it_once() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let expected = expected_of_log(PAGE_VIEWS);
    assert!(expected.views() > 1000, "{}", expected.views());
    assert!(expected.skipped.values().all(|lines| *lines > 10));

    let said = import_log(&database, "b", &[]).await.well();
    eprintln!("{said}");
    let run = newest_run(&api, "b").await;
    check_done(&run, 10_000, &expected, 0);
    assert_eq!(shown(&api, "b").await, expected.counts);
    let before = api.get("/v1/books/b").await.expect(200);
    assert_eq!(before["totals"]["dropped"], 0);

    import_log(&database, "b", &[]).await.well();
    let again = newest_run(&api, "b").await;
    assert_ne!(again["id"], run["id"]);
    check_done(&again, 10_000, &expected, expected.views());
    assert_eq!(shown(&api, "b").await, expected.counts);
    let after = api.get("/v1/books/b").await.expect(200);
    for total in ["on_time", "late", "dropped"] {
        assert_eq!(after["totals"][total], before["totals"][total], "{total}");
    }
    assert_eq!(after["watermark"], before["watermark"]);
}

#[tokio::test]
async fn a_log_imported_without_a_server_is_there_when_one_comes() {
    let (database, server) = harness::start().await;
    hours_book(&server.api(), "b").await;
    assert!(server.terminate().await.success());
    let said = import_log(&database, "b", &[]).await.well();

    let server = Server::start(&database).await;
    let api = server.api();
    let expected = expected_of_log(PAGE_VIEWS);
    check_done(&newest_run(&api, "b").await, 10_000, &expected, 0);
    assert_eq!(shown(&api, "b").await, expected.counts);
    // What it said last is for people, and has the numbers.
    let numbers = [expected.views(), expected.skipped["bots"]];
    for number in numbers {
        assert!(said.contains(&number.to_string()), "{number}: {said}");
    }
}

/// `pagetide import` of a file for the book `b`, with the Postgres of a data folder.
async fn import_embedded(scratch: &Scratch, file: &File) {
    let mut command = Server::command();
    command
        .args(["import", "--book", "b", "--format", "combined"])
        .arg("--data-dir")
        .arg(scratch.data())
        .arg(file.path());
    Job::spawn(&mut command).ended_within(LONG).await.well();
}

#[tokio::test]
async fn import_uses_the_embedded_postgres_of_a_server_or_brings_it_up() {
    let scratch = Scratch::new();
    let serve = || {
        let mut command = Server::command();
        command
            .env("PAGETIDE_DATA_DIR", scratch.data())
            .env("PAGETIDE_ADMIN_TOKEN", ADMIN);
        Server::spawn(command)
    };
    let server = serve().await;
    hours_book(&server.api(), "b").await;
    let file = File::new("access.log", beginning(200));
    import_embedded(&scratch, &file).await;
    let first = expected(&file.path(), PAGE_VIEWS);
    check_done(&newest_run(&server.api(), "b").await, 200, &first, 0);
    assert!(server.terminate().await.success());

    file.write(beginning(400));
    import_embedded(&scratch, &file).await;
    let server = serve().await;
    let all = expected(&file.path(), PAGE_VIEWS);
    let run = newest_run(&server.api(), "b").await;
    check_done(&run, 400, &all, first.views());
    assert_eq!(shown(&server.api(), "b").await, all.counts);
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn a_longer_copy_of_a_file_counts_only_what_is_new() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let file = File::new("access.log", beginning(9500));
    let arguments = ["--format", "combined", &file.arg()];
    import(&database, "b", &arguments).await.well();
    let first = expected(&file.path(), PAGE_VIEWS);
    check_done(&newest_run(&api, "b").await, 9500, &first, 0);
    assert_eq!(shown(&api, "b").await, first.counts);

    file.write(log());
    import(&database, "b", &arguments).await.well();
    let all = expected_of_log(PAGE_VIEWS);
    assert!(all.views() > first.views());
    check_done(&newest_run(&api, "b").await, 10_000, &all, first.views());
    assert_eq!(shown(&api, "b").await, all.counts);

    // The very same over HTTP, under the name that the file had.
    let query = "format=combined&source=access.log";
    let run = post_import(&api, "b", query, log()).await.expect(200);
    check_done(&run, 10_000, &all, all.views());
    assert_eq!(shown(&api, "b").await, all.counts);
    // Another source is another log, though every line is the same.
    let query = "format=combined&source=other.log";
    let run = post_import(&api, "b", query, log()).await.expect(200);
    check_done(&run, 10_000, &all, 0);
    let twice: i64 = shown(&api, "b").await.values().sum();
    assert_eq!(twice, 2 * all.views());
}

#[tokio::test]
async fn a_rotated_log_in_two_files_counts_like_the_one_it_was() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let first = beginning(6000);
    let second = log()[first.len()..].to_vec();
    let (old, new) = (
        File::new("access.log.1", first),
        File::new("access.log", second),
    );
    let arguments = ["--format", "combined", &old.arg(), &new.arg()];
    import(&database, "b", &arguments).await.well();
    let all = expected_of_log(PAGE_VIEWS);
    assert_eq!(shown(&api, "b").await, all.counts);
    let runs = runs(&api, "b").await;
    let sum = |field: &str| -> i64 { runs.iter().map(|run| run[field].as_i64().unwrap()).sum() };
    assert_eq!(
        (sum("processed"), sum("counted"), sum("duplicates")),
        (10_000, all.views(), 0)
    );
}

#[tokio::test]
async fn each_flag_widens_what_counts() {
    let (database, server) = harness::start().await;
    let api = server.api();
    let narrow = PAGE_VIEWS;
    let cases: [(&str, &[&str], Rules<'_>); 5] = [
        (
            "assets",
            &["--assets"],
            Rules {
                assets: true,
                ..narrow
            },
        ),
        (
            "bots",
            &["--bots"],
            Rules {
                bots: true,
                ..narrow
            },
        ),
        (
            "errors",
            &["--errors"],
            Rules {
                errors: true,
                ..narrow
            },
        ),
        (
            "methods",
            &["--methods", "GET,HEAD"],
            Rules {
                methods: "GET,HEAD",
                ..narrow
            },
        ),
        (
            "all",
            &[
                "--assets",
                "--bots",
                "--errors",
                "--methods",
                "GET,HEAD,POST,OPTIONS",
            ],
            ALL_REQUESTS,
        ),
    ];
    let views = expected_of_log(narrow).views();
    for (book, flags, rules) in cases {
        hours_book(&api, book).await;
        let expected = expected_of_log(rules);
        assert!(expected.views() > views, "{book} widens nothing");
        import_log(&database, book, flags).await.well();
        check_done(&newest_run(&api, book).await, 10_000, &expected, 0);
        assert_eq!(shown(&api, book).await, expected.counts, "{book}");
    }
    // The same rules over HTTP make the same clicks.
    let all = expected_of_log(ALL_REQUESTS);
    let query = "format=combined&source=apache_combined.log&assets=true&bots=true&errors=true\
                 &methods=GET,HEAD,POST,OPTIONS";
    let run = post_import(&api, "all", query, log()).await.expect(200);
    check_done(&run, 10_000, &all, all.views());
    // And those that say nothing leave out what the others let in.
    let query = "format=combined&source=apache_combined.log&assets=false";
    let run = post_import(&api, "all", query, log()).await.expect(200);
    let narrow = expected_of_log(narrow);
    check_done(&run, 10_000, &narrow, narrow.views());
    assert_eq!(shown(&api, "all").await, all.counts);
}

#[tokio::test]
async fn the_watermark_moves_as_if_the_newest_click_had_just_arrived() {
    let (database, server): (Database, Server) = harness::start().await;
    let api = server.api();
    // Each window ends an hour after its last click at the latest, and the next hour begins later.
    api.plain_book("b", HOUR_MS, 0).await;
    import_log(&database, "b", &[]).await.well();
    let book = api.get("/v1/books/b").await.expect(200);
    let sql = "SELECT max(at_ms) FROM clicks";
    let newest = database.number(sql).await;
    let watermark = book["watermark"].as_str().unwrap();
    let watermark = chrono::DateTime::parse_from_rfc3339(watermark).unwrap();
    assert_eq!(watermark.timestamp_millis(), newest);
    for item in api.counts("b", "pages").await {
        let end = item["end"].as_str().unwrap();
        let end = chrono::DateTime::parse_from_rfc3339(end).unwrap();
        let state = if end > watermark { "open" } else { "closed" };
        assert_eq!(item["state"], state, "{item}");
    }
    // What is older is still not too late for an import, and is for a click.
    let late = serde_json::json!({"page": "/late", "at": newest - 10 * HOUR_MS});
    let taken = api.clicks("b", late.clone()).await;
    assert_eq!(taken["dropped"], 1);
    let query = "format=ndjson&source=late";
    let run = post_import(&api, "b", query, late.to_string()).await;
    let run: Value = run.expect(200);
    assert_eq!((&run["counted"], &run["rejected"]), (&1.into(), &0.into()));
    let shown = real_log::shown(&api, "b").await;
    let late: i64 = (shown.iter())
        .filter(|((_, page), _)| page == "/late")
        .map(|(_, count)| count)
        .sum();
    assert_eq!(late, 1);
    let after = api.get("/v1/books/b").await.expect(200);
    assert_eq!(after["watermark"], book["watermark"]);
}

/// A command that is not finished: it names no book, or no file.
#[tokio::test]
async fn import_says_what_it_misses() {
    let (database, server) = harness::start().await;
    hours_book(&server.api(), "b").await;
    let mut no_file = command(&database, "b", &["--format", "combined"]);
    let ended = Job::spawn(&mut no_file).ended().await;
    assert_eq!(ended.code, Some(2), "{}", ended.said);
    let no_such = ["--format", "combined", "/no/such/file"];
    let ended = import(&database, "b", &no_such).await;
    assert_eq!(ended.code, Some(1), "{}", ended.said);
    assert!(ended.said.contains("/no/such/file"), "{}", ended.said);
    let ended = import_log(&database, "nobody", &[]).await;
    ended.badly("there is no book nobody");
}
