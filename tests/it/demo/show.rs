//! The whole show, in a real browser: each button is pressed, and what a person would see is looked at.

use std::fs;

use pagetide::db::embedded::Embedded;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection};

use super::play::{Demo, all_gone};
use crate::harness::browser::Browser;
use crate::harness::until;

/// Watches the dashboard from within, for a look every now and then may miss what comes and goes:
/// the states of the connection, and the bars that were drawn fired, and later corrected and higher.
const WATCH: &str = "
    const bars = () => document.querySelectorAll('#chart [data-start]');
    const connection = document.querySelector('#connection');
    const fired = new Map();
    window.watched = {states: [], corrected: []};
    const look = () => {
        const {states, corrected} = window.watched;
        if (states.at(-1) !== connection.dataset.state) states.push(connection.dataset.state);
        for (const {dataset: {start, state, value}} of bars()) {
            if (state === 'fired') fired.set(start, Number(value));
            if (state === 'corrected' && fired.get(start) < Number(value)) corrected.push(start);
        }
    };
    new MutationObserver(look).observe(document.body, {attributes: true, childList: true, subtree: true});
    look();";

/// A browser before the stage.
struct Seat {
    browser: Browser,
}

impl Seat {
    /// The dashboard is live, with bars that are provisional beside others that are not.
    async fn take(demo: &Demo) -> Self {
        let browser = Browser::start().await;
        browser.visit(demo.stage()).await;
        let seat = Self { browser };
        until("there are fired and open bars", async || {
            let states = "return [...document.querySelectorAll('#chart [data-start]')]
                .map(bar => bar.dataset.state);";
            let states = seat.in_dashboard(states).await;
            let states = states.as_array()?;
            let both = ["open", "fired"]
                .iter()
                .all(|state| states.contains(&json!(state)));
            both.then_some(())
        })
        .await;
        seat.in_dashboard(WATCH).await;
        assert_eq!(seat.states().await, ["live"]);
        seat
    }

    async fn in_dashboard(&self, script: &str) -> Value {
        self.browser.enter("dashboard-frame").await;
        let given = self.browser.run(script, json!([])).await;
        self.browser.leave().await;
        given
    }

    async fn on_stage(&self, script: &str, argument: &str) -> Value {
        self.browser.run(script, json!([argument])).await
    }

    async fn press(&self, button: &str) {
        let script = "const button = document.getElementById(arguments[0]);
            if (button.disabled) return false;
            button.click();
            return true;";
        until(&format!("{button} can be pressed"), async || {
            (self.on_stage(script, button).await == true).then_some(())
        })
        .await;
    }

    /// The states that the connection has been in.
    async fn states(&self) -> Vec<String> {
        let states = self.in_dashboard("return window.watched.states;").await;
        serde_json::from_value(states).unwrap()
    }

    /// The dashboard has said that it lost the server, and that it is live again.
    async fn comes_back(&self) {
        until("the dashboard comes back by itself", async || {
            let states = self.states().await;
            let lost = states.iter().any(|state| state == "reconnecting");
            let back = ["live", "resynchronised"].contains(&states.last()?.as_str());
            (lost && back).then_some(())
        })
        .await;
        let begin_anew = "window.watched.states = window.watched.states.slice(-1);";
        self.in_dashboard(begin_anew).await;
    }

    async fn number(&self, selector: &str) -> i64 {
        let script = "return Number(document.querySelector(arguments[0]).dataset.value);";
        self.on_stage(script, selector).await.as_i64().unwrap()
    }

    /// Goes on to the next page of the book, once the click on this one is acknowledged.
    async fn reads_on(&self) {
        let turn = "const {contentDocument: page, contentWindow: frame} = document.getElementById('book-frame');
            const next = page.querySelector('[rel=next]');
            if (page.readyState !== 'complete' || !next || frame.clicksUnderWay() > 0) return null;
            next.click();
            return next.pathname;";
        let next = until("the next page can be turned to", async || {
            let next = self.on_stage(turn, "").await;
            next.as_str().map(str::to_owned)
        })
        .await;
        let there = "const {contentDocument: page} = document.getElementById('book-frame');
            return page.location.pathname === arguments[0] && page.readyState === 'complete';";
        until(&format!("{next} is there"), async || {
            (self.on_stage(there, &next).await == true).then_some(())
        })
        .await;
    }

    /// Sends phones into the tunnel until a bar that was drawn fired is drawn corrected, and higher.
    async fn sees_a_correction(&self) {
        for _ in 0..3 {
            self.press("tunnel").await;
            until("the phones are out of the tunnel", async || {
                let script = "return document.getElementById('tunnel').disabled;";
                (self.on_stage(script, "").await == false).then_some(())
            })
            .await;
            let corrected = self.in_dashboard("return window.watched.corrected;").await;
            if corrected.as_array().is_some_and(|bars| !bars.is_empty()) {
                return;
            }
        }
        panic!("no bar was corrected");
    }

    /// Once the counts are compared, what each of them says.
    async fn verdict(&self) -> [i64; 3] {
        until("the counts are compared", async || {
            let script = "return document.querySelector('#verdict').dataset.equal ?? null;";
            (!self.on_stage(script, "").await.is_null()).then_some(())
        })
        .await;
        [
            self.number("[data-number=acknowledged]").await,
            self.number("[data-number=sql]").await,
            self.number("[data-number=screen]").await,
        ]
    }
}

/// What the database of the demo holds: clicks, the sum of the windows that count them by page, and
/// how many clicks are of nobody whom the demo made up.
async fn counted(demo: &Demo) -> (i64, i64, i64) {
    let options = Embedded::running(&demo.data()).unwrap().unwrap();
    let mut connection = options.connect().await.unwrap();
    let sql = "SELECT (SELECT count(*) FROM clicks),
                      (SELECT sum(weight)::bigint FROM windows WHERE rollup = 0),
                      (SELECT count(*) FROM clicks WHERE coalesce(visitor, '') !~ '-reader-[0-9]+$')";
    let counted = sqlx::query_as(sql)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    counted
}

#[tokio::test]
async fn whatever_is_broken_the_three_counts_agree() {
    let demo = Demo::start(&[
        "--lid-seconds",
        "3",
        "--tunnel-seconds",
        "8",
        "--speed",
        "2",
    ])
    .await;
    let seat = Seat::take(&demo).await;
    for _ in 0..3 {
        seat.reads_on().await;
    }
    seat.sees_a_correction().await;

    let before = demo.children();
    seat.press("plug").await;
    all_gone(&before).await;
    seat.comes_back().await;

    seat.press("lid").await;
    let then = seat.number("#acknowledged").await;
    until("others read on, and are counted", async || {
        (seat.number("#acknowledged").await > then).then_some(())
    })
    .await;
    seat.comes_back().await;

    seat.press("finish").await;
    let shown = seat.verdict().await;
    let (clicks, windows, own) = counted(&demo).await;
    assert_eq!(shown, [clicks; 3], "acknowledged, in SQL, on the screen");
    assert_eq!(windows, clicks);
    assert!(
        clicks > 50 && own >= 4,
        "{clicks} clicks, {own} of them mine"
    );
    // The bars say the same once more.
    let bars = "return [...document.querySelectorAll('#chart [data-start]')]
        .map(bar => [bar.dataset.state, Number(bar.dataset.value)]);";
    let bars: Vec<(String, i64)> = serde_json::from_value(seat.in_dashboard(bars).await).unwrap();
    assert_eq!(bars.iter().map(|(_, value)| value).sum::<i64>(), clicks);
    assert!(bars.iter().all(|(state, _)| state != "open"), "{bars:?}");
    assert_eq!(seat.states().await.last().unwrap(), "ended");

    let children = demo.children();
    let (status, place) = demo.end("INT").await;
    assert!(status.success());
    all_gone(&children).await;
    let left: Vec<_> = fs::read_dir(&place.0).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
