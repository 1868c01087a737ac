//! The state of the show, and what may be asked of it.

use serde::Serialize;
use tokio::sync::watch;

use crate::time::Timestamp;

/// Most lines of the story that are kept.
const STORY_LINES: usize = 60;

/// What a button asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// Kill server and Postgres, and start them again.
    PullThePlug,
    /// Cut the reader's connections for a while.
    CloseTheLid,
    /// Keep a carriage's clicks for a while.
    EnterTheTunnel,
    /// Have the readers leave, and add up once everything is acknowledged.
    Finish,
    /// The pages of the book have heard of all that they sent.
    Settle,
}

/// What the stage shows.
#[derive(Clone, Default, Debug, Serialize)]
pub(crate) struct Show {
    /// Whether the server runs.
    pub(crate) running: bool,
    /// When the lid opens, if it is closed.
    #[serde(serialize_with = "millis")]
    pub(crate) lid_opens_at: Option<Timestamp>,
    /// How many clicks the phones in the tunnel keep, if they are in it.
    pub(crate) in_tunnel: Option<usize>,
    /// Clicks that their senders know are counted.
    pub(crate) acknowledged: u64,
    /// Clicks that their senders have still to send, or to hear of.
    pub(crate) waiting: u64,
    /// Whether the end was asked for.
    pub(crate) finishing: bool,
    /// How it ended.
    pub(crate) end: Option<End>,
    /// What happened, in order.
    pub(crate) story: Vec<Line>,
    /// How many lines the story has had; the last is this one.
    pub(crate) lines: usize,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// In milliseconds since the epoch.
    pub(crate) at: i64,
    pub(crate) text: String,
}

/// What was counted, when all was said.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct End {
    /// By the senders.
    pub(crate) acknowledged: u64,
    /// Clicks in the log.
    pub(crate) clicks: i64,
    /// The sum of all windows.
    pub(crate) windows: i64,
    /// How many came too late for every window.
    pub(crate) dropped: i64,
    /// How many were sent again, because nobody had said that they were there.
    pub(crate) duplicates: i64,
    /// The book's last position, which a page has drawn when it shows as much.
    pub(crate) position: i64,
}

#[allow(clippy::ref_option, reason = "the signature that serde wants")]
fn millis<S: serde::Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(Timestamp::millis).serialize(serializer)
}

/// Where the state of the show is written; who watches it is told.
#[derive(Clone, Debug)]
pub(crate) struct Board(watch::Sender<Show>);

impl Board {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Show::default()))
    }

    /// What is shown, from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Show> {
        self.0.subscribe()
    }

    /// Changes what is shown.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Show)) {
        self.0.send_modify(change);
    }

    /// What the senders count.
    pub(crate) fn count(&self, acknowledged: u64, waiting: u64) {
        self.0.send_if_modified(|show| {
            let before = (show.acknowledged, show.waiting);
            (show.acknowledged, show.waiting) = (acknowledged, waiting);
            before != (acknowledged, waiting)
        });
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&self, text: impl Into<String>) {
        let at = Timestamp::now().millis();
        let text = text.into();
        self.change(|show| {
            show.lines += 1;
            show.story.push(Line { at, text });
            let excess = show.story.len().saturating_sub(STORY_LINES);
            show.story.drain(..excess);
        });
    }
}
