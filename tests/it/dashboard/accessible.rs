//! The pages for everybody: what axe-core finds in light and dark, on a phone and on a desk, and
//! whether they can be used by keyboard.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::harness::browser::Browser;
use crate::harness::hands::{DESK, PHONE, TAB};
use crate::harness::server::ADMIN;
use crate::harness::{Api, Server, start, steps};

const AXE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/browser/node_modules/axe-core/axe.min.js"
);

struct Checked {
    browser: Browser,
    axe: String,
    wrong: BTreeSet<String>,
}

impl Checked {
    /// Looks at what is shown in every way that there is, and at how it is used by keyboard.
    async fn look(&mut self, what: &str) {
        self.browser.run(&self.axe, json!(null)).await;
        for size in [DESK, PHONE] {
            self.browser.on_screen(size).await;
            for colours in ["light", "dark"] {
                self.browser.in_colours(colours).await;
                let found = self.axe().await;
                let found = found
                    .as_array()
                    .unwrap_or_else(|| panic!("{what}: {found}"));
                let place = format!("{what}, {colours}, {} wide", size.0);
                self.wrong
                    .extend(found.iter().map(|f| format!("{place}: {f}")));
            }
        }
        let wide = "const {scrollWidth, clientWidth} = document.documentElement;
            const wide = [...document.body.querySelectorAll('*')]
                .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > clientWidth);
            return scrollWidth > clientWidth
                && `${scrollWidth}px in ${clientWidth}px, ${wide.map(one => one.outerHTML.slice(0, 80))}`;";
        let wide = self.browser.run(wide, json!(null)).await;
        if wide != false {
            self.wrong
                .insert(format!("{what} scrolls sideways: {wide}"));
        }
        self.walk(what).await;
    }

    /// What axe-core finds that is serious.
    async fn axe(&self) -> Value {
        let script = "const {violations} = await axe.run(document, {resultTypes: ['violations']});
            return violations.filter(({impact}) => ['serious', 'critical'].includes(impact))
                .map(({id, help, nodes}) => `${id} (${help}): ` + nodes.slice(0, 3)
                    .map(({target, failureSummary}) => `${target} ${failureSummary}`).join('; '));";
        self.browser.run(script, json!(null)).await
    }

    /// Goes from control to control with the key for that: each is reached, can be seen, and shows
    /// that it is the one.
    async fn walk(&mut self, what: &str) {
        let begin = "document.activeElement?.blur();
            window.reached = new Set();
            window.last = null;
            const controls = 'a[href], button, input, select, textarea, summary, [tabindex=\"0\"]';
            window.controls = [...(document.querySelector('dialog[open]') ?? document).querySelectorAll(controls)]
                .filter(one => one.checkVisibility({visibilityProperty: true}) && !one.disabled);
            return window.controls.length;";
        let controls = self.browser.run(begin, json!(null)).await;
        let most = 3 * controls.as_u64().unwrap() + 10;
        let look = "const one = document.activeElement;
            // Behind the last control there is the page itself; a field for a time has several stops.
            if (!one || one === document.body || one === window.last) return {};
            if (window.reached.has(one)) return {end: true};
            window.last = one;
            window.reached.add(one);
            const name = one.id ? `#${one.id}` : `${one.tagName} ${one.textContent.slice(0, 30)}`;
            const {left, top, right, bottom, width, height} = one.getBoundingClientRect();
            const within = width > 0 && height > 0 && right > 0 && bottom > 0
                && left < innerWidth && top < innerHeight;
            if (!within || !one.checkVisibility({opacityProperty: true, visibilityProperty: true})) {
                return {wrong: `${name} is out of sight`};
            }
            const {outlineStyle, outlineWidth} = getComputedStyle(one);
            const marked = outlineStyle !== 'none' && parseFloat(outlineWidth) > 0;
            return marked || one.id === 'main' ? {} : {wrong: `${name} does not show the focus`};";
        for _ in 0..most {
            self.browser.key(TAB).await;
            let seen = self.browser.run(look, json!(null)).await;
            if let Some(wrong) = seen["wrong"].as_str() {
                self.wrong.insert(format!("{what}: {wrong}"));
            }
            if seen["end"] == true {
                break;
            }
        }
        let left =
            "return window.controls.filter(one => one.isConnected && !window.reached.has(one))
            .map(one => one.outerHTML.slice(0, 120));";
        let left = self.browser.run(left, json!(null)).await;
        for control in left.as_array().unwrap() {
            self.wrong
                .insert(format!("{what}: no key leads to {control}"));
        }
    }
}

/// A book with something of everything, one that nobody has read, and one that is finished.
async fn books(api: &Api) -> String {
    api.book("tides", json!({"title": "The Tides"})).await;
    let chapters = json!([{"id": "sea", "title": "The sea", "pages": ["/sea", "/sea/*"]}]);
    let path = "/v1/books/tides/chapters";
    api.put(path, &chapters).await.expect(200);
    let clicks: Vec<Value> = (0..40)
        .map(|i| json!({"page": format!("/sea/{}", i % 7), "age_ms": i * 1000, "visitor": format!("v{i}")}))
        .collect();
    api.clicks("tides", json!(clicks)).await;
    let note = json!({"text": "Chapter two is out"});
    let path = "/v1/books/tides/notes";
    api.post(path, &note).await.expect(201);
    let recount = json!({"kind": "recount"});
    let path = "/v1/books/tides/runs";
    api.post(path, &recount).await.expect(202);
    api.book("unread", json!({"title": "Nobody has read it"}))
        .await;
    api.book("over", json!({"title": "Finished"})).await;
    api.clicks("over", json!({"page": "/the-end"})).await;
    let close = "/v1/books/over/close";
    api.post(close, &json!({})).await.expect(200);
    let reader = steps::token(api, "tides", "read").await;
    reader["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_pages_are_for_everybody() {
    let (_database, server) = start().await;
    let reader = books(&server.api()).await;
    let axe = fs::read_to_string(AXE).expect("axe-core is missing: tests/install.sh installs it");
    let browser = Browser::start().await;
    let mut checked = Checked {
        browser,
        axe,
        wrong: BTreeSet::new(),
    };
    checked.browser.visit(&server.url).await;
    checked.browser.sees("#token").await;
    checked.look("the login").await;
    let pale = "document.querySelector('h1').style.color = 'gray';
        document.querySelector('h1').style.background = 'silver'; return true;";
    checked.browser.run(pale, json!(null)).await;
    let found = checked.axe().await;
    assert!(
        found[0]
            .as_str()
            .is_some_and(|f| f.starts_with("color-contrast")),
        "{found}"
    );
    checked.browser.log_in(&server.url, ADMIN).await;
    checked.browser.sees("a[data-book=over]").await;
    checked.look("the list").await;
    making(&mut checked, &server).await;
    reading(&mut checked, &server, &reader).await;
    let wrong = &checked.wrong;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn making(checked: &mut Checked, server: &Server) {
    checked.browser.visit(&format!("{}/new", server.url)).await;
    checked.browser.sees("#make").await;
    checked.look("a new book").await;
    checked.browser.type_into("#title", "New").await;
    checked.browser.type_into("#slug", "").await;
    checked.browser.type_into("#site", "no address").await;
    let pages: Vec<String> = (0..60).map(|i| format!("Chapter {i}: /{i}")).collect();
    checked.browser.paste("#chapters", &pages.join("\n")).await;
    checked.browser.press("#make").await;
    checked.browser.sees("#site-wrong").await;
    checked.look("a new book with mistakes").await;
    checked.browser.retype("#site", "").await;
    checked.browser.press("#make").await;
    checked.browser.sees("#first-click").await;
    checked.look("the snippet").await;
}

async fn reading(checked: &mut Checked, server: &Server, reader: &str) {
    for (path, what) in [
        ("/books/tides", "a book"),
        ("/books/unread", "an empty book"),
        ("/books/over", "a closed book"),
    ] {
        checked
            .browser
            .visit(&format!("{}{path}", server.url))
            .await;
        checked.browser.sees("#connection").await;
        let connected = "const {state} = document.querySelector('#connection').dataset;
            return ['live', 'ended'].includes(state);";
        checked.browser.seen(connected, json!(null)).await;
        if path == "/books/tides" {
            let read = "return document.querySelectorAll('#pages tr[data-group]').length === 7;";
            checked.browser.seen(read, json!(null)).await;
            checked.browser.press("#keys > summary").await;
            checked.browser.sees("#new-key").await;
        }
        checked.look(what).await;
    }
    checked
        .browser
        .visit(&format!("{}/books/tides", server.url))
        .await;
    checked.browser.press("#finish").await;
    checked.browser.sees("dialog[open]").await;
    checked.look("a question").await;

    checked
        .browser
        .visit(&format!("{}/books/none", server.url))
        .await;
    checked.browser.sees("[role=alert]").await;
    checked.look("a book that is not there").await;
    let share = format!("{}/share/tides#{reader}", server.url);
    checked.browser.visit(&share).await;
    checked.browser.sees("#connection[data-state=live]").await;
    checked.look("a shared book").await;
}
