//! `GoAccess`, another program that counts access logs, on the same log by the same rules: what it can
//! count is what was imported, but for lines that are named here.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{DAY_MS, check_done, expected_of_log, hours_book, import_log, newest_run};
use crate::embedded::Scratch;
use crate::harness;
use crate::independent::{self, ALL_REQUESTS, Fate};
use crate::real_log::{LOG, shown};

/// The lines whose page is another for it, and why.
const OTHERWISE: [(usize, &str); 2] = [
    (
        3029,
        "it undoes all escapes, also of characters that RFC 3986 keeps apart from theirs",
    ),
    (
        3336,
        "it cuts white space off, also where it stands at the end of a path",
    ),
];

/// A canonical page as `GoAccess` names it, once that is canonical again.
fn as_goaccess_has_it(page: &str) -> String {
    let page = page.strip_suffix("%20").unwrap_or(page);
    let escapes = [("%27", "'"), ("%28", "("), ("%29", ")")];
    let undo = |page: String, (escape, plain)| page.replace(escape, plain);
    escapes.into_iter().fold(page.to_owned(), undo)
}

/// By day or by page.
type Hits = BTreeMap<String, i64>;

/// What `GoAccess` says of the log.
#[derive(Default, Debug)]
struct Report {
    numbers: Hits,
    days: Hits,
    pages: Hits,
    /// Lines that it could not read, as they are.
    failed: Vec<String>,
}

impl Report {
    fn make() -> Self {
        let scratch = Scratch::new();
        let file = |name: &str| scratch.0.join(name).to_str().unwrap().to_owned();
        let (report, failed) = (file("report.json"), file("failed.log"));
        let goaccess = Command::new("goaccess")
            .arg(LOG)
            // Nothing that this machine is set up with: no file name stands for a static one.
            .args(["--no-global-config", "--log-format=COMBINED"])
            // A page is its path; the status tells where it is listed, and nothing else does.
            .args([
                "--no-query-string",
                "--http-method=no",
                "--http-protocol=no",
            ])
            .args([
                "--max-items=100000",
                "--no-progress",
                "--no-parsing-spinner",
            ])
            .args(["-o", &report, "--invalid-requests", &failed])
            .output()
            .expect("goaccess is missing: tests/install.sh installs it");
        let said = String::from_utf8_lossy(&goaccess.stderr);
        assert!(goaccess.status.success(), "{said}");
        let mut told = Self::default();
        let script = independent::file("goaccess_counts.py");
        for line in independent::run(Command::new("python3").args([&script, &report])).lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["day", day, hits] => told.days.insert(day.to_owned(), hits.parse().unwrap()),
                ["page", page, hits] => told.pages.insert(page.to_owned(), hits.parse().unwrap()),
                [number, lines] => told
                    .numbers
                    .insert(number.to_owned(), lines.parse().unwrap()),
                _ => panic!("a line of another form: {line}"),
            };
        }
        let failed = std::fs::read_to_string(failed).unwrap_or_default();
        told.failed = failed.lines().map(str::to_owned).collect();
        told
    }
}

/// As `GoAccess` writes a day.
fn day(at_ms: i64) -> String {
    let at = chrono::DateTime::from_timestamp_millis(at_ms.div_euclid(DAY_MS) * DAY_MS);
    at.unwrap().format("%Y%m%d").to_string()
}

#[tokio::test]
async fn goaccess_counts_the_same_hits_by_day_and_by_page() {
    let (database, server) = harness::start().await;
    let api = server.api();
    hours_book(&api, "b").await;
    let flags = [
        "--assets",
        "--bots",
        "--errors",
        "--methods",
        ALL_REQUESTS.methods,
    ];
    import_log(&database, "b", &flags).await.well();
    let expected = expected_of_log(ALL_REQUESTS);
    check_done(&newest_run(&api, "b").await, 10_000, &expected, 0);
    let (mut days, mut pages): (Hits, Hits) = Default::default();
    for ((hour, page), count) in shown(&api, "b").await {
        *days.entry(day(hour)).or_default() += count;
        *pages.entry(page).or_default() += count;
    }

    let report = Report::make();
    assert_eq!(report.failed, Vec::<String>::new());
    assert_eq!(report.numbers["total"], 10_000);
    assert_eq!(report.numbers["valid"], 10_000);
    assert_eq!(report.numbers["failed"], 0);
    assert_eq!(report.days, days);
    let fates = independent::judge(Path::new(LOG), ALL_REQUESTS);
    for (line, why) in OTHERWISE {
        let Fate::View(_, page) = &fates[line - 1] else {
            panic!("line {line} does not count");
        };
        let theirs = as_goaccess_has_it(page);
        assert_ne!(*page, theirs, "{why}");
        let hits = pages.get_mut(page).unwrap();
        *hits -= 1;
        pages.retain(|_, hits| *hits > 0);
        *pages.entry(theirs).or_default() += 1;
    }
    assert_eq!(report.pages, pages);
}
