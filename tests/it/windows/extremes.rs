//! The ends of time and of numbers: refused by name, or right.

use serde_json::{Value, json};

use super::idleness::fires;
use super::{DAY, MAX, MIN, SPAN, by_page, clicks, counted, ms, session, sliding, tumbling};
use crate::harness::{Api, start};
use crate::raw::fields;

fn settings() -> Value {
    json!({"delay_ms": 0, "lateness_ms": 0, "idle_timeout_ms": null, "max_future_ms": null})
}

/// A book with one rollup, `r`.
async fn book(api: &Api, slug: &str, window: Value) {
    let fields = json!({"rollups": [by_page("r", window)], "settings": settings()});
    api.book(slug, fields).await;
}

#[tokio::test]
async fn lengths_that_make_no_sense_are_refused_by_name() {
    let (_database, server) = start().await;
    let api = server.api();
    let lasting = |lateness: Value| {
        let mut rollup = by_page("r", tumbling(10));
        rollup["lateness_ms"] = lateness;
        rollup
    };
    let mut wrong: Vec<(&str, Vec<Value>)> = Vec::new();
    for n in [0, -1, i64::MAX, i64::MIN, SPAN + 1] {
        wrong.push(("rollups.window.size_ms", vec![by_page("r", tumbling(n))]));
        wrong.push(("rollups.window.size_ms", vec![by_page("r", sliding(n, 1))]));
        wrong.push((
            "rollups.window.slide_ms",
            vec![by_page("r", sliding(10, n))],
        ));
        wrong.push(("rollups.window.gap_ms", vec![by_page("r", session(n))]));
        if n != 0 {
            wrong.push(("rollups.lateness_ms", vec![lasting(json!(n))]));
        }
    }
    let of = |of: &str| {
        let mut rollup = by_page("r", tumbling(10));
        rollup["aggregate"] = json!("sum");
        rollup["of"] = json!(of);
        vec![rollup]
    };
    let many = |n: i64| (0..n).map(|n| by_page(&format!("r{n}"), tumbling(10 + n)));
    wrong.extend([
        (
            "rollups.window.slide_ms",
            vec![by_page("r", sliding(10, 11))],
        ),
        (
            "rollups.lateness_ms",
            vec![by_page("r", session(SPAN / 2 + 1))],
        ),
        ("rollups.lateness_ms", vec![lasting(json!(SPAN - 9))]),
        ("rollups.window", vec![by_page("r", sliding(101, 1))]),
        ("rollups.window", vec![by_page("r", sliding(201, 2))]),
        (
            "rollups.window",
            vec![
                by_page("a", sliding(99, 1)),
                by_page("b", session(1)),
                by_page("c", tumbling(1)),
            ],
        ),
        ("rollups", vec![]),
        ("rollups", many(9).collect()),
        (
            "rollups.name",
            vec![by_page("r", tumbling(1)), by_page("r", tumbling(2))],
        ),
        ("rollups.of", of("page")),
        ("rollups.of", of("visitor")),
        ("rollups.of", of("referrer")),
        ("rollups.of", of("source")),
    ]);
    for (field, rollups) in wrong {
        let new = json!({"title": "T", "rollups": rollups, "settings": settings()});
        let problem = api.post("/v1/books", &new).await.expect(422);
        assert_eq!(fields(&problem), [field], "{rollups:?}");
    }
    api.book("eight", json!({"rollups": many(8).collect::<Vec<_>>()}))
        .await;
    let names = [
        "delay_ms",
        "lateness_ms",
        "idle_timeout_ms",
        "max_future_ms",
    ];
    for name in names {
        for n in [-1, i64::MAX, i64::MIN, SPAN + 1] {
            let patch = json!({"settings": {name: n}});
            let problem = api.patch("/v1/books/eight", &patch).await.expect(422);
            let told = fields(&problem);
            assert!(
                told.contains(&format!("settings.{name}")),
                "{patch}: {told:?}"
            );
        }
    }
    let never = json!({"settings": {"idle_timeout_ms": 0}});
    let problem = api.patch("/v1/books/eight", &never).await.expect(422);
    assert_eq!(fields(&problem), ["settings.idle_timeout_ms"]);
}

#[tokio::test]
async fn lengths_that_are_no_whole_numbers_are_refused_by_name() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({})).await;
    let texts = [
        "1.5",
        "1e3",
        "10.0",
        "\"10\"",
        "true",
        "9223372036854775808",
        "[10]",
    ];
    let windows = [
        ("tumbling", "size_ms", ""),
        ("sliding", "size_ms", r#", "slide_ms": 1"#),
        ("sliding", "slide_ms", r#", "size_ms": 1000"#),
        ("session", "gap_ms", ""),
    ];
    for text in texts {
        for (kind, field, more) in windows {
            let body = format!(
                r#"{{"title": "T", "rollups": [{{"name": "r", "group_by": "page", "aggregate": "count",
                     "window": {{"kind": "{kind}", "{field}": {text}{more}}}}}]}}"#
            );
            let request = (reqwest::Method::POST, "/v1/books");
            let answer = crate::raw::send(&api, request, Some("application/json"), body).await;
            let problem = answer.expect(422);
            assert!(
                fields(&problem)[0].starts_with("rollups.window"),
                "{problem}"
            );
        }
        for field in [
            "delay_ms",
            "lateness_ms",
            "idle_timeout_ms",
            "max_future_ms",
        ] {
            let body = format!(r#"{{"settings": {{"{field}": {text}}}}}"#);
            let request = (reqwest::Method::PATCH, "/v1/books/b");
            let answer = crate::raw::send(&api, request, Some("application/json"), body).await;
            let problem = answer.expect(422);
            assert_eq!(fields(&problem), [format!("settings.{field}")], "{problem}");
        }
    }
}

#[tokio::test]
async fn a_click_in_a_hundred_windows_counts_a_hundred_times() {
    let (_database, server) = start().await;
    let api = server.api();
    for (slug, window) in [("short", sliding(100, 1)), ("uneven", sliding(199, 2))] {
        book(&api, slug, window).await;
        let times: Vec<i64> = (0..50).map(|n| -300 + n * 14).collect();
        let taken = api.clicks(slug, clicks(&times)).await;
        assert_eq!(taken["on_time"], 50, "{taken}");
        let windows = counted(&api, slug, "r").await;
        let sum: i64 = windows.values().map(|(v, _)| v.as_i64().unwrap()).sum();
        // 199 is no multiple of 2: an even time lies in 100 windows.
        assert_eq!(sum, 50 * 100, "{slug}");
        for (_, start, end, _) in windows.keys() {
            assert_eq!(start.rem_euclid(if slug == "short" { 1 } else { 2 }), 0);
            assert_eq!(end - start, if slug == "short" { 100 } else { 199 });
        }
    }
}

#[tokio::test]
async fn clicks_at_the_ends_of_time_are_counted_where_their_windows_can_be_shown() {
    let (_database, server) = start().await;
    let api = server.api();
    // The windows of the year 0001 and of 9999 begin and end with whole seconds.
    let books = [
        ("tumbling", tumbling(1000), MIN, MAX - 1000),
        ("sliding", sliding(1000, 500), MIN + 500, MAX - 1000),
        ("session", session(1000), MIN, MAX - 1000),
    ];
    for (slug, window, first, last) in books {
        book(&api, slug, window).await;
        let beyond = [
            MIN - 1,
            first - 1,
            last + 1,
            MAX,
            MAX + 1,
            i64::MIN,
            i64::MAX,
        ];
        let taken = api
            .post(&format!("/v1/books/{slug}/clicks"), &clicks(&beyond))
            .await;
        let problem = taken.expect(422);
        for error in problem["errors"].as_array().unwrap() {
            assert_eq!(error["code"], "time_out_of_range", "{problem}");
        }
        assert_eq!(problem["errors"].as_array().unwrap().len(), beyond.len());
        let taken = api.clicks(slug, clicks(&[first, -1, 0, last])).await;
        assert_eq!(taken["on_time"], 4, "{taken}");
        assert_eq!(ms(&taken["watermark"]), last);
        let taken = api.clicks(slug, clicks(&[first])).await;
        assert_eq!(taken["dropped"], 1, "{taken}");
        for _ in 0..2 {
            for deed in ["close", "reopen"] {
                let path = format!("/v1/books/{slug}/{deed}");
                api.post(&path, &Value::Null).await.expect(200);
            }
        }
        let windows = counted(&api, slug, "r").await;
        let (_, start, end, _) = windows.first_key_value().unwrap().0;
        let bounds = if slug == "sliding" {
            (MIN, MIN + 1000)
        } else {
            (first, first + 1000)
        };
        assert_eq!((*start, *end), bounds);
        let (_, _, end, _) = windows.last_key_value().unwrap().0;
        let bound = match slug {
            "tumbling" => MAX - 999,
            "sliding" => MAX - 499,
            _ => MAX,
        };
        assert_eq!(*end, bound, "{slug}");
        assert!(windows.values().all(|(_, state)| state != "open"));
    }
}

#[tokio::test]
async fn idle_books_at_the_ends_of_time_move_with_the_clock_or_not_at_all() {
    let (_database, server) = start().await;
    let api = server.api();
    let mut settings = settings();
    settings["idle_timeout_ms"] = json!(1);
    // The watermark of the first lies before the year 0001.
    settings["delay_ms"] = json!(500);
    for slug in ["first", "last"] {
        let rollups = [by_page("r", tumbling(1000)), by_page("s", session(10))];
        let fields = json!({"rollups": rollups, "settings": settings});
        api.book(slug, fields).await;
    }
    let last = api.clicks("last", clicks(&[MAX - 1000])).await;
    let mut events = api.follow("first", "", None).await;
    let first = api.clicks("first", clicks(&[MIN])).await;
    assert_eq!(ms(&first["watermark"]), MIN);
    let mut fired = Vec::new();
    while fired.len() < 2 {
        let frame = fires(&mut events).await;
        fired.extend(frame["panes"].as_array().unwrap().clone());
        assert!(ms(&frame["watermark"]) < MIN + 600_000, "{frame}");
    }
    assert!(fired.iter().all(|pane| pane["values"] == json!({"/a": 1})));
    let shown = api.get("/v1/books/last").await.expect(200);
    assert_eq!(shown["watermark"], last["watermark"]);
    assert_eq!(shown["revision"], last["revision"]);
}

#[tokio::test]
async fn the_longest_session_and_the_longest_delay_are_counted_right() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, "gap", session(SPAN / 2)).await;
    let taken = api
        .clicks("gap", clicks(&[MIN, 0, MAX - SPAN / 2, 1]))
        .await;
    assert_eq!(taken["on_time"], 4, "{taken}");
    let windows = counted(&api, "gap", "r").await;
    let (key, (value, state)) = windows.first_key_value().unwrap();
    assert_eq!((windows.len(), value), (1, &json!(4)), "{windows:?}");
    assert_eq!((key.1, key.2, &**state), (MIN, MAX, "open"));
    let too_long = api
        .post("/v1/books/gap/clicks", &clicks(&[MAX - SPAN / 2 + 1]))
        .await;
    assert_eq!(
        too_long.expect(422)["errors"][0]["code"],
        "time_out_of_range"
    );

    book(&api, "delay", tumbling(DAY)).await;
    let longest = json!({"settings": {"delay_ms": SPAN}});
    api.patch("/v1/books/delay", &longest).await.expect(200);
    for at in [MAX - 2 * DAY, MIN, 0, MIN + DAY] {
        let taken = api.clicks("delay", clicks(&[at])).await;
        assert_eq!(taken["on_time"], 1, "{taken}");
        assert_eq!(
            ms(&taken["watermark"]),
            MIN,
            "shown as the first moment there is"
        );
    }
    assert_eq!(counted(&api, "delay", "r").await.len(), 4);
}

#[tokio::test]
async fn day_windows_over_a_night_with_another_length_are_days_of_utc() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, "b", tumbling(DAY)).await;
    // Berlin, spring and autumn, by the local clock and its offset; an hour is missing or twice.
    let spring = (0..48).map(|hour| (hour, "03", 28, if hour < 26 { 1 } else { 2 }));
    let autumn = (0..48).map(|hour| (hour, "10", 24, if hour < 27 { 2 } else { 1 }));
    let clicks = spring.chain(autumn).map(|(hour, month, day, offset)| {
        let (day, hour) = (day + hour / 24, hour % 24);
        json!({"page": "/a", "at": format!("2026-{month}-{day}T{hour:02}:30:00+0{offset}:00")})
    });
    let taken = api.clicks("b", clicks.collect()).await;
    assert_eq!(taken["on_time"], 96, "{taken}");
    let found = counted(&api, "b", "r").await;
    let found: Vec<(i64, i64, i64)> = found
        .iter()
        .map(|(key, (value, _))| (key.1, key.2 - key.1, value.as_i64().unwrap()))
        .collect();
    let start = |month, day| ms(&json!(format!("2026-{month}-{day}T00:00:00Z")));
    let expected = [
        (start("03", 27), DAY, 1),
        (start("03", 28), DAY, 24),
        (start("03", 29), DAY, 23),
        (start("10", 23), DAY, 2),
        (start("10", 24), DAY, 24),
        (start("10", 25), DAY, 22),
    ];
    assert_eq!(found, expected);
}
