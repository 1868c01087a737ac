//! What a request with a key tells of the reader whose browser sends it, and what follows from it.
//!
//! A back end that sends a token means what it sends; none of this is for it.

use std::convert::Infallible;

use axum::extract::OptionalFromRequestParts;
use axum::http::header::{AUTHORIZATION, DNT, HOST, ORIGIN, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};

use super::client::Client;
use super::cors;
use super::problem::{Code, Problem};
use super::state::AppState;
use crate::book::directory::Known;
use crate::bot;
use crate::origin;
use crate::time::Timestamp;
use crate::visitor::Reader;

const SEC_GPC: HeaderName = HeaderName::from_static("sec-gpc");

/// What `DNT` and `Sec-GPC` say where they say anything.
const YES: HeaderValue = HeaderValue::from_static("1");

/// Why clicks from a network of `PAGETIDE_IGNORE_IPS` are left out.
const IGNORED_NETWORK: &str = "ignored_network";

/// Why a bot's clicks are left out.
const BOT: &str = "bot";

/// The reader behind a request. The headers share the bytes of the request's head.
pub(super) struct Visit {
    client: Client,
    origin: Option<HeaderValue>,
    host: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    /// The browser asks not to be followed.
    opted_out: bool,
}

/// None where a token was sent in a header: then the one who sends is no browser.
impl OptionalFromRequestParts<AppState> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &AppState,
    ) -> Result<Option<Self>, Infallible> {
        if parts.headers.contains_key(AUTHORIZATION) {
            return Ok(None);
        }
        let header = |name| parts.headers.get(name).cloned();
        Ok(Some(Self {
            client: Client::of(state, &parts.extensions, &parts.headers),
            origin: header(ORIGIN),
            // HTTP/2 says it elsewhere.
            host: header(HOST).or_else(|| {
                let authority = parts.uri.authority()?;
                HeaderValue::from_str(authority.as_str()).ok()
            }),
            user_agent: header(USER_AGENT),
            opted_out: [header(DNT), header(SEC_GPC)].contains(&Some(YES)),
        }))
    }
}

/// What is known of clicks that came with a key.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Why all of them are left out, if they are.
    pub(super) leave_out: Option<&'static str>,
    /// Who read, where a click does not say.
    pub(super) visitor: Option<String>,
}

impl Visit {
    /// Judges clicks for `book`.
    ///
    /// # Errors
    /// The page's origin is none of those that the book lists.
    pub(super) async fn judge(
        &self,
        state: &AppState,
        book: &Known,
        now: Timestamp,
    ) -> Result<Judged, Problem> {
        if !self.may_send(state, book) {
            let detail = "the book lists the origins whose pages may send clicks with a key";
            return Err(Problem::new(Code::OriginNotAllowed, detail));
        }
        let settings = &book.book.settings;
        let leave_out = if state.ignored.contains(self.client.address) {
            Some(IGNORED_NETWORK)
        } else {
            (settings.filter_bots && self.is_bot()).then_some(BOT)
        };
        let named = leave_out.is_none() && !(settings.respect_gpc && self.opted_out);
        let reader = Reader {
            book: book.book.id,
            address: self.client.address,
            user_agent: self.user_agent.as_ref().map_or(&[], HeaderValue::as_bytes),
        };
        let visitor = if named {
            state.visitors.name(reader, now).await
        } else {
            None
        };
        Ok(Judged { leave_out, visitor })
    }

    /// What is sent by no page names no origin, and pages of ours need not be listed.
    fn may_send(&self, state: &AppState, book: &Known) -> bool {
        let Some(origin) = &self.origin else {
            return true;
        };
        let own = || {
            let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
            let host = self.host.as_ref().and_then(text);
            let origin = text(origin);
            origin
                .zip(host)
                .is_some_and(|(origin, host)| origin::is_of_host(&origin, &host))
        };
        cors::may_send(state, origin, book) || own()
    }

    /// Whether the one who sends says that it is a bot.
    fn is_bot(&self) -> bool {
        let agent = self.user_agent.as_ref();
        bot::is_bot(agent.and_then(|a| a.to_str().ok()).unwrap_or_default())
    }
}
