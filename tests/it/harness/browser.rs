//! A real browser, driven as the `WebDriver` standard says, and sites for it to visit.

use std::process::Stdio;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use super::PATIENCE;
use super::api::{Answer, http_client};

const ARGUMENTS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// Headless, it would call itself a bot otherwise; names of `.example` lead to this machine, for which
/// some rules are others by its own name.
const AS_A_PERSON: [&str; 2] = [
    "--user-agent=Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/156.0.0.0 Safari/537.36",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
];

/// Longest time that a script in a page may take, in milliseconds.
const SCRIPT_TIMEOUT_MS: u64 = 20_000;

/// Chromium with a profile of its own; ended when dropped.
pub(crate) struct Browser {
    // Ends after the session, which takes the browser with it.
    _driver: Child,
    http: reqwest::Client,
    session: String,
}

impl Browser {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// One that readers have.
    pub(crate) async fn start_as_a_person() -> Self {
        Self::start_with(&AS_A_PERSON).await
    }

    async fn start_with(more: &[&str]) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver is missing: tests/install.sh installs it");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    return port.trim_end_matches('.').to_owned();
                }
            }
            panic!("chromedriver ended before it listened");
        };
        let port = tokio::time::timeout(PATIENCE, listening).await.unwrap();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let http = http_client();
        let driver_url = format!("http://127.0.0.1:{port}");
        let options = json!({"args": ARGUMENTS.iter().chain(more).collect::<Vec<_>>()});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "timeouts": {"script": SCRIPT_TIMEOUT_MS},
        }}});
        let made = http.post(format!("{driver_url}/session")).json(&wanted);
        let made = Answer::of(made).await.expect(200);
        let id = made["value"]["sessionId"].as_str().unwrap();
        Self {
            _driver: driver,
            http,
            session: format!("{driver_url}/session/{id}"),
        }
    }

    /// What a command of the standard gives.
    pub(crate) async fn command(&self, path: &str, body: Value) -> Value {
        let url = format!("{}/{path}", self.session);
        let answer = Answer::of(self.http.request(Method::POST, url).json(&body)).await;
        answer.expect(200)["value"].clone()
    }

    /// The tab that is driven.
    pub(crate) async fn tab(&self) -> String {
        let url = format!("{}/window", self.session);
        let answer = Answer::of(self.http.get(url)).await.expect(200);
        answer["value"].as_str().unwrap().to_owned()
    }

    /// Opens another tab, and drives it.
    pub(crate) async fn open_tab(&self) -> String {
        let opened = self.command("window/new", json!({"type": "tab"})).await;
        let tab = opened["handle"].as_str().unwrap().to_owned();
        self.switch_to(&tab).await;
        tab
    }

    /// Drives another tab.
    pub(crate) async fn switch_to(&self, tab: &str) {
        self.command("window", json!({"handle": tab})).await;
    }

    /// Closes the tab that is driven, and drives another.
    pub(crate) async fn close_tab(&self, other: &str) {
        let url = format!("{}/window", self.session);
        Answer::of(self.http.delete(url)).await.expect(200);
        self.switch_to(other).await;
    }

    /// Runs `script` in each page of the tab from now on, before its own scripts; gives the name by
    /// which that is ended.
    pub(crate) async fn run_first(&self, script: &str) -> String {
        let params = json!({"source": script});
        let cmd = "Page.addScriptToEvaluateOnNewDocument";
        let body = json!({"cmd": cmd, "params": params});
        let added = self.command("goog/cdp/execute", body).await;
        added["identifier"].as_str().unwrap().to_owned()
    }

    /// Ends what [`Browser::run_first`] began.
    pub(crate) async fn run_first_no_more(&self, name: &str) {
        let params = json!({"identifier": name});
        let cmd = "Page.removeScriptToEvaluateOnNewDocument";
        let body = json!({"cmd": cmd, "params": params});
        self.command("goog/cdp/execute", body).await;
    }

    /// Goes to a page and waits until it is loaded.
    pub(crate) async fn visit(&self, url: &str) {
        self.command("url", json!({"url": url})).await;
    }

    /// What `script`, the body of an async function, gives in the page. It sees `arguments` by that
    /// name; what it throws comes as `{"error": "…"}`.
    pub(crate) async fn run(&self, script: &str, arguments: Value) -> Value {
        let script = format!(
            "const [given, done] = arguments;
             (async (arguments) => {{ {script} }})(given)
                 .then(done, error => done({{error: String(error)}}));"
        );
        let body = json!({"script": script, "args": [arguments]});
        self.command("execute/async", body).await
    }

    /// Goes into the frame with this id; scripts run in there until [`leave`](Self::leave).
    pub(crate) async fn enter(&self, id: &str) {
        let css = json!({"using": "css selector", "value": format!("#{id}")});
        let frame = self.command("element", css).await;
        self.command("frame", json!({"id": frame})).await;
    }

    /// Goes back to the page itself.
    pub(crate) async fn leave(&self) {
        self.command("frame", json!({"id": null})).await;
    }

    /// Adds headers to whatever the page sends from now on, behind the back of its scripts, as a
    /// browser does with credentials.
    pub(crate) async fn send_always(&self, headers: Value) {
        for (cmd, params) in [
            ("Network.enable", json!({})),
            ("Network.setExtraHTTPHeaders", json!({"headers": headers})),
        ] {
            self.cdp(cmd, params).await;
        }
    }

    /// What a command of Chromium's own protocol gives.
    pub(crate) async fn cdp(&self, cmd: &str, params: Value) -> Value {
        let body = json!({"cmd": cmd, "params": params});
        self.command("goog/cdp/execute", body).await
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // By curl, for there may be no runtime to wait in.
        let ended = std::process::Command::new("curl")
            .args(["-s", "-m", "10", "-X", "DELETE", &self.session])
            .output();
        drop(ended);
    }
}

/// A site with one empty page, at an origin of its own; gives the origin.
pub(crate) async fn site() -> String {
    site_of("<!doctype html><title>a page</title>".to_owned()).await
}

/// A site with one page, whatever the path; gives its origin.
pub(crate) async fn site_of(html: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let page = move || std::future::ready(Html(html.clone()));
    let router = Router::new().fallback(get(page));
    tokio::spawn(async move { axum::serve(listener, router).await });
    origin
}
