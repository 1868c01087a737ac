//! Eight rollups at once, of every kind of window, group and aggregate, against a plain
//! recomputation from the log of clicks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sqlx::Row;

use super::{Key, Random, Shown, by_page, counted, now_ms, session, sliding, tumbling};
use crate::harness::{Database, start};

const DELAY: i64 = 200;

/// A row of the log.
struct Logged {
    seq: i64,
    at: i64,
    before: Option<i64>,
    micros: Option<i64>,
    page: String,
    visitor: Option<String>,
    referrer: Option<String>,
    source: Option<String>,
}

async fn log(database: &Database, book: &str) -> Vec<Logged> {
    let sql = "SELECT c.seq, c.at_ms, c.watermark_before_ms, c.value_micros, c.page, c.visitor,
                      c.referrer, c.source
               FROM clicks c JOIN books b ON b.id = c.book_id WHERE b.slug = $1 ORDER BY c.seq";
    let rows = sqlx::query(sql).bind(book);
    let rows = rows.fetch_all(&mut database.connect().await).await.unwrap();
    let logged = rows.iter().map(|row| Logged {
        seq: row.get(0),
        at: row.get(1),
        before: row.get(2),
        micros: row.get(3),
        page: row.get(4),
        visitor: row.get(5),
        referrer: row.get(6),
        source: row.get(7),
    });
    logged.collect()
}

impl Logged {
    /// As a group or an item.
    fn field(&self, name: &str) -> Option<String> {
        match name {
            "book" => Some(String::new()),
            "page" => Some(self.page.clone()),
            "visitor" => self.visitor.clone(),
            "source" => self.source.clone(),
            // All of them are of one of two hosts.
            "referrer" => self.referrer.as_ref().map(|sent| {
                let host = if sent.to_lowercase().contains("a.example") {
                    "a.example"
                } else {
                    "b.example"
                };
                host.to_owned()
            }),
            other => panic!("no field {other}"),
        }
    }
}

fn decimal(micros: i128) -> Value {
    let (sign, size) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let text = format!("{sign}{}.{:06}", size / 1_000_000, size % 1_000_000);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    serde_json::from_str(text).unwrap()
}

fn aggregated(aggregate: &str, of: &str, clicks: &[&Logged]) -> Value {
    let micros = || clicks.iter().map(|click| click.micros.unwrap());
    let dated = || clicks.iter().map(|c| (c.at, c.seq, c.micros.unwrap()));
    let items = || clicks.iter().map(|click| click.field(of).unwrap());
    match aggregate {
        "count" => json!(clicks.len()),
        "sum" => decimal(micros().map(i128::from).sum()),
        "min" => decimal(micros().min().unwrap().into()),
        "max" => decimal(micros().max().unwrap().into()),
        "first" => decimal(dated().min().unwrap().2.into()),
        "last" => decimal(dated().max().unwrap().2.into()),
        "distinct" => json!(items().collect::<BTreeSet<_>>().len()),
        "top" => {
            let mut counts: BTreeMap<String, i64> = BTreeMap::new();
            for item in items() {
                *counts.entry(item).or_default() += 1;
            }
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.sort_by_key(|(_, count)| -count);
            let counts = counts.iter().take(10);
            counts
                .map(|(item, count)| json!({"item": item, "count": count}))
                .collect()
        }
        other => panic!("no aggregate {other}"),
    }
}

/// A click with the start and end of a window that it counts in.
type Placed<'a> = (i64, i64, &'a Logged);

/// Windows of a rollup, from the log at rest; and for each click whether it was counted in one and
/// whether it missed one.
fn recomputed(rollup: &Value, log: &[Logged], fates: &mut [(bool, bool)]) -> BTreeMap<Key, Value> {
    let name = rollup["name"].as_str().unwrap();
    let aggregate = rollup["aggregate"].as_str().unwrap();
    let of = match (rollup["of"].as_str(), aggregate) {
        (Some(of), _) => of,
        (None, "count") => "book",
        (None, "distinct") => "visitor",
        (None, "top") => "page",
        (None, _) => "value",
    };
    let window = &rollup["window"];
    let length = |field: &str| window[field].as_i64().unwrap();
    let lateness = rollup["lateness_ms"].as_i64().unwrap();
    let is_session = window["kind"] == "session";
    let mut kept: BTreeMap<String, Vec<Placed<'_>>> = BTreeMap::new();
    for (click, fate) in log.iter().zip(fates) {
        let has_item = match of {
            "value" => click.micros.is_some(),
            of => click.field(of).is_some(),
        };
        let Some(group) = click.field(rollup["group_by"].as_str().unwrap()) else {
            continue;
        };
        if !has_item {
            continue;
        }
        let starts: Vec<i64> = match window["kind"].as_str().unwrap() {
            "tumbling" => vec![click.at - click.at.rem_euclid(length("size_ms"))],
            "sliding" => (click.at - length("size_ms") + 1..=click.at)
                .filter(|start| start % length("slide_ms") == 0)
                .collect(),
            _ => vec![click.at],
        };
        let span = length(if is_session { "gap_ms" } else { "size_ms" });
        for start in starts {
            let end = start + span;
            let in_time = click.before.is_none_or(|before| end + lateness > before);
            if in_time {
                fate.0 = true;
                kept.entry(group.clone())
                    .or_default()
                    .push((start, end, click));
            } else {
                fate.1 = true;
            }
        }
    }
    let mut found = BTreeMap::new();
    for (group, mut placed) in kept {
        placed.sort_by_key(|(start, _, click)| (*start, click.seq));
        let mut windows: Vec<(i64, i64, Vec<&Logged>)> = Vec::new();
        for (start, end, click) in placed {
            match windows.last_mut() {
                Some((_, last_end, clicks)) if is_session && start < *last_end => {
                    *last_end = end;
                    clicks.push(click);
                }
                Some((last_start, _, clicks)) if *last_start == start => clicks.push(click),
                _ => windows.push((start, end, vec![click])),
            }
        }
        for (start, end, clicks) in windows {
            let key = (name.to_owned(), start, end, group.clone());
            found.insert(key, aggregated(aggregate, of, &clicks));
        }
    }
    found
}

/// Some 400 clicks, forward with stragglers, from before 1970 on; many lack something.
fn random_clicks(random: &mut Random) -> Vec<Value> {
    let mut at = -8_000_i64;
    let mut clicks = Vec::new();
    let small = |n: usize| i64::try_from(n).unwrap();
    for n in 0..400 {
        // In steps of 50, so that ends, gaps and the watermark often meet.
        at += 50 * [-1, 0, 0, 1, 1, 2][random.below(6)];
        let back = 50
            * match random.below(12) {
                0 => small(random.below(80)),
                1 | 2 => small(random.below(18)),
                _ => 0,
            };
        let mut click = json!({"id": n.to_string(), "page": format!("/p{}", random.below(4)),
                               "at": at - back});
        if random.below(8) > 0 {
            click["visitor"] = json!(format!("v{}", random.below(6)));
        }
        if random.below(4) > 0 {
            let urls = [
                "https://www.A.example:8080/x",
                "http://a.example",
                "https://b.example/?q",
            ];
            click["referrer"] = json!(urls[random.below(3)]);
        }
        if random.below(4) > 0 {
            click["source"] = json!(format!("s{}", random.below(3)));
        }
        if random.below(6) > 0 {
            let micros = small(random.below(40_000_000)) - 10_000_000;
            let coarse = [1, 1000, 500_000, 1_000_000][random.below(4)];
            click["value"] = decimal((micros / coarse * coarse).into());
        }
        clicks.push(click);
    }
    clicks
}

fn rollups() -> Vec<Value> {
    let rollup = |name: &str, group: &str, aggregate: &str, window: Value, lateness: i64| {
        json!({"name": name, "group_by": group, "aggregate": aggregate, "window": window,
               "lateness_ms": lateness})
    };
    let mut rollups = vec![
        rollup("views", "page", "count", tumbling(1000), 500),
        rollup("worth", "book", "sum", sliding(2000, 500), 0),
        rollup("least", "source", "min", sliding(900, 400), 300),
        rollup("most", "referrer", "max", tumbling(3000), 100_000),
        rollup("opened", "page", "first", session(150), 0),
        rollup("left", "visitor", "last", session(250), 1500),
        rollup("readers", "book", "distinct", sliding(1500, 1500), 100),
        rollup("read", "source", "top", session(100), 700),
    ];
    rollups[6]["of"] = json!("visitor");
    rollups
}

#[tokio::test]
async fn eight_rollups_equal_a_plain_recomputation_from_the_log() {
    let (database, server) = start().await;
    let api = server.api();
    let rollups = rollups();
    let settings = json!({"delay_ms": DELAY, "lateness_ms": 0, "idle_timeout_ms": null,
                          "max_future_ms": null});
    api.book("b", json!({"rollups": rollups, "settings": settings}))
        .await;
    let names: Vec<&str> = rollups
        .iter()
        .map(|r| r["name"].as_str().unwrap())
        .collect();
    let mut random = Random(7);
    let clicks = random_clicks(&mut random);
    let mut events = api.follow("b", "", None).await;
    let mut shown = Shown::default();
    let mut sent = 0;
    while sent < clicks.len() {
        let to = (sent + 1 + random.below(30)).min(clicks.len());
        let taken = api.clicks("b", json!(clicks[sent..to])).await;
        assert_eq!(taken["received"], to - sent);
        assert_eq!(taken["rejected"], 0, "{taken}");
        let frames = events.through(taken["position"].as_i64().unwrap()).await;
        shown.learn_all(&frames);
        sent = to;
    }
    shown.equals_counts_and_snapshot(&api, "b", &names).await;

    let log = log(&database, "b").await;
    assert_eq!(log.len(), clicks.len());
    let mut newest = None;
    for (logged, click) in log.iter().zip(&clicks) {
        assert_eq!(
            (&json!(logged.at), &json!(logged.page)),
            (&click["at"], &click["page"])
        );
        let before = newest.map(|newest: i64| newest - DELAY);
        assert_eq!(logged.before, before, "the watermark before {click}");
        newest = newest.max(Some(logged.at));
    }
    let mut fates = vec![(false, false); log.len()];
    let mut expected = BTreeMap::new();
    for rollup in &rollups {
        let windows = recomputed(rollup, &log, &mut fates);
        assert!(windows.len() > 5, "{rollup}: {} windows", windows.len());
        expected.extend(windows);
    }
    assert_eq!(shown.values, expected);
    let dropped = fates.iter().filter(|(counted, missed)| !counted && *missed);
    let partly = fates.iter().filter(|(counted, missed)| *counted && *missed);
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["totals"]["dropped"], dropped.count());
    assert!(
        partly.count() > 20 && book["totals"]["late"].as_i64() > Some(20),
        "{book}"
    );

    let closed = api
        .post("/v1/books/b/close", &Value::Null)
        .await
        .expect(200);
    let frames = events.through(closed["position"].as_i64().unwrap()).await;
    shown.learn_all(&frames);
    shown.equals_counts_and_snapshot(&api, "b", &names).await;
    assert_eq!(shown.values, expected);
    assert_eq!(shown.fired.len(), expected.len(), "everything fired");
}

#[tokio::test]
async fn what_pages_and_visits_count_adds_up_to_the_book() {
    let (_database, server) = start().await;
    let api = server.api();
    let grouped = |name: &str, group: &str, window: Value| json!({"name": name, "group_by": group, "aggregate": "count", "window": window});
    let rollups = [
        by_page("pages", tumbling(1000)),
        grouped("book", "book", tumbling(1000)),
        by_page("pages-sliding", sliding(2000, 400)),
        grouped("book-sliding", "book", sliding(2000, 400)),
        by_page("visits", session(100)),
    ];
    let settings = json!({"delay_ms": DELAY, "lateness_ms": 300, "idle_timeout_ms": null,
                          "max_future_ms": null});
    api.book("b", json!({"rollups": rollups, "settings": settings}))
        .await;
    let mut random = Random(u64::try_from(now_ms()).unwrap());
    let seed = random.0;
    for batch in random_clicks(&mut random).chunks(23) {
        api.clicks("b", json!(batch)).await;
        for (pages, book) in [("pages", "book"), ("pages-sliding", "book-sliding")] {
            let mut sums: BTreeMap<(i64, i64), i64> = BTreeMap::new();
            for ((_, start, end, _), (value, _)) in counted(&api, "b", pages).await {
                *sums.entry((start, end)).or_default() += value.as_i64().unwrap();
            }
            let counts = counted(&api, "b", book).await.into_iter();
            let counts = counts
                .map(|((_, start, end, _), (value, _))| ((start, end), value.as_i64().unwrap()));
            assert_eq!(sums, counts.collect(), "{pages}, seed {seed}");
        }
    }
    let taken = api.get("/v1/books/b").await.expect(200)["totals"].clone();
    let taken = taken["on_time"].as_i64().unwrap() + taken["late"].as_i64().unwrap();
    let sum = |windows: BTreeMap<Key, (Value, String)>| -> i64 {
        windows
            .values()
            .map(|(value, _)| value.as_i64().unwrap())
            .sum()
    };
    // A click is in one tumbling window, one session and five sliding windows, or too late for some.
    assert!(sum(counted(&api, "b", "book").await) <= taken);
    assert!(sum(counted(&api, "b", "visits").await) <= taken);
    assert!(sum(counted(&api, "b", "book-sliding").await) <= 5 * taken);
}
