//! When a click was: `at`, `age_ms` or the time of receipt.

use serde_json::{Value, json};

use super::{JSON, exceptions, post, receipt, send};
use crate::harness::{Api, start};

/// The first and last millisecond that a window of a second holds.
fn window(count: &Value) -> (i64, i64) {
    let time = |name: &str| {
        let text = count[name].as_str().unwrap();
        chrono::DateTime::parse_from_rfc3339(text)
            .unwrap()
            .timestamp_millis()
    };
    (time("start"), time("end") - 1)
}

/// The starts of the windows in which something was counted.
async fn starts(api: &Api, book: &str) -> Vec<String> {
    let counts = api.counts(book, "pages").await;
    let start = |count: &Value| count["start"].as_str().unwrap().to_owned();
    counts.iter().map(start).collect()
}

#[tokio::test]
async fn a_time_is_rfc_3339_with_any_offset_or_milliseconds_since_the_epoch() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1, 0).await;
    // Every pair is one moment, and the pairs are in order.
    let pairs = [
        (
            json!("0001-01-01T00:00:00Z"),
            json!(-62_135_596_800_000_i64),
        ),
        (
            json!("0001-01-01T00:00:00.001-00:00"),
            json!(-62_135_596_799_999_i64),
        ),
        (json!("1969-12-31T23:59:59.999Z"), json!(-1)),
        (json!("1970-01-01T00:00:00z"), json!(0)),
        (
            json!("2026-03-01T15:30:00.5+03:30"),
            json!(1_772_366_400_500_i64),
        ),
        (
            json!("2026-03-01t02:00:00.501-10:00"),
            json!(1_772_366_400_501_i64),
        ),
        (
            json!("9999-12-31T23:59:59.998+00:00"),
            json!(253_402_300_799_998_i64),
        ),
    ];
    let clicks = pairs.iter().flat_map(|(a, b)| [a, b]);
    let clicks: Vec<Value> = clicks.map(|at| json!({"page": "/a", "at": at})).collect();
    let taken = post(&api, "b", json!(clicks)).await;
    assert_eq!(taken["on_time"], clicks.len(), "{taken}");
    assert_eq!(taken["watermark"], "9999-12-31T23:59:59.998Z");
    let counts = api.counts("b", "pages").await;
    assert!(counts.iter().all(|count| count["value"] == 2), "{counts:?}");
    let expected = [
        "0001-01-01T00:00:00.000Z",
        "0001-01-01T00:00:00.001Z",
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00.000Z",
        "2026-03-01T12:00:00.500Z",
        "2026-03-01T12:00:00.501Z",
        "9999-12-31T23:59:59.998Z",
    ];
    assert_eq!(starts(&api, "b").await, expected);
}

#[tokio::test]
async fn windows_before_1970_hold_what_lies_within_them() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks: Vec<Value> = [-1001, -1000, -1, 0]
        .map(|at| json!({"page": "/a", "at": at}))
        .into();
    post(&api, "b", json!(clicks)).await;
    let expected = [
        "1969-12-31T23:59:58.000Z",
        "1969-12-31T23:59:59.000Z",
        "1970-01-01T00:00:00.000Z",
    ];
    assert_eq!(starts(&api, "b").await, expected);
}

#[tokio::test]
async fn times_outside_the_years_1_to_9999_are_refused_with_their_windows() {
    let (_database, server) = start().await;
    let api = server.api();
    // Weeks begin on Thursdays, as the epoch did; the year 1 began on a Monday.
    api.plain_book("weeks", 7 * 86_400_000, 0).await;
    api.plain_book("seconds", 1000, 0).await;
    let far = [
        ("seconds", r#""0000-12-31T23:59:59.999Z""#),
        ("seconds", r#""0001-01-01T00:59:59.999+01:00""#),
        ("seconds", "-62135596800001"),
        ("seconds", "-9223372036854775808"),
        ("seconds", "-9223372036854775809"),
        ("seconds", "-99999999999999999999999999999999999999999999"),
        ("weeks", r#""0001-01-01T00:00:00Z""#),
        ("seconds", r#""9999-12-31T23:59:59.000Z""#),
        ("seconds", "253402300799999"),
        ("seconds", "253402300800000"),
        ("seconds", "9223372036854775807"),
        ("seconds", "9223372036854775808"),
        ("seconds", "99999999999999999999999999999999999999999999"),
        ("seconds", r#""9999-12-31T23:59:59-00:01""#),
        ("weeks", r#""9999-12-31T12:00:00Z""#),
    ];
    for (book, at) in far {
        let body = format!(r#"{{"page": "/a", "at": {at}}}"#);
        let problem = send(&api, book, JSON, body).await.expect(422);
        assert_eq!(
            problem["errors"][0]["code"], "time_out_of_range",
            "{book} {at}"
        );
    }
    let last = json!({"page": "/a", "at": "9999-12-31T23:59:58.999Z"});
    assert_eq!(post(&api, "seconds", last).await["on_time"], 1);
    let counts = api.counts("seconds", "pages").await;
    assert_eq!(counts[0]["end"], "9999-12-31T23:59:59.000Z");
}

#[tokio::test]
async fn what_is_no_time_or_no_age_is_refused() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let bad_times = [
        r#""at": "yesterday""#,
        r#""at": """#,
        r#""at": "2026-03-01""#,
        r#""at": "2026-03-01T12:00:00""#,
        r#""at": "2026-02-30T12:00:00Z""#,
        r#""at": "1772366400500""#,
        r#""at": 1.5"#,
        r#""at": 1e3"#,
        r#""at": true"#,
        r#""at": {}"#,
        r#""at": 1, "age_ms": 1"#,
    ];
    let bad_ages = [
        r#""age_ms": -1"#,
        r#""age_ms": 604800001"#,
        r#""age_ms": 1.5"#,
        r#""age_ms": "5""#,
        r#""age_ms": 99999999999999999999"#,
    ];
    let times = bad_times.map(|fields| (fields, "bad_time"));
    let ages = bad_ages.map(|fields| (fields, "bad_age"));
    for (fields, reason) in times.into_iter().chain(ages) {
        let body = format!(r#"{{"page": "/a", {fields}}}"#);
        let problem = send(&api, "b", JSON, body).await.expect(422);
        assert_eq!(problem["errors"][0]["code"], reason, "{fields}");
    }
}

#[tokio::test]
async fn an_age_counts_back_from_the_time_of_receipt() {
    const WEEK: i64 = 7 * 86_400_000;
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let before = chrono::Utc::now().timestamp_millis();
    let body = r#"[{"page": "/week", "age_ms": 604800000}, {"page": "/zero", "age_ms": 0},
                   {"page": "/none"}, {"page": "/null", "at": null, "age_ms": null}]"#;
    let taken = receipt(send(&api, "b", JSON, body).await);
    let after = chrono::Utc::now().timestamp_millis();
    assert_eq!(taken["on_time"], 4, "{taken}");
    let counts = api.counts("b", "pages").await;
    assert_eq!(counts.len(), 4);
    for count in counts {
        let ago = if count["group"] == "/week" { WEEK } else { 0 };
        let (first, last) = window(&count);
        assert!(first <= after - ago && before - ago <= last, "{count}");
    }
}

#[tokio::test]
async fn a_click_too_far_ahead_of_its_receipt_is_refused() {
    let (_database, server) = start().await;
    let api = server.api();
    // By default 2 s.
    api.book("b", json!({})).await;
    let now = chrono::Utc::now().timestamp_millis();
    let clicks = json!([
        {"page": "/a", "at": now},
        {"page": "/b", "at": now + 3_600_000},
        {"page": "/c", "at": "9999-12-31T23:59:59.999Z"},
    ]);
    let taken = post(&api, "b", clicks).await;
    let far = ["1 rejected too_far_ahead", "2 rejected too_far_ahead"];
    assert_eq!(exceptions(&taken), far);
    let off = json!({"settings": {"max_future_ms": null}});
    api.patch("/v1/books/b", &off).await.expect(200);
    let ahead = json!({"page": "/b", "at": now + 3_600_000});
    assert_eq!(post(&api, "b", ahead).await["on_time"], 1);
}
