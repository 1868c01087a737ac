//! The readers of the demo, in time: what they open becomes clicks, which are sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::DemoError;
use super::courier::{Click, Courier};
use crate::demo::book::{BASE_PATH, WINDOW_MS};
use crate::demo::readers::{Readers, Turn};
use crate::demo::show::Board;
use crate::demo::tally::Tally;
use crate::time::Timestamp;

/// How often one looks at what the readers do.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Most clicks that are sent at once.
const MOST_CLICKS: usize = 1000;

/// What all who read have in common.
#[derive(Clone)]
pub(super) struct Crowd {
    pub(super) courier: Arc<Courier>,
    pub(super) tally: Arc<Tally>,
    pub(super) board: Board,
    /// May post clicks and do nothing else.
    pub(super) token: String,
    pub(super) speed: f64,
    pub(super) seed: u64,
    /// Everybody is to leave.
    pub(super) leave: CancellationToken,
}

impl Crowd {
    /// Readers come and go until all are to leave; returns when all that they opened is
    /// acknowledged.
    pub(super) async fn pass(self) -> Result<(), DemoError> {
        // Without a bound: what waits is what people read while the server is away.
        let (sender, mut clicks) = mpsc::unbounded_channel();
        let mut reading = Reading::new(Readers::passing(self.seed), "reader", self.speed);
        let reading = async {
            let mut ticks = ticks();
            while !self.leave.is_cancelled() {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = self.leave.cancelled() => {}
                }
                let read = reading.on();
                self.tally.read(read.len());
                for click in read {
                    // The other end is there for as long as this one.
                    let _ = sender.send(click);
                }
            }
            drop(sender);
        };
        let sending = async {
            let mut batch = Vec::new();
            while clicks.recv_many(&mut batch, MOST_CLICKS).await > 0 {
                self.courier.deliver(&self.token, &batch).await?;
                batch.clear();
            }
            Ok(())
        };
        let ((), sent) = tokio::join!(reading, sending);
        sent
    }

    /// A carriage of readers goes into a tunnel for at least `least`, and until the first window in
    /// which they read has fired without them. Their phones keep what they open, and send it then.
    pub(super) async fn tunnel(self, trip: u64, least: Duration) -> Result<(), DemoError> {
        let readers = Readers::carriage(self.seed.wrapping_add(trip));
        let mut reading = Reading::new(readers, &format!("phone-{trip}"), self.speed);
        let until_ms = reading.began_ms + i64::try_from(least.as_millis()).unwrap_or(i64::MAX);
        let fired_ms = (reading.began_ms.div_euclid(WINDOW_MS) + 1) * WINDOW_MS;
        let mut kept = Vec::new();
        let mut ticks = ticks();
        while !self.leave.is_cancelled()
            && (Timestamp::now().millis() < until_ms || self.courier.watermark_ms() < fired_ms)
        {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.leave.cancelled() => {}
            }
            let read = reading.on();
            self.tally.read(read.len());
            kept.extend(read);
            self.board.change(|show| show.in_tunnel = Some(kept.len()));
        }
        for part in kept.chunks(MOST_CLICKS) {
            self.courier.deliver(&self.token, part).await?;
        }
        self.board.change(|show| show.in_tunnel = None);
        self.board.tell(format!(
            "Out of the tunnel: {} late clicks, each with the time at which it was made. Look at the \
             bars of that time: they have grown.",
            kept.len()
        ));
        Ok(())
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Readers from now on.
struct Reading {
    readers: Readers,
    /// What their ids and names begin with.
    name: String,
    began_ms: i64,
    speed: f64,
    clicks: u64,
}

impl Reading {
    fn new(readers: Readers, name: &str, speed: f64) -> Self {
        Self {
            readers,
            name: name.to_owned(),
            began_ms: Timestamp::now().millis(),
            speed,
            clicks: 0,
        }
    }

    /// What they have opened since one last looked.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "milliseconds of a show"
    )]
    fn on(&mut self) -> Vec<Click> {
        let gone = (Timestamp::now().millis() - self.began_ms).max(0);
        let turns = self.readers.until((gone as f64 * self.speed) as u64);
        turns.iter().map(|turn| self.click(turn)).collect()
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "milliseconds of a show"
    )]
    fn click(&mut self, turn: &Turn) -> Click {
        self.clicks += 1;
        Click {
            id: format!("{}-{}", self.name, self.clicks),
            page: format!("{BASE_PATH}{}", turn.page),
            at: self.began_ms + (turn.at_ms as f64 / self.speed) as i64,
            visitor: format!("{}-reader-{}", self.name, turn.reader),
            referrer: turn.referrer,
        }
    }
}
