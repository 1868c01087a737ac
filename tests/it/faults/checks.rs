//! What must be so at the end of a round; and a proof that what is not so is found.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use uuid::Uuid;

use super::plan::Shape;

/// What counts of a click.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Click {
    pub(super) page: String,
    pub(super) at: i64,
}

/// Values by the start of the window and the group.
pub(super) type Counts = BTreeMap<(i64, String), i64>;

/// A book as it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// The log of clicks, a line each.
    pub(super) stored: Vec<(Uuid, Click)>,
    pub(super) pages: Counts,
    pub(super) chapters: Counts,
    pub(super) book: Counts,
    /// Every click is in one of them.
    pub(super) sessions: Counts,
    /// Every click is in two of them.
    pub(super) sliding: Counts,
    /// As the book shows them.
    pub(super) totals: Value,
    pub(super) oldest: i64,
    pub(super) position: i64,
    /// The positions in the buffer, in order.
    pub(super) frames: Vec<i64>,
    pub(super) dead_letters: i64,
}

/// Which chapter a page is in; the last page is in none.
pub(super) fn chapter_of(shape: &Shape, page: usize) -> String {
    if page + 1 == shape.pages {
        String::new()
    } else {
        format!("c{}", page % shape.chapters)
    }
}

/// Whether the buffer holds every position from `oldest` on; if it is merged, all of its newer half
/// and some before that, and not too many.
fn frames_are_right(shape: &Shape, standing: &Standing) -> bool {
    let Standing {
        oldest, position, ..
    } = *standing;
    let mut whole = oldest;
    if shape.merges() {
        whole = whole.max(position - shape.buffer_frames / 2);
        let most = shape.buffer_frames + shape.buffer_frames / 4 - 1;
        if i64::try_from(standing.frames.len()).unwrap() > most {
            return false;
        }
    }
    let older = standing.frames.partition_point(|p| *p < whole);
    let (older, newest) = standing.frames.split_at(older);
    older.is_sorted_by(|a, b| a < b)
        && older.first().is_none_or(|first| *first >= oldest)
        && newest.iter().copied().eq(whole..=position)
}

/// Everything that is not as it must be, given what was sent and what of it was acknowledged.
pub(super) fn wrong(
    shape: &Shape,
    standing: &Standing,
    sent: &HashMap<Uuid, Click>,
    acknowledged: &HashSet<Uuid>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut say = |right: bool, what: String| {
        if !right {
            wrong.push(what);
        }
    };

    let stored: HashMap<Uuid, &Click> = standing.stored.iter().map(|(id, c)| (*id, c)).collect();
    let twice = standing.stored.len() - stored.len();
    say(twice == 0, format!("{twice} clicks are stored twice"));
    let lost = acknowledged.iter().filter(|id| !stored.contains_key(id));
    let lost = lost.count();
    say(lost == 0, format!("{lost} acknowledged clicks are lost"));
    let other = |(id, click): &(&Uuid, &&Click)| sent.get(id) != Some(click);
    let others = stored.iter().filter(other).count();
    say(others == 0, format!("{others} clicks were never sent so"));

    // What is stored counts, once, in the window that it belongs to.
    let [mut pages, mut chapters, mut book]: [Counts; 3] = Default::default();
    for click in stored.values() {
        let start = click.at - click.at.rem_euclid(shape.size_ms);
        let number = click.page.strip_prefix("/p").and_then(|n| n.parse().ok());
        let chapter = number.map(|page| chapter_of(shape, page));
        *pages.entry((start, click.page.clone())).or_default() += 1;
        *chapters.entry((start, chapter.unwrap())).or_default() += 1;
        *book.entry((start, String::new())).or_default() += 1;
    }
    for (name, counted, expected) in [
        ("pages", &standing.pages, &pages),
        ("chapters", &standing.chapters, &chapters),
        ("book", &standing.book, &book),
    ] {
        let keys: HashSet<_> = counted.keys().chain(expected.keys()).collect();
        let differ = keys.iter().filter(|k| counted.get(k) != expected.get(k));
        let differ: Vec<_> = differ
            .map(|k| (k, counted.get(k), expected.get(k)))
            .collect();
        let few = &differ[..differ.len().min(3)];
        let many = differ.len();
        let what = format!("{name}: {many} windows have not their clicks, such as {few:?}");
        say(differ.is_empty(), what);
    }
    let clicks = i64::try_from(stored.len()).unwrap();
    for (name, counted, times) in [
        ("sessions", &standing.sessions, 1),
        ("sliding", &standing.sliding, 2),
    ] {
        let sum: i64 = counted.values().sum();
        let what = format!("{name} hold {sum} clicks instead of {times} × {clicks}");
        say(sum == times * clicks, what);
    }

    let total = |name: &str| standing.totals[name].as_i64().unwrap();
    let totals = &standing.totals;
    let counted = total("on_time") + total("late");
    let what = format!("{clicks} clicks are stored, the totals are {totals}");
    let none = ["dropped", "filtered", "rejected"];
    let none = none.iter().all(|name| total(name) == 0);
    let received = total("received") == counted + total("duplicates");
    say(counted == clicks && none && received, what);

    let what = format!(
        "the frames from {} to {} are {:?}",
        standing.oldest, standing.position, standing.frames
    );
    say(frames_are_right(shape, standing), what);
    let letters = standing.dead_letters;
    say(letters == 0, format!("{letters} dead letters"));
    wrong
}

mod tests {
    use super::*;
    use serde_json::json;

    const SHAPE: Shape = Shape {
        buffer_frames: 16,
        pages: 3,
        chapters: 1,
        size_ms: 1000,
        gap_ms: 10,
        delay_ms: 0,
    };

    /// Three clicks of which two were acknowledged, and the book that they make.
    fn right() -> (Standing, HashMap<Uuid, Click>, HashSet<Uuid>) {
        let clicks = [(1, "/p0", 5), (2, "/p1", 6), (3, "/p2", 1005)];
        let clicks = clicks.map(|(id, page, at)| {
            let page = page.to_owned();
            (Uuid::from_u128(id), Click { page, at })
        });
        let counts = |all: &[(i64, &str, i64)]| -> Counts {
            let all = all.iter();
            all.map(|(start, group, value)| ((*start, (*group).to_owned()), *value))
                .collect()
        };
        let standing = Standing {
            stored: clicks.to_vec(),
            pages: counts(&[(0, "/p0", 1), (0, "/p1", 1), (1000, "/p2", 1)]),
            chapters: counts(&[(0, "c0", 2), (1000, "", 1)]),
            book: counts(&[(0, "", 2), (1000, "", 1)]),
            sessions: counts(&[(5, "/p0", 1), (6, "/p1", 1), (1005, "/p2", 1)]),
            sliding: counts(&[(-1000, "", 2), (0, "", 3), (1000, "", 1)]),
            totals: json!({"received": 5, "on_time": 2, "late": 1, "dropped": 0,
                           "duplicates": 2, "filtered": 0, "rejected": 0}),
            oldest: 2,
            position: 4,
            frames: vec![2, 3, 4],
            dead_letters: 0,
        };
        let acknowledged = clicks[..2].iter().map(|(id, _)| *id).collect();
        (standing, clicks.into(), acknowledged)
    }

    /// What is found after something was changed.
    fn found(change: impl FnOnce(&mut Standing)) -> String {
        let (mut standing, sent, acknowledged) = right();
        change(&mut standing);
        wrong(&SHAPE, &standing, &sent, &acknowledged).join("; ")
    }

    #[test]
    fn what_is_right_is_found_right() {
        assert_eq!(found(|_| ()), "");
    }

    #[test]
    fn a_merged_buffer_has_gaps_in_its_older_half_alone() {
        let shape = Shape {
            buffer_frames: 256,
            ..SHAPE
        };
        let right = |frames: Vec<i64>| {
            let standing = Standing {
                oldest: 5,
                position: 600,
                frames,
                ..Standing::default()
            };
            frames_are_right(&shape, &standing)
        };
        let newer = || 472..=600;
        assert!(right(newer().collect()));
        assert!(right([5, 20, 471].into_iter().chain(newer()).collect()));
        assert!(!right([4].into_iter().chain(newer()).collect()));
        assert!(!right([20, 5].into_iter().chain(newer()).collect()));
        assert!(!right(newer().filter(|p| *p != 500).collect()));
        assert!(right((282..=600).collect()));
        assert!(!right((281..=600).collect()));
    }

    #[test]
    fn every_kind_of_wrong_is_found() {
        let cases: [(&str, fn(&mut Standing)); 12] = [
            ("1 acknowledged clicks are lost", |s| {
                drop(s.stored.remove(0));
            }),
            ("pages: 1 windows", |s| drop(s.stored.remove(2))),
            ("1 clicks are stored twice", |s| {
                s.stored.push(s.stored[0].clone());
            }),
            ("1 clicks were never sent so", |s| s.stored[1].1.at = 7),
            ("pages: 1 windows", |s| {
                *s.pages.get_mut(&(0, "/p0".to_owned())).unwrap() += 1;
            }),
            ("chapters: 2 windows", |s| {
                s.chapters = [((0, "c0".to_owned()), 3)].into();
            }),
            ("book: 1 windows", |s| {
                s.book.remove(&(1000, String::new()));
            }),
            ("sessions hold 2 clicks instead of 1 × 3", |s| {
                s.sessions.remove(&(5, "/p0".to_owned()));
            }),
            ("the totals are", |s| s.totals["on_time"] = json!(3)),
            ("the frames from 2 to 4 are [2, 4]", |s| {
                s.frames.remove(1);
            }),
            ("the frames from 2 to 4 are [2, 4, 3]", |s| {
                s.frames.swap(1, 2);
            }),
            ("1 dead letters", |s| s.dead_letters = 1),
        ];
        for (expected, change) in cases {
            let found = found(change);
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }
}
