//! Readers: each follows the book over all breaks, with its cursor, and keeps what it is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eventsource_client::{Client, ClientBuilder, ReconnectOptions, SSE};
use futures_util::StreamExt;
use launchdarkly_sdk_transport::HyperTransport;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::load::Addresses;
use super::seen::{Next, Seen};
use crate::harness::Api;
use crate::harness::sse::{Event, Events};

/// The readers of a round; gone when dropped.
pub(super) struct Readers {
    pub(super) seen: Vec<Arc<Mutex<Seen>>>,
    tasks: JoinSet<()>,
    /// Frames may have gone into newer ones.
    merges: bool,
    said: Arc<Mutex<HashMap<i64, String>>>,
}

impl Readers {
    pub(super) fn new(merges: bool) -> Self {
        Self {
            merges,
            seen: Vec::new(),
            tasks: JoinSet::new(),
            said: Arc::default(),
        }
    }

    /// One more, from the first frame on.
    pub(super) async fn join(&mut self, api: &Api, addresses: &Addresses, by_client: bool) {
        let number = self.seen.len();
        let seen = Arc::new(Mutex::new(Seen::new(self.merges, Arc::clone(&self.said))));
        self.seen.push(Arc::clone(&seen));
        let reader = Reader {
            number,
            api: api.clone(),
            addresses: addresses.clone(),
            seen,
        };
        if by_client {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            self.tasks.spawn(front(listener, addresses.clone()));
            self.tasks.spawn(reader.follow_by_client(address));
        } else {
            self.tasks.spawn(reader.follow());
        }
    }

    /// Where each of them stands; fails if one of them has.
    pub(super) fn positions(&mut self) -> Vec<i64> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended.unwrap();
            panic!("a reader ended");
        }
        let position = |seen: &Arc<Mutex<Seen>>| seen.lock().unwrap().position;
        self.seen.iter().map(position).collect()
    }
}

struct Reader {
    number: usize,
    api: Api,
    addresses: Addresses,
    seen: Arc<Mutex<Seen>>,
}

impl Reader {
    /// A server that is up, another one with each call.
    fn somewhere(&self, times: usize) -> Option<Api> {
        let addresses = self.addresses.borrow();
        let up: Vec<&String> = addresses.iter().flatten().collect();
        let url = up.get((self.number + times) % up.len().max(1))?;
        Some(Api {
            url: (*url).clone(),
            ..self.api.clone()
        })
    }

    /// Takes an event in; reads a snapshot where that is needed.
    async fn take(&self, name: &str, id: Option<i64>, data: &Value) {
        let next = self.seen.lock().unwrap().take(name, id, data);
        let Next::Snapshot = next else { return };
        for times in 0.. {
            if let Some(api) = self.somewhere(times) {
                let request = api.request(reqwest::Method::GET, "/v1/books/b/snapshot");
                let answer = crate::harness::load::answer(request).await;
                if let Some(answer) = answer.filter(|answer| answer.status == 200) {
                    self.seen.lock().unwrap().take_snapshot(&answer.json());
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client that comes back at once, to whichever server.
    async fn follow(self) {
        for times in 0.. {
            // As a client would, only sooner.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let Some(api) = self.somewhere(times) else {
                continue;
            };
            let cursor = self.seen.lock().unwrap().connect();
            let request = api.request(reqwest::Method::GET, "/v1/books/b/events");
            let request = request.header("last-event-id", cursor.to_string());
            let Ok(response) = request.send().await else {
                continue;
            };
            if response.status() != 200 {
                let (status, mut seen) = (response.status(), self.seen.lock().unwrap());
                seen.wrong
                    .push(format!("a stream was answered by {status}"));
                continue;
            }
            let mut events = Events::of(response);
            while let Some(Event { name, id, data, .. }) = events.next().await {
                self.take(&name, id.parse().ok(), &data).await;
            }
        }
    }

    /// A client that others wrote.
    async fn follow_by_client(self, front: SocketAddr) {
        let url = format!("http://{front}/v1/books/b/events");
        let reconnect = ReconnectOptions::reconnect(true)
            .retry_initial(true)
            .delay(Duration::from_millis(10))
            .delay_max(Duration::from_secs(1))
            .build();
        let client = ClientBuilder::for_url(&url).unwrap();
        let token = format!("Bearer {}", self.api.token);
        let client = client.header("authorization", &token).unwrap();
        let client = client.last_event_id("0".to_owned()).reconnect(reconnect);
        let transport = HyperTransport::builder().disable_proxy();
        let client = client.build_with_transport(transport.build_http().unwrap());
        let mut stream = client.stream();
        while let Some(item) = stream.next().await {
            match item {
                Ok(SSE::Connected(_)) => {
                    self.seen.lock().unwrap().connect();
                }
                Ok(SSE::Event(event)) => {
                    let data = serde_json::from_str(&event.data).unwrap();
                    let id = event.id.and_then(|id| id.parse().ok());
                    self.take(&event.event_type, id, &data).await;
                }
                // A break, after which it comes back by itself.
                Ok(SSE::Comment(_)) | Err(_) => {}
            }
        }
    }
}

/// One address for all servers: passes each connection on to the next that is up.
async fn front(listener: TcpListener, addresses: Addresses) {
    for number in 0_usize.. {
        let (mut client, _) = listener.accept().await.unwrap();
        let up: Vec<String> = addresses.borrow().iter().flatten().cloned().collect();
        let Some(url) = up.get(number % up.len().max(1)).cloned() else {
            continue;
        };
        tokio::spawn(async move {
            let address = url.strip_prefix("http://").unwrap();
            if let Ok(mut server) = TcpStream::connect(address).await {
                // Broken by either side, it is broken for both.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
