//! From an empty database to numbers that move, by hand: log in, make a book, paste its snippet into
//! the pages of another site, and read there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::browser::Browser;
use crate::harness::server::ADMIN;
use crate::harness::{Api, start, until};

/// The table of contents of the author's book.
const SUMMARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/SUMMARY.md");

/// The author's site: the same page wherever, with what the author has pasted into it.
#[derive(Clone)]
struct Site {
    /// By a name that is not this machine's own: there a beacon says nothing.
    origin: String,
    pasted: Arc<Mutex<String>>,
}

impl Site {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let pasted = Arc::new(Mutex::new(String::new()));
        let head = pasted.clone();
        let page = move || {
            let head = head.lock().unwrap().clone();
            let links = ["/", "/sea.html", "/sea/ebb.html", "/moon.html"];
            let links = links.map(|page| format!("<a href=\"{page}\">{page}</a> "));
            let html = format!(
                "<!doctype html><title>a page</title>{head}{}",
                links.concat()
            );
            std::future::ready(Html(html))
        };
        let router = Router::new().fallback(get(page));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let origin = format!("http://tides.example:{port}");
        Self { origin, pasted }
    }
}

/// What `GET …/counts` says of each group, over all windows.
async fn counted(api: &Api, rollup: &str) -> BTreeMap<String, i64> {
    let path = format!("/v1/books/the-tides/counts?rollup={rollup}&merge=true");
    let counts = api.get(&path).await.expect(200);
    let items = counts["items"].as_array().unwrap().iter();
    let pair = |item: &Value| {
        let group = item["group"].as_str().unwrap().to_owned();
        (group, item["value"].as_i64().unwrap())
    };
    items.map(pair).collect()
}

/// What the rows of a table of the dashboard show.
async fn shown(browser: &Browser, table: &str) -> BTreeMap<String, i64> {
    let script = "return [...document.querySelectorAll(`${arguments} tr[data-group]`)]
        .map(row => [row.dataset.group, Number(row.dataset.value)]);";
    let rows = browser.run(script, json!(table)).await;
    let pair = |row: &Value| {
        let group = row[0].as_str().unwrap().to_owned();
        (group, row[1].as_i64().unwrap())
    };
    rows.as_array().unwrap().iter().map(pair).collect()
}

#[tokio::test]
async fn a_book_made_by_hand_counts_readers_on_another_site_without_a_reload() {
    let (_database, server) = start().await;
    let api = server.api();
    let site = Site::open().await;
    let browser = Browser::start_as_a_person().await;
    let author = browser.tab().await;

    browser.log_in(&server.url, ADMIN).await;
    browser.press("a[href='/new']").await;
    browser.type_into("#title", "The Tides").await;
    browser.type_into("#site", &site.origin).await;
    browser.type_into("#chapters-file", SUMMARY).await;
    browser.sees(".preview tbody tr:nth-child(3)").await;
    browser.press("#make").await;
    browser.sees("#first-click[data-state=waiting]").await;
    let snippet = browser.text_of("[data-snippet=page]").await;
    *site.pasted.lock().unwrap() = snippet;

    // Three readers.
    let mut read = BTreeMap::new();
    let mut tabs = Vec::new();
    for (entry, then) in [
        ("/", "/sea.html"),
        ("/sea.html", "/sea/ebb.html"),
        ("/moon.html", "/sea.html"),
    ] {
        tabs.push(browser.open_tab().await);
        browser.visit(&format!("{}{entry}", site.origin)).await;
        browser.press(&format!("a[href='{then}']")).await;
        for page in [entry, then] {
            *read.entry(canonical(page)).or_default() += 1;
        }
    }
    until("all of it is counted", async || {
        (counted(&api, "live").await == read).then_some(())
    })
    .await;

    // The page that waits has seen it, and leads to the numbers.
    browser.switch_to(&author).await;
    browser.bring_to_front().await;
    browser.sees("#first-click[data-state=live]").await;
    browser.press("#first-click a").await;
    browser.sees("#connection[data-state=live]").await;
    assert_shows(&browser, &api, &read).await;
    browser.run("window.notReloaded = true;", json!(null)).await;

    // They read on, and the dashboard follows.
    for (tab, then) in tabs.iter().zip(["/moon.html", "/moon.html", "/"]) {
        browser.switch_to(tab).await;
        browser.press(&format!("a[href='{then}']")).await;
        *read.entry(canonical(then)).or_default() += 1;
    }
    browser.switch_to(&author).await;
    browser.bring_to_front().await;
    assert_shows(&browser, &api, &read).await;
    let same = browser.run("return window.notReloaded;", json!(null)).await;
    assert_eq!(same, true, "the page was loaded anew");
}

fn canonical(page: &str) -> String {
    page.trim_end_matches(".html").to_owned()
}

/// The dashboard shows what was read, and the server says the same.
async fn assert_shows(browser: &Browser, api: &Api, read: &BTreeMap<String, i64>) {
    until("the dashboard shows all pages", async || {
        (shown(browser, "#pages").await == *read).then_some(())
    })
    .await;
    assert_eq!(counted(api, "live").await, *read);
    assert_eq!(counted(api, "pages").await, *read);

    // Chapters are the sums of their pages.
    let mut chapters = BTreeMap::new();
    for (page, count) in read {
        let chapter = match page.as_str() {
            "/" => "foreword",
            "/moon" => "the-moon",
            _ => "the-sea",
        };
        *chapters.entry(chapter.to_owned()).or_default() += count;
    }
    assert_eq!(shown(browser, "#chapters").await, chapters);

    let script = "return Object.fromEntries([...document.querySelectorAll('[data-total]')]
        .map(total => [total.dataset.total, Number(total.dataset.value)]));";
    let totals = until("the dashboard shows the totals", async || {
        let book = api.get("/v1/books/the-tides").await.expect(200);
        let mut totals = book["totals"].clone();
        totals["duplicate"] = totals.as_object_mut()?.remove("duplicates")?;
        let shown = browser.run(script, json!(null)).await;
        (shown == totals).then_some(totals)
    })
    .await;
    // A view whose answer was lost as its page was left is sent again, and counts once.
    let all: i64 = read.values().sum();
    let of = |name: &str| totals[name].as_i64().unwrap();
    assert_eq!(of("on_time") + of("late"), all, "{totals}");
    assert_eq!(of("received"), all + of("duplicate"), "{totals}");

    // Bar by bar.
    let mut windows = BTreeMap::new();
    for item in api.counts("the-tides", "live").await {
        let start = item["start"].as_str().unwrap();
        let start = chrono::DateTime::parse_from_rfc3339(start).unwrap();
        *windows.entry(start.timestamp_millis()).or_default() += item["value"].as_i64().unwrap();
    }
    let script = "return [...document.querySelectorAll('#chart [data-start]')]
        .map(bar => [Number(bar.dataset.start), Number(bar.dataset.value)])
        .filter(([, value]) => value > 0);";
    let bars = browser.run(script, json!(null)).await;
    let bar = |bar: &Value| (bar[0].as_i64().unwrap(), bar[1].as_i64().unwrap());
    let bars: BTreeMap<i64, i64> = bars.as_array().unwrap().iter().map(bar).collect();
    assert_eq!(bars, windows);
    // All of them are behind one address.
    let readers = "document.querySelector('[data-now=readers]')";
    let readers = format!("return {readers}.dataset.value === '1';");
    browser.seen(&readers, json!(null)).await;
}
