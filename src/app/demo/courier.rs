//! A back end that posts clicks as one should: with ids that are fixed before the first try, each
//! batch again and again until it is acknowledged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::DemoError;
use crate::demo::book::SLUG;
use crate::demo::tally::Tally;
use crate::time::Timestamp;

/// Time between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// How long a try may take; what was done is known by the ids of the next one.
const TRY: Duration = Duration::from_secs(10);

/// A click, as the interface takes it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Click {
    pub(super) id: String,
    pub(super) page: String,
    /// In milliseconds since the epoch.
    pub(super) at: i64,
    pub(super) visitor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) referrer: Option<&'static str>,
}

/// What the demo wants to know of a receipt.
#[derive(Deserialize)]
struct Receipt {
    #[serde(default)]
    filtered: i64,
    #[serde(default)]
    rejected: i64,
    watermark: Option<String>,
}

/// Speaks to the server straight, past the line that can be cut.
#[derive(Debug)]
pub(super) struct Courier {
    http: Client,
    server: watch::Receiver<Option<SocketAddr>>,
    /// For everything but clicks.
    admin_token: String,
    tally: Arc<Tally>,
    watermark_ms: AtomicI64,
    spooled: AtomicBool,
}

impl Courier {
    pub(super) fn new(
        server: watch::Receiver<Option<SocketAddr>>,
        admin_token: String,
        tally: Arc<Tally>,
    ) -> Result<Self, DemoError> {
        // Nothing here is encrypted, and yet it has to be said. Fails where it was said before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder().no_proxy().timeout(TRY).build()?;
        Ok(Self {
            http,
            server,
            admin_token,
            tally,
            watermark_ms: AtomicI64::new(i64::MIN),
            spooled: AtomicBool::new(false),
        })
    }

    /// How far the book's time has come, by the newest receipt.
    pub(super) fn watermark_ms(&self) -> i64 {
        self.watermark_ms.load(Ordering::SeqCst)
    }

    /// Whether any clicks were acknowledged by the disk before they were counted.
    pub(super) fn spooled(&self) -> bool {
        self.spooled.load(Ordering::SeqCst)
    }

    /// Posts clicks, with a token that may do nothing else, until they are acknowledged.
    pub(super) async fn deliver(&self, token: &str, clicks: &[Click]) -> Result<(), DemoError> {
        let path = format!("/v1/books/{SLUG}/clicks");
        let body = json!(clicks);
        let (status, answer) = self.send("POST", &path, token, Some(&body)).await?;
        let receipt: Receipt = serde_json::from_value(answer)?;
        if receipt.filtered + receipt.rejected > 0 {
            return Err(DemoError::Refused(path, status));
        }
        if status == StatusCode::ACCEPTED {
            self.spooled.store(true, Ordering::SeqCst);
        }
        let watermark = receipt.watermark.as_deref().map(Timestamp::parse_rfc3339);
        if let Some(Ok(watermark)) = watermark {
            self.watermark_ms
                .fetch_max(watermark.millis(), Ordering::SeqCst);
        }
        let ids = clicks.iter().map(|click| click.id.clone());
        self.tally.acknowledge_read(ids.collect());
        Ok(())
    }

    /// Asks for something as the one who may do everything, until it is done.
    pub(super) async fn manage(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, DemoError> {
        let answered = self.send(method, path, &self.admin_token, body).await?;
        Ok(answered.1)
    }

    /// Sends a request again and again, to wherever the server is by then, until it is answered. An
    /// answer that says that trying again is of use is none.
    async fn send(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), DemoError> {
        let mut server = self.server.clone();
        loop {
            let running = server.wait_for(Option::is_some).await;
            let running = running.map(|server| *server);
            let Ok(Some(address)) = running else {
                return Err(DemoError::Over);
            };
            let url = format!("http://{address}{path}");
            match self.once(method, &url, token, body).await {
                Ok((status, answer)) if status.is_success() => return Ok((status, answer)),
                Ok((status, _)) if !may_pass(status) => {
                    return Err(DemoError::Refused(path.to_owned(), status));
                }
                // Not said to be done, so it is done again.
                Ok(_) | Err(_) => sleep(AGAIN_AFTER).await,
            }
        }
    }

    async fn once(
        &self,
        method: &str,
        url: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), reqwest::Error> {
        let method = method.parse().unwrap_or_default();
        let mut request = self.http.request(method, url).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        // An answer without a body, or one that was cut, tells by its status alone.
        Ok((status, serde_json::from_str(&text).unwrap_or_default()))
    }
}

fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS
}
