//! An event stream, read by a parser that is not ours.

use std::pin::Pin;

use eventsource_stream::Eventsource;
use futures_util::{Stream, StreamExt};
use serde_json::Value;

use super::PATIENCE;

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) retry_ms: Option<u128>,
    pub(crate) data: Value,
}

impl Event {
    /// Its position, if it is a history frame.
    pub(crate) fn position(&self) -> Option<i64> {
        self.data.get("type")?;
        let position = self.data["position"].as_i64().unwrap();
        assert_eq!(self.id, position.to_string());
        Some(position)
    }
}

type Parsed = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// The events of a stream.
pub(crate) struct Events {
    pub(crate) headers: reqwest::header::HeaderMap,
    events: Parsed,
}

impl Events {
    pub(crate) fn of(response: reqwest::Response) -> Self {
        let headers = response.headers().clone();
        let events = response.bytes_stream().eventsource();
        // A connection that breaks off ends the stream; what was read until then counts.
        let events = events.take_while(|event| std::future::ready(event.is_ok()));
        let events = events.map(|event| {
            let event = event.unwrap();
            Event {
                name: event.event,
                id: event.id,
                retry_ms: event.retry.map(|retry| retry.as_millis()),
                data: serde_json::from_str(&event.data).unwrap(),
            }
        });
        Self {
            headers,
            events: Box::pin(events),
        }
    }

    /// The next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let next = tokio::time::timeout(PATIENCE, self.events.next()).await;
        next.expect("waited in vain for an event")
    }

    /// The next event, which must have this name.
    pub(crate) async fn expect(&mut self, name: &str) -> Event {
        let event = self.next().await.expect("the stream ended");
        assert_eq!(event.name, name, "{event:?}");
        event
    }

    /// Reads on up to and with the history frame at `position`.
    pub(crate) async fn through(&mut self, position: i64) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.expect("the stream ended");
            let there = event.position().is_some_and(|p| p >= position);
            events.push(event);
            if there {
                return events;
            }
        }
    }
}
