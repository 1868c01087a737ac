//! Five hundred pages, two hundred clicks a second: the page stays quick, and does not grow.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Stage;
use crate::harness::{Api, until};

const PAGES: usize = 500;
const CLICKS_A_SECOND: usize = 200;

/// Longest piece of work that a page may do at a stretch, in milliseconds.
const LONGEST_MS: f64 = 100.0;

/// For how long; `PAGETIDE_DASHBOARD_SECONDS=600` looks for ten minutes.
fn length() -> Duration {
    let told = std::env::var("PAGETIDE_DASHBOARD_SECONDS");
    Duration::from_secs(told.map_or(30, |told| told.parse().expect("seconds")))
}

/// What was read in the time that the page shows, so that it holds as much as it ever will.
async fn history(api: &Api) -> usize {
    let now = chrono::Utc::now().timestamp_millis();
    let mut sent = 0;
    for window in (1..=70).rev() {
        let click = |i| json!({"page": format!("/p{i}"), "at": now - window * 10_000});
        let clicks: Vec<Value> = (0..PAGES).map(click).collect();
        sent += clicks.len();
        api.clicks("b", json!(clicks)).await;
    }
    sent
}

/// Posts as many clicks as are due, ten times a second, until `length` has passed.
async fn read_about(api: &Api, length: Duration) -> usize {
    let began = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut sent = 0;
    while began.elapsed() < length {
        ticks.tick().await;
        let clicks: Vec<Value> = (0..CLICKS_A_SECOND / 10)
            .map(|i| {
                json!({"page": format!("/p{}", (sent + i * 7919) % PAGES),
                            "visitor": format!("v{}", (sent + i) % 300)})
            })
            .collect();
        sent += clicks.len();
        api.clicks("b", json!(clicks)).await;
    }
    sent
}

/// Bytes of the page's heap that are in use, after a collection, which is no work of the page's.
async fn heap(stage: &Stage) -> f64 {
    let now = "window.collected.push(performance.now());";
    stage.browser.run(now, json!([])).await;
    let of = |cmd: &'static str, params| stage.browser.cdp(cmd, params);
    of("HeapProfiler.collectGarbage", json!({})).await;
    of("Performance.enable", json!({})).await;
    let metrics = of("Performance.getMetrics", json!({})).await;
    stage.browser.run(now, json!([])).await;
    let metrics = metrics["metrics"].as_array().unwrap().clone();
    let used = metrics.iter().find(|m| m["name"] == "JSHeapUsedSize");
    used.unwrap()["value"].as_f64().unwrap()
}

#[tokio::test]
async fn the_page_stays_quick_and_does_not_grow() {
    let stage = Stage::set().await;
    let api = stage.server().api();
    api.book("b", json!({"title": "A book"})).await;
    let before = history(&api).await;
    stage.open("/books/b").await;
    let watch = "window.tasks = [];
        window.collected = [];
        new PerformanceObserver(list => {
            window.tasks.push(...list.getEntries().map(({startTime, duration}) => [startTime, duration]));
        }).observe({type: 'longtask'});";
    stage.browser.run(watch, json!([])).await;

    let length = length();
    let began = Instant::now();
    // By then the page has done everything once, and its scripts are compiled.
    let warm = (length / 2).min(Duration::from_mins(2));
    let mut sent = before + read_about(&api, warm).await;
    let early = heap(&stage).await;
    sent += read_about(&api, length.saturating_sub(began.elapsed())).await;
    let late = heap(&stage).await;
    let longest = "const [before, after] = [window.collected.filter((_, i) => i % 2 === 0),
                                             window.collected.filter((_, i) => i % 2 === 1)];
        const own = window.tasks.filter(([start, duration]) =>
            !before.some((begun, i) => start < after[i] && begun < start + duration));
        return Math.max(0, ...own.map(([, duration]) => duration));";
    let longest = stage.browser.run(longest, json!([])).await;
    eprintln!(
        "{sent} clicks; longest task {longest} ms; heap {:.2} MB, and {:.2} MB at the end",
        early / 1e6,
        late / 1e6
    );
    assert!(longest.as_f64().unwrap() <= LONGEST_MS, "{longest} ms");
    assert!(late <= early * 1.1, "{early} bytes, and {late} at the end");
    until("the page shows all clicks", || async {
        let shown = stage.shown().await;
        (shown["totals"]["received"] == sent).then_some(())
    })
    .await;
}

/// How many nodes of the chart a click changes.
async fn nodes_changed(stage: &Stage, api: &Api) -> i64 {
    let observe = "window.changed = new Set();
        const received = document.querySelector('[data-total=received]').dataset.value;
        window.before = received;
        window.observer = new MutationObserver(list => list.forEach(m => window.changed.add(m.target)));
        window.observer.observe(document.querySelector('#chart'), {subtree: true, childList: true, attributes: true});";
    stage.browser.run(observe, json!([])).await;
    api.clicks("b", json!({"page": "/p", "at": 1_000_000_000_000_i64}))
        .await;
    until("the page shows the click", || async {
        let script = "const now = document.querySelector('[data-total=received]').dataset.value;
            if (now === window.before) return null;
            window.observer.disconnect();
            return window.changed.size;";
        stage.browser.run(script, json!([])).await.as_i64()
    })
    .await
}

#[tokio::test]
async fn a_frame_costs_what_it_says_whatever_stands_before_it() {
    let stage = Stage::set().await;
    let api = stage.server().api();
    let fields = json!({"settings": {"max_future_ms": null, "idle_timeout_ms": null}});
    api.book("b", fields).await;
    let at = |i: i64| 1_000_000_000_000 - i * 10_000;
    let click = |i: i64| json!({"page": format!("/p{i}"), "at": at(i)});
    // So old that the page would begin with all of the past: it is told to show the newest windows.
    let live = "const range = document.querySelector('#range');
        for (const [node, value] of [[document.querySelector('#rollup'), 'live'], [range, 'live']]) {
            node.value = value;
            node.dispatchEvent(new Event('change'));
        }";
    api.clicks("b", json!([click(0)])).await;
    stage.open("/books/b").await;
    stage.browser.run(live, json!([])).await;
    let few = nodes_changed(&stage, &api).await;

    let many: Vec<Value> = (0..60).rev().map(click).collect();
    api.clicks("b", json!(many)).await;
    stage.open("/books/b").await;
    stage.browser.run(live, json!([])).await;
    until("the page shows all bars", || async {
        let script = "return document.querySelectorAll('#chart rect').length;";
        let bars = stage.browser.run(script, json!([])).await;
        (bars.as_i64() > Some(5)).then_some(())
    })
    .await;
    let many = nodes_changed(&stage, &api).await;
    eprintln!("nodes that a click changes: {few} with one bar, {many} with many");
    assert!(many <= few + 1, "{few} with one bar, {many} with many");
}
