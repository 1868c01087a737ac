//! The dashboard, in a real browser.

mod accessible;
mod client;
mod finished;
mod first_book;
mod load;
mod making;
mod outage;
mod structure;

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::browser::Browser;
use crate::harness::{Database, Server, until};

/// A server at an address that it keeps when it is started again, and a browser that is logged in.
pub(crate) struct Stage {
    database: Database,
    pub(crate) server: Option<Server>,
    pub(crate) url: String,
    pub(crate) browser: Browser,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let database = Database::create().await;
        // So that silence is noticed soon.
        let server = Server::start_with(&database, &[("PAGETIDE_HEARTBEAT_MS", "1000")]).await;
        let browser = Browser::start().await;
        browser.visit(&server.url).await;
        let login = "const [token] = arguments;
            const answer = await fetch('/v1/sessions', {method: 'POST', body: '{}', headers: {
                authorization: `Bearer ${token}`, 'content-type': 'application/json'}});
            return answer.status;";
        assert_eq!(browser.run(login, json!([server.api().token])).await, 201);
        Self {
            database,
            url: server.url.clone(),
            server: Some(server),
            browser,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) async fn kill(&mut self) {
        self.server.take().unwrap().kill().await;
    }

    /// At the same address.
    pub(crate) async fn start_again(&mut self) {
        let address = self.url.strip_prefix("http://").unwrap().to_owned();
        let env = [
            ("PAGETIDE_HEARTBEAT_MS", "1000"),
            ("PAGETIDE_LISTEN", &address),
        ];
        self.server = Some(Server::start_with(&self.database, &env).await);
    }

    /// Another server over the same database.
    pub(crate) async fn another(&self) -> Server {
        Server::start(&self.database).await
    }

    pub(crate) async fn open(&self, path: &str) {
        self.browser.visit(&format!("{}{path}", self.url)).await;
        let ready = || async { (self.state().await == "live").then_some(()) };
        until("the page is live", ready).await;
    }

    /// What the page says of its connection.
    pub(crate) async fn state(&self) -> Value {
        let script = "return document.querySelector('#connection')?.dataset.state ?? null;";
        self.browser.run(script, json!([])).await
    }

    /// What the page shows: totals, bars whose windows have ended, and pages. Whether a bar was
    /// corrected before the page was opened, or can still be, it does not say.
    pub(crate) async fn shown(&self) -> Value {
        let script = "
            const numbers = (selector, name) => Object.fromEntries([...document.querySelectorAll(selector)]
                .map(node => [node.dataset[name], Number(node.dataset.value)]));
            return {
                totals: numbers('[data-total]', 'total'),
                bars: numbers('#chart rect', 'start'),
                open: document.querySelectorAll('#chart rect[data-state=open]').length,
                pages: numbers('#pages tr[data-group]', 'group'),
            };";
        self.browser.run(script, json!([])).await
    }

    /// Waits until the page shows that so many clicks were counted, and all their windows ended.
    pub(crate) async fn settled(&self, counted: i64) -> Value {
        until("the page shows all clicks", || async {
            let shown = self.shown().await;
            let totals = &shown["totals"];
            let of = |name: &str| totals[name].as_i64().unwrap();
            let all = of("on_time") + of("late") == counted && shown["open"] == 0;
            all.then_some(shown)
        })
        .await
    }
}

/// Longer than a test waits for anything else; for what is long by design.
const LONG: Duration = Duration::from_mins(1);
