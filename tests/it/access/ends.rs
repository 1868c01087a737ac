//! When what stands behind a stream ends, so does the stream, wherever it was ended.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::sessions::{by_cookie, open, session};
use super::{id, secret, token};
use crate::harness::api::Answer;
use crate::harness::sse::Events;
use crate::harness::steps::metric;
use crate::harness::{Api, Database, Server, until};

const STREAMS: usize = 200;

const HEARTBEAT: Duration = Duration::from_secs(3);

const EVENTS: &str = "/v1/books/b/events";

/// A server whose streams are looked at, another one of the same database, and a token and a session
/// of it.
struct Scene {
    _servers: [Server; 2],
    _database: Database,
    here: Api,
    there: Api,
    token: Value,
    session: String,
}

impl Scene {
    async fn with_session(fields: Value) -> Self {
        let database = Database::create().await;
        let heartbeat = HEARTBEAT.as_millis().to_string();
        let env = [("PAGETIDE_HEARTBEAT_MS", &*heartbeat)];
        let servers = [
            Server::start_with(&database, &env).await,
            Server::start_with(&database, &env).await,
        ];
        let [here, there] = [servers[0].api(), servers[1].api()];
        here.plain_book("b", 10_000, 3_600_000).await;
        let token = token(&here, &["b"], &["read"]).await;
        let opened = open(&here.with_token(secret(&token)), fields).await;
        Self {
            _servers: servers,
            _database: database,
            here,
            there,
            session: session(&opened).to_owned(),
            token,
        }
    }

    /// A stream of the session, half of them by cookie and half by address.
    async fn follow(&self, place: usize) -> Events {
        let request = if place.is_multiple_of(2) {
            by_cookie(&self.here, &self.session, Method::GET, EVENTS)
        } else {
            let url = format!("{}{EVENTS}?session={}", self.here.url, self.session);
            self.here.http.get(url)
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let mut events = Events::of(response);
        events.expect("hello").await;
        events
    }

    /// Opens the streams, has `end` end what stands behind them, which gives the moment of the end,
    /// and sees to it that each says so within a heartbeat, while the book goes on and streams of
    /// others do too.
    async fn show(&self, end: impl AsyncFnOnce(&Self) -> Instant, reason: &str) {
        let mut streams = join_all((0..STREAMS).map(|place| self.follow(place))).await;
        let mut stays = self.here.follow("b", "", None).await;
        stays.expect("hello").await;
        assert_eq!(metric(&self.here, "pagetide_streams_open").await, 201);
        let busy = async {
            loop {
                self.there
                    .clicks("b", json!({"page": "/p", "at": 1000}))
                    .await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ends = async {
            let ended_at = end(self).await;
            let ended = streams.iter_mut().map(async |events| {
                loop {
                    let event = events
                        .next()
                        .await
                        .expect("the stream ended without a word");
                    if event.name == "session_ended" {
                        assert_eq!(event.data, json!({"reason": reason}));
                        break;
                    }
                    assert_eq!(event.name, "counts");
                }
                let took = Instant::now().checked_duration_since(ended_at);
                // Nothing follows, and whoever comes back, at once, is not let in.
                assert!(events.next().await.is_none());
                took
            });
            for took in join_all(ended).await {
                let took = took.expect("the stream ended too early");
                assert!(took < HEARTBEAT, "{took:?}");
            }
            for place in 0..2 {
                let again = if place == 0 {
                    by_cookie(&self.here, &self.session, Method::GET, EVENTS)
                } else {
                    let url = format!("{}{EVENTS}?session={}", self.here.url, self.session);
                    self.here.http.get(url)
                };
                assert_eq!(Answer::of(again).await.problem(401), "unauthorized");
            }
        };
        tokio::select! {
            () = ends => {}
            () = busy => unreachable!(),
        }
        until("the others are gone", || async {
            (metric(&self.here, "pagetide_streams_open").await == 1).then_some(())
        })
        .await;
        let text = self.here.get("/metrics").await.text;
        let counted =
            format!("pagetide_streams_session_ended_total{{reason=\"{reason}\"}} {STREAMS}");
        assert!(
            text.lines().any(|line| line == counted),
            "{counted} is not in\n{text}"
        );
        let receipt = self
            .there
            .clicks("b", json!({"page": "/last", "at": 1000}))
            .await;
        let position = receipt["position"].as_i64().unwrap();
        let seen = stays.through(position).await;
        assert!(seen.iter().all(|event| event.name == "counts"));
    }
}

#[tokio::test]
async fn streams_end_when_their_session_is_deleted_through_another_process() {
    let scene = Scene::with_session(json!({})).await;
    let delete = async |scene: &Scene| {
        let path = "/v1/sessions/current";
        let request = by_cookie(&scene.there, &scene.session, Method::DELETE, path);
        Answer::of(request).await.expect(204);
        Instant::now()
    };
    scene.show(delete, "deleted").await;
    // Its token goes on.
    let reader = scene.here.with_token(secret(&scene.token));
    reader.get("/v1/books/b").await.expect(200);
}

#[tokio::test]
async fn streams_end_when_the_token_of_their_session_is_revoked_through_another_process() {
    let scene = Scene::with_session(json!({})).await;
    let revoke = async |scene: &Scene| {
        let path = format!("/v1/tokens/{}", id(&scene.token));
        scene.there.delete(&path).await.expect(204);
        Instant::now()
    };
    scene.show(revoke, "revoked").await;
}

#[tokio::test]
async fn streams_end_when_their_session_expires() {
    // Long enough to open the streams in, on a machine that has others to serve.
    let opened_after = Instant::now();
    let scene = Scene::with_session(json!({"ttl_ms": 12_000})).await;
    // It was opened a moment later.
    let expire = async |_: &Scene| opened_after + Duration::from_secs(12);
    scene.show(expire, "expired").await;
}
