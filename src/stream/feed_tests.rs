//! A feed over a buffer in which frames are minted, merged and pruned at any moment, and readers with
//! any cursor: nobody misses anything.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;

use futures_util::FutureExt;
use proptest::prelude::*;
use uuid::Uuid;

use super::cursor::Bounds;
use super::feed::{Feed, Head};
use super::older::{Block, Older};
use super::ring::{Encoded, Page};
use crate::engine::Watermark;
use crate::frame::{NewFrame, News};

/// A frame: its position, and the position after which it says everything.
#[derive(Clone, Copy, Debug)]
struct Row {
    position: i64,
    after: i64,
    bytes: usize,
}

impl Row {
    fn data(self) -> String {
        format!("{} {}", self.after, "x".repeat(self.bytes))
    }

    fn encoded(self) -> Encoded {
        Encoded::new(self.position, "counts", &self.data())
    }
}

/// After which position a frame says everything.
fn after(frame: &Encoded) -> i64 {
    let text = std::str::from_utf8(&frame.bytes).unwrap();
    let data = text
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap();
    data.split(' ').next().unwrap().parse().unwrap()
}

/// The buffer as it is in the database.
#[derive(Clone, Default, Debug)]
struct Table {
    rows: VecDeque<Row>,
    position: i64,
    pruned: i64,
}

impl Table {
    /// The last place of the rows up to the one that says what `position` said.
    fn through(&self, position: i64) -> usize {
        let rows = &self.rows;
        let place = rows.partition_point(|row| row.position < position);
        (place + 1).min(rows.len())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Mint(usize),
    /// The frame after these is minted by a commit of this process, which tells of it.
    Tell(usize),
    /// So many neighbours from a place on become one frame.
    Merge(usize, usize),
    Prune(usize),
    /// The hub's statement is answered.
    Look,
    /// The hub takes in what it was answered.
    Refresh,
    /// A reader takes a page.
    Read(usize),
    /// A reader goes, and one with another cursor comes.
    Come(usize, i64),
}

/// What the hub was answered: the head, with how many commits had been told of, and frames.
type Looked = ((Head, u64), Vec<Encoded>);

struct World {
    feed: Feed,
    table: RefCell<Table>,
    looked: Cell<Option<Looked>>,
    cursors: RefCell<Vec<i64>>,
    /// What happens between a statement and the moment at which its answer is used.
    meanwhile: RefCell<VecDeque<Op>>,
    lost: RefCell<Vec<String>>,
}

/// Most frames that a statement brings here.
const PAGE: usize = 4;

impl World {
    fn new(meanwhile: Vec<Op>) -> Self {
        Self {
            feed: Feed::new(Uuid::nil()),
            table: RefCell::default(),
            looked: Cell::new(None),
            cursors: RefCell::new(vec![0; 3]),
            meanwhile: RefCell::new(meanwhile.into()),
            lost: RefCell::default(),
        }
    }

    fn check(&self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.lost.borrow_mut().push(what());
        }
    }

    fn carry_out(&self, op: &Op) {
        let mut table = self.table.borrow_mut();
        match *op {
            Op::Mint(bytes) => {
                table.position += 1;
                let position = table.position;
                table.rows.push_back(Row {
                    position,
                    after: position - 1,
                    bytes,
                });
            }
            Op::Tell(bytes) => {
                drop(table);
                self.carry_out(&Op::Mint(bytes));
                self.tell();
            }
            Op::Merge(place, many) => {
                let most = table.rows.len();
                let place = place.min(most);
                let merged: Vec<Row> = table.rows.drain(place..(place + many).min(most)).collect();
                if let (Some(first), Some(last)) = (merged.first(), merged.last()) {
                    let after = first.after;
                    table.rows.insert(place, Row { after, ..*last });
                }
            }
            Op::Prune(many) => {
                for _ in 0..many {
                    // The newest is always kept.
                    if table.rows.len() > 1 {
                        table.pruned = table.rows.pop_front().unwrap().position;
                    }
                }
            }
            Op::Look => {
                let upto = self.feed.upto();
                let rows = table.rows.iter().filter(|row| row.position > upto);
                let frames = rows.take(PAGE).map(|row| row.encoded()).collect();
                let tells = self.feed.tells();
                self.looked.set(Some(((head(&table), tells), frames)));
            }
            Op::Refresh => {
                if let Some((head, frames)) = self.looked.take() {
                    // One of so many that each ring is as small as can be.
                    self.feed.refresh(head, frames, usize::MAX);
                }
            }
            Op::Read(reader) => {
                drop(table);
                self.read(reader);
            }
            Op::Come(reader, back) => {
                let cursor = (table.position - back).max(table.pruned);
                self.cursors.borrow_mut()[reader] = cursor;
            }
        }
    }

    /// The commit that minted the newest frame tells of it.
    fn tell(&self) {
        let table = self.table.borrow();
        let row = *table.rows.back().unwrap();
        let known = *self.feed.head.borrow();
        let goes_on = known.is_some_and(|head| head.bounds.position == row.after)
            && self.feed.upto() == row.after;
        let news = News {
            book: self.feed.book,
            before: row.after,
            position: row.position,
            oldest: table.pruned + 1,
            revision: table.position,
            structure_version: 0,
            watermark: Watermark::MINUS_INFINITY,
            closed: false,
            frames: vec![NewFrame {
                book: self.feed.book,
                position: row.position,
                event: "counts",
                data: row.data(),
            }],
        };
        let told = self.feed.extend(&news, usize::MAX);
        self.check(told == goes_on, || format!("{row:?} was told: {told}"));
        if told {
            let upto = self.feed.upto();
            self.check(upto == row.position, || format!("{upto} after {row:?}"));
        }
    }

    /// A reader takes a page. Says whether it is caught up.
    fn read(&self, reader: usize) -> bool {
        if self.feed.head.borrow().is_none() {
            return false;
        }
        let mut cursor = self.cursors.borrow()[reader];
        let mut page = self.feed.page(cursor, 20_000);
        if let Page::Older = page {
            let older = self.feed.older(self, cursor, 20_000);
            page = older
                .now_or_never()
                .expect("nothing is waited for")
                .unwrap();
        }
        let mut caught_up = false;
        match page {
            Page::Frames(frames) => {
                self.check(!frames.is_empty(), || "an empty page".to_owned());
                for frame in frames {
                    let (position, after) = (frame.position, after(&frame));
                    self.check(position > cursor, || format!("{position} after {cursor}"));
                    self.check(after <= cursor, || {
                        format!("from {cursor} to {position}, which says what was after {after}")
                    });
                    cursor = position;
                }
            }
            Page::CaughtUp => {
                let upto = self.feed.upto();
                self.check(cursor >= upto, || format!("{cursor} stops before {upto}"));
                caught_up = true;
            }
            Page::Older => {}
            Page::Pruned { oldest } => {
                let pruned = self.table.borrow().pruned;
                self.check(cursor < oldest - 1 && oldest - 1 <= pruned, || {
                    format!("{cursor} is told that {oldest} is the oldest")
                });
                cursor = self.table.borrow().position;
            }
            Page::Replaced { .. } => self.check(false, || "nothing was replaced".to_owned()),
        }
        self.cursors.borrow_mut()[reader] = cursor;
        caught_up
    }

    /// Everybody reads on until nothing is left.
    fn finish(&self) {
        self.meanwhile.borrow_mut().clear();
        let position = self.table.borrow().position;
        for _ in 0..=position {
            self.carry_out(&Op::Look);
            self.carry_out(&Op::Refresh);
        }
        let readers = self.cursors.borrow().len();
        for reader in 0..readers {
            let caught_up = (0..=2 * position + 2).any(|_| self.read(reader));
            let cursor = self.cursors.borrow()[reader];
            self.check(caught_up && cursor == position, || {
                format!("a reader ends at {cursor} of {position}")
            });
        }
    }
}

fn head(table: &Table) -> Head {
    Head {
        bounds: Bounds {
            position: table.position,
            oldest: table.pruned + 1,
            barrier: 0,
            at_rest: false,
        },
        revision: table.position,
        deleted: false,
        ..Head::NOWHERE
    }
}

impl World {
    /// A statement sees the table at one moment; other things happen before its answer is used.
    fn statement<T>(&self, read: impl FnOnce(&Table) -> T) -> T {
        let answer = read(&self.table.borrow());
        for _ in 0..3 {
            let op = self.meanwhile.borrow_mut().pop_front();
            // Another reader would wait for this one.
            if let Some(op) = op.filter(|op| !matches!(op, Op::Read(_) | Op::Come(..))) {
                self.carry_out(&op);
            }
        }
        answer
    }
}

impl Older for World {
    type Error = Infallible;

    async fn newest_first(&self, upto: i64, most: usize) -> Result<Option<Block>, Infallible> {
        Ok(self.statement(|table| {
            let end = table.through(upto);
            let mut bytes = 0;
            let fits = |row: &&Row| {
                let before = bytes;
                bytes += row.bytes;
                before < most
            };
            let rows = table.rows.range(..end).rev().take(PAGE);
            let rows: Vec<&Row> = rows.take_while(fits).collect();
            let before = table.rows.range(..end - rows.len()).next_back();
            Some(Block {
                oldest: table.pruned + 1,
                after: before.map_or(table.pruned, |row| row.position),
                frames: rows.into_iter().map(|row| row.encoded()).collect(),
            })
        }))
    }

    async fn oldest_first(
        &self,
        after: i64,
        upto: i64,
        _most: usize,
    ) -> Result<Option<Block>, Infallible> {
        Ok(self.statement(|table| {
            let rows = table.rows.range(..table.through(upto));
            let rows = rows.filter(|row| row.position > after).take(PAGE);
            Some(Block {
                oldest: table.pruned + 1,
                after,
                frames: rows.map(|row| row.encoded()).collect(),
            })
        }))
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![Just(100_usize), Just(9_000)];
    prop_oneof![
        6 => bytes.clone().prop_map(Op::Mint),
        6 => bytes.prop_map(Op::Tell),
        3 => (0..20_usize, 2..6_usize).prop_map(|(place, many)| Op::Merge(place, many)),
        1 => (1..4_usize).prop_map(Op::Prune),
        3 => Just(Op::Look),
        3 => Just(Op::Refresh),
        4 => (0..3_usize).prop_map(Op::Read),
        2 => (0..3_usize, 0..30_i64).prop_map(|(reader, back)| Op::Come(reader, back)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn readers_of_a_ring_over_a_merged_buffer_miss_nothing(
        ops in prop::collection::vec(any_op(), 0..120),
        meanwhile in prop::collection::vec(any_op(), 0..30),
    ) {
        let world = World::new(meanwhile);
        for op in &ops {
            world.carry_out(op);
        }
        world.finish();
        prop_assert_eq!(world.lost.take(), Vec::<String>::new());
    }
}
