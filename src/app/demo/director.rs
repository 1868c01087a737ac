//! What the buttons do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::DemoError;
use super::crowd::Crowd;
use super::end::add_up;
use crate::config::demo::DemoConfig;
use crate::demo::show::{Deed, End};
use crate::time::Timestamp;

/// How often the senders' count is shown.
const COUNT_EVERY: Duration = Duration::from_millis(250);

/// Does what the buttons ask for.
pub(super) struct Director {
    pub(super) config: DemoConfig,
    pub(super) data_dir: PathBuf,
    /// Rung to have it pulled.
    pub(super) plug: Arc<Notify>,
    /// Whether the reader's line is cut.
    pub(super) cut: watch::Sender<bool>,
    pub(super) crowd: Crowd,
    pub(super) lid_opens: Option<Instant>,
    pub(super) trips: u64,
    /// Whether the pages of the book owe nothing, at the end.
    pub(super) settled: bool,
}

/// Those who read, and whoever adds up once they have left.
#[derive(Default)]
struct Tasks {
    readers: JoinSet<Result<(), DemoError>>,
    adding_up: JoinSet<Result<End, DemoError>>,
}

impl Director {
    /// Lets the readers in, and does what is asked for; ends only if something breaks.
    pub(super) async fn direct(mut self, mut deeds: mpsc::Receiver<Deed>) -> Result<(), DemoError> {
        let mut tasks = Tasks::default();
        tasks.readers.spawn(self.crowd.clone().pass());
        self.crowd.board.tell(
            "Readers come, and read chapter after chapter. Their clicks are posted by a back end; \
             read along in the book, and yours come from its pages.",
        );
        let mut ticks = interval(COUNT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(deed) = deeds.recv() => {
                    self.does(deed, &mut tasks);
                    self.let_add_up(&mut tasks);
                }
                () = reached(self.lid_opens) => self.open_the_lid(),
                _ = ticks.tick() => self.count(),
                Some(left) = tasks.readers.join_next() => {
                    unfailing(left)?;
                    self.let_add_up(&mut tasks);
                }
                Some(added_up) = tasks.adding_up.join_next() => self.ends(unfailing(added_up)?),
            }
        }
    }

    fn count(&self) {
        let tally = &self.crowd.tally;
        self.crowd
            .board
            .count(tally.acknowledged(), tally.waiting());
    }

    /// Does a deed, if now is the time for it.
    fn does(&mut self, deed: Deed, tasks: &mut Tasks) {
        let show = self.crowd.board.watch().borrow().clone();
        if show.finishing {
            self.settled |= deed == Deed::Settle;
            return;
        }
        match deed {
            Deed::PullThePlug if show.running => self.plug.notify_one(),
            Deed::CloseTheLid if self.lid_opens.is_none() => self.close_the_lid(),
            Deed::EnterTheTunnel if show.in_tunnel.is_none() => self.enter_the_tunnel(tasks),
            Deed::Finish => self.finish(),
            _ => {}
        }
    }

    fn close_the_lid(&mut self) {
        let closed = self.config.lid();
        self.cut.send_replace(true);
        self.lid_opens = Some(Instant::now() + closed);
        let closed_ms = i64::try_from(closed.as_millis()).unwrap_or(i64::MAX);
        let opens = Timestamp::saturating_from_millis(Timestamp::now().millis() + closed_ms);
        let board = &self.crowd.board;
        board.change(|show| show.lid_opens_at = Some(opens));
        board.tell(format!(
            "The lid is closed: this browser's connections to the server are cut, and new ones are \
             refused, for {} seconds. The readers do not notice.",
            closed.as_secs()
        ));
    }

    fn open_the_lid(&mut self) {
        if self.lid_opens.take().is_none() {
            return;
        }
        self.cut.send_replace(false);
        let board = &self.crowd.board;
        board.change(|show| show.lid_opens_at = None);
        board.tell(
            "The lid is open. The dashboard comes back by itself, with the number of the last frame \
             that it has seen, and gets every frame since.",
        );
    }

    fn enter_the_tunnel(&mut self, tasks: &mut Tasks) {
        self.trips += 1;
        let board = &self.crowd.board;
        board.change(|show| show.in_tunnel = Some(0));
        board.tell(
            "A train goes into a tunnel. Its passengers read on, and their phones keep the clicks, \
             while the windows of this time fire without them.",
        );
        let least = self.config.tunnel();
        let trip = self.crowd.clone().tunnel(self.trips, least);
        tasks.readers.spawn(trip);
    }

    fn finish(&mut self) {
        self.open_the_lid();
        let board = &self.crowd.board;
        board.change(|show| show.finishing = true);
        board.tell(
            "The readers leave. Once every click is acknowledged the book is closed, and the \
             database is asked what it holds.",
        );
        self.crowd.leave.cancel();
    }

    /// Has somebody add up, once, when nobody waits for an answer any more.
    fn let_add_up(&self, tasks: &mut Tasks) {
        let busy = !tasks.readers.is_empty() || !tasks.adding_up.is_empty();
        let done = self.crowd.board.watch().borrow().end.is_some();
        if !self.settled || busy || done {
            return;
        }
        let (crowd, data_dir) = (self.crowd.clone(), self.data_dir.clone());
        let adding_up = async move { add_up(&crowd.courier, &crowd.tally, &data_dir).await };
        tasks.adding_up.spawn(adding_up);
    }

    fn ends(&self, end: End) {
        let End {
            acknowledged,
            clicks,
            windows,
            ..
        } = end;
        super::say(&format!(
            "acknowledged {acknowledged}, counted in SQL {clicks} clicks and {windows} in windows"
        ));
        let again = match end.duplicates {
            0 => String::new(),
            1 => ", 1 was sent twice and counted once".to_owned(),
            many => format!(", {many} were sent twice and counted once"),
        };
        let board = &self.crowd.board;
        board.tell(format!(
            "The book is closed, and all its numbers are final{again}."
        ));
        board.change(|show| show.end = Some(end));
    }
}

async fn reached(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn unfailing<T>(ended: Result<Result<T, DemoError>, JoinError>) -> Result<T, DemoError> {
    ended.unwrap_or_else(|panicked| Err(DemoError::Task(panicked)))
}
