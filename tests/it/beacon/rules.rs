//! What is sent, what is not, and what becomes of answers. What a page sends is kept by a `fetch` that
//! stands before the real one, or in its place.

use serde_json::{Value, json};

use super::{Stage, page};
use crate::harness::browser::site_of;
use crate::harness::until;

/// Keeps the clicks that a page sends in `sent`, on their way to the server; what `alert` would show
/// in `said`; and has headers of the browser's own settings follow what the page was told.
const WATCHED: &str = "
    window.sent = [];
    const real = fetch;
    window.fetch = (url, init) => { sent.push(...JSON.parse(init.body)); return real(url, init); };
    window.alert = text => { window.said = text; };";

/// Answers in the server's place as the page's `answers` say, the last of them for ever.
const ANSWERED: &str = "
    window.calls = 0;
    window.answers = [];
    window.fetch = async () => {
        calls += 1;
        const [status, headers] = answers.length > 1 ? answers.shift() : answers[0];
        if (!status) throw new TypeError('no network');
        return new Response('', {status, headers});
    };";

/// What the page has sent so far, without what is another each time.
async fn sent(stage: &Stage) -> Value {
    let script = "return sent.map(({id, age_ms, ...click}) => {
        if (!(Number.isInteger(age_ms) && age_ms >= 0 && age_ms < 6e4 && id.length > 20))
            throw `${id} of ${age_ms}`;
        return click;
    })";
    stage.run(script).await
}

/// Goes on to another page once all that this one has sent is acknowledged: what is not, the next one
/// sends again.
async fn then_visit(stage: &Stage, path: &str) {
    settled(stage).await;
    stage.visit(path).await;
}

async fn settled(stage: &Stage) {
    until("nothing waits", async || {
        (stage.run(WAITING).await == 0).then_some(())
    })
    .await;
}

const WAITING: &str = "return Object.keys(sessionStorage).length";

#[tokio::test]
async fn only_what_is_to_be_counted_is_sent() {
    let stage = Stage::set().await;
    stage.browser.run_first(WATCHED).await;

    // Where from: another site, or what the address says; once.
    let other = stage.site.replace("book.example", "other.example");
    stage.browser.visit(&format!("{other}/links")).await;
    let follow = format!(
        "location = '{}/a?ref=a%00&utm_source=%C3%A4{}'",
        stage.site,
        "x".repeat(60)
    );
    stage.run(&follow).await;
    until("the link is followed", async || {
        (stage.run("return location.pathname").await == "/a").then_some(())
    })
    .await;
    stage
        .run("history.pushState(null, '', '/b?ref=again')")
        .await;
    let source = format!("\u{e4}{}", "x".repeat(49));
    assert_eq!(
        sent(&stage).await,
        json!([{"page": "/a", "source": source, "referrer": format!("{other}/")}, {"page": "/b"}])
    );
    // From page to page of the same site.
    settled(&stage).await;
    stage.run("location = '/c?ref=blog'").await;
    until("the link is followed", async || {
        (stage.run("return location.pathname").await == "/c").then_some(())
    })
    .await;
    assert_eq!(
        sent(&stage).await,
        json!([{"page": "/c", "source": "blog"}])
    );

    // A page that comes back from the browser's memory is read again; one that goes there is not.
    let shown = "dispatchEvent(new PageTransitionEvent(arguments, {persisted: true}))";
    stage.browser.run(shown, json!("pagehide")).await;
    stage.browser.run(shown, json!("pageshow")).await;
    let again = json!([{"page": "/c", "source": "blog"}, {"page": "/c"}]);
    assert_eq!(sent(&stage).await, again);

    // The switch: off, still off after a reload, and on again.
    let said = "return window.said ?? null";
    stage
        .run("location.hash = 'pagetide-ignore'; await new Promise(setTimeout)")
        .await;
    assert_eq!(stage.run(said).await, "pagetide-ignore: on");
    assert_eq!(stage.run("return location.hash").await, "");
    stage.run("history.pushState(null, '', '/d')").await;
    assert_eq!(sent(&stage).await, again);
    then_visit(&stage, "/e").await;
    assert_eq!(sent(&stage).await, json!([]));
    then_visit(&stage, "/f#pagetide-ignore").await;
    assert_eq!(stage.run(said).await, "pagetide-ignore: off");
    assert_eq!(sent(&stage).await, json!([{"page": "/f"}]));

    // Made ready in advance, and then looked at.
    let prerendered = "Object.defineProperty(document, 'prerendering', {value: true})";
    let stopped = stage.browser.run_first(prerendered).await;
    then_visit(&stage, "/g").await;
    assert_eq!(sent(&stage).await, json!([]));
    stage
        .run("document.dispatchEvent(new Event('prerenderingchange'))")
        .await;
    assert_eq!(sent(&stage).await, json!([{"page": "/g"}]));
    stage.browser.run_first_no_more(&stopped).await;

    // Those who ask not to be followed count, and nothing else is told of them.
    for asks in [
        "doNotTrack', {get: () => '1'}",
        "globalPrivacyControl', {get: () => true}",
    ] {
        let script = format!("Object.defineProperty(navigator, '{asks})");
        let asked = stage.browser.run_first(&script).await;
        then_visit(&stage, "/h?ref=letter").await;
        assert_eq!(sent(&stage).await, json!([{"page": "/h"}]), "{asks}");
        stage.browser.run_first_no_more(&asked).await;
    }

    // Without storage views are sent all the same.
    let forbidden = "for (const name of ['localStorage', 'sessionStorage'])
        Object.defineProperty(window, name, {get() { throw new DOMException('forbidden'); }})";
    settled(&stage).await;
    let forbidden = stage.browser.run_first(forbidden).await;
    stage.visit("/i").await;
    assert_eq!(sent(&stage).await, json!([{"page": "/i"}]));
    stage.browser.run_first_no_more(&forbidden).await;

    let expected =
        json!({"/links": 1, "/a": 1, "/b": 1, "/c": 2, "/f": 1, "/g": 1, "/h": 2, "/i": 1});
    until("all of it is counted", async || {
        (stage.pages().await == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_authors_own_machine_is_left_out_unless_the_tag_says_otherwise() {
    let stage = Stage::set().await;
    stage.browser.run_first(WATCHED).await;
    let (counter, key) = (stage.counter(), &stage.key);
    let query = format!("{counter}/beacon.js?book=b&key={key}");
    let tag = |src: &str, more: &str| format!("<script defer src=\"{src}\" {more}></script>");
    for (tags, host, views) in [
        (tag(&query, ""), "127.0.0.1", 0),
        (tag(&query, ""), "localhost", 0),
        (tag(&query, ""), "a.localhost", 0),
        (tag(&query, ""), "localhost.example", 1),
        (tag(&query, "data-local"), "127.0.0.1", 1),
        (tag(&format!("{query}&local=1"), ""), "localhost", 1),
        // A tag that stands twice counts once.
        (tag(&query, "").repeat(2), "book.example", 1),
    ] {
        let local = site_of(page(&tags)).await;
        let site = local.replace("127.0.0.1", host);
        stage.browser.visit(&format!("{site}/a")).await;
        let sent = sent(&stage).await;
        assert_eq!(sent.as_array().unwrap().len(), views, "{tags} at {site}");
    }
    until("they are counted", async || {
        (stage.pages().await == json!({"/a": 4})).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_view_waits_until_it_is_committed_or_never_can_be() {
    let stage = Stage::set().await;
    stage.browser.run_first(ANSWERED).await;
    // The answer, and whether the view still waits then.
    for (status, waits) in [
        (200, 0),
        (202, 0),
        (400, 0),
        (404, 0),
        (409, 0),
        (413, 0),
        (415, 0),
        (422, 0),
        (401, 1),
        (403, 1),
        (408, 1),
        (429, 1),
        (500, 1),
        (502, 1),
        (503, 1),
        (0, 1),
    ] {
        let answers = format!("window.answers = [[{status}]]");
        let answered = stage.browser.run_first(&answers).await;
        stage.visit("/a").await;
        until("the answer is taken", async || {
            (stage.run(WAITING).await == waits).then_some(())
        })
        .await;
        assert_eq!(stage.run("return calls").await, 1, "{status}");
        // Once the cause is gone, it is sent by itself, and the view of the next page as well.
        stage
            .run("answers = [[200]]; history.pushState(null, '', '/b')")
            .await;
        settled(&stage).await;
        stage.browser.run_first_no_more(&answered).await;
    }

    // Before the time that the server names nothing is sent, whatever happens; after it, by itself.
    let told = "window.answers = [[503, {'retry-after': '1'}], [200]]";
    let answered = stage.browser.run_first(told).await;
    stage.visit("/a").await;
    let calls = "history.pushState(null, '', '/b');
        for (const name of ['online', 'pageshow', 'visibilitychange']) dispatchEvent(new Event(name));
        return calls";
    assert_eq!(stage.run(calls).await, 1);
    settled(&stage).await;
    assert_eq!(
        stage.run("return calls").await,
        2,
        "both views in one request"
    );
    stage.browser.run_first_no_more(&answered).await;

    // What waits is bounded: of 150 pages without a network the newest hundred are kept.
    stage.browser.run_first("window.answers = [[0]]").await;
    stage.visit("/0").await;
    let read = "for (let page = 1; page < 150; page++) {
            history.pushState(null, '', `/${page}`);
            await null;
        }
        await new Promise(setTimeout);
        const pages = Object.values(sessionStorage).map(view => +JSON.parse(view).page.slice(1));
        return [pages.length, Math.min(...pages), Math.max(...pages)]";
    assert_eq!(stage.run(read).await, json!([100, 50, 149]));
}
