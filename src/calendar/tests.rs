//! Where clocks were changed, and the ends of time.

use super::*;

fn ms(text: &str) -> i64 {
    Timestamp::parse_rfc3339(text).unwrap().millis()
}

fn zone(name: &str) -> Zone {
    Zone::named(name).unwrap()
}

/// Asserts that these bounds follow one another without a gap.
#[track_caller]
fn follow(name: &str, interval: Interval, bounds: &[&str]) {
    let zone = zone(name);
    for pair in bounds.windows(2) {
        let bucket = Bucket {
            start_ms: ms(pair[0]),
            end_ms: ms(pair[1]),
        };
        let middle = i64::midpoint(bucket.start_ms, bucket.end_ms);
        for at in [bucket.start_ms, middle, bucket.end_ms - 1] {
            let found = zone.bucket(interval, at);
            assert_eq!(found, bucket, "{name}: {pair:?} at {at}");
        }
    }
}

#[test]
fn days_of_23_and_25_hours() {
    follow(
        "Europe/Berlin",
        Interval::Day,
        &[
            "2026-03-28T00:00:00+01:00",
            "2026-03-29T00:00:00+01:00",
            "2026-03-30T00:00:00+02:00",
            "2026-03-31T00:00:00+02:00",
        ],
    );
    follow(
        "Europe/Berlin",
        Interval::Day,
        &[
            "2025-10-25T00:00:00+02:00",
            "2025-10-26T00:00:00+02:00",
            "2025-10-27T00:00:00+01:00",
            "2025-10-28T00:00:00+01:00",
        ],
    );
    follow(
        "Asia/Kathmandu",
        Interval::Day,
        &["2026-03-29T00:00:00+05:45", "2026-03-30T00:00:00+05:45"],
    );
}

#[test]
fn days_that_have_no_midnight_or_two_late_hours() {
    follow(
        "Asia/Tehran",
        Interval::Day,
        &[
            "2022-03-21T00:00:00+03:30",
            "2022-03-22T01:00:00+04:30",
            "2022-03-23T00:00:00+04:30",
        ],
    );
    // Put back from midnight to 23:00, so that the hour before midnight comes twice.
    follow(
        "Asia/Tehran",
        Interval::Day,
        &[
            "2022-09-21T00:00:00+04:30",
            "2022-09-22T00:00:00+03:30",
            "2022-09-23T00:00:00+03:30",
        ],
    );
    follow(
        "America/Sao_Paulo",
        Interval::Day,
        &[
            "2018-11-03T00:00:00-03:00",
            "2018-11-04T01:00:00-02:00",
            "2018-11-05T00:00:00-02:00",
        ],
    );
    follow(
        "America/Sao_Paulo",
        Interval::Day,
        &[
            "2019-02-16T00:00:00-02:00",
            "2019-02-17T00:00:00-03:00",
            "2019-02-18T00:00:00-03:00",
        ],
    );
    // The gap began before midnight: the day began amid it, where the clock jumped.
    follow(
        "America/Toronto",
        Interval::Day,
        &[
            "1919-03-30T00:00:00-05:00",
            "1919-03-31T00:30:00-04:00",
            "1919-04-01T00:00:00-04:00",
        ],
    );
    // Put back from 00:01 to 23:01: the new day had begun, and goes on.
    follow(
        "America/St_Johns",
        Interval::Day,
        &[
            "2006-10-28T00:00:00-02:30",
            "2006-10-29T00:00:00-02:30",
            "2006-10-30T00:00:00-03:30",
        ],
    );
    // A date that was left out.
    follow(
        "Pacific/Apia",
        Interval::Day,
        &[
            "2011-12-29T00:00:00-10:00",
            "2011-12-31T00:00:00+14:00",
            "2012-01-01T00:00:00+14:00",
        ],
    );
}

#[test]
fn an_hour_that_comes_twice_is_two_and_one_that_is_left_out_is_none() {
    follow(
        "Europe/Berlin",
        Interval::Hour,
        &[
            "2026-03-29T01:00:00+01:00",
            "2026-03-29T03:00:00+02:00",
            "2026-03-29T04:00:00+02:00",
        ],
    );
    follow(
        "Europe/Berlin",
        Interval::Hour,
        &[
            "2025-10-26T01:00:00+02:00",
            "2025-10-26T02:00:00+02:00",
            "2025-10-26T02:00:00+01:00",
            "2025-10-26T03:00:00+01:00",
        ],
    );
    follow(
        "Asia/Kathmandu",
        Interval::Hour,
        &["2026-03-29T07:00:00+05:45", "2026-03-29T08:00:00+05:45"],
    );
}

#[test]
fn where_the_clock_moves_by_half_an_hour_hours_are_cut_there() {
    follow(
        "Australia/Lord_Howe",
        Interval::Hour,
        &[
            "2025-10-05T01:00:00+10:30",
            "2025-10-05T02:30:00+11:00",
            "2025-10-05T03:00:00+11:00",
            "2025-10-05T04:00:00+11:00",
        ],
    );
    follow(
        "Australia/Lord_Howe",
        Interval::Hour,
        &[
            "2026-04-05T00:00:00+11:00",
            "2026-04-05T01:00:00+11:00",
            "2026-04-05T01:30:00+10:30",
            "2026-04-05T02:00:00+10:30",
            "2026-04-05T03:00:00+10:30",
        ],
    );
    follow(
        "Australia/Lord_Howe",
        Interval::Day,
        &["2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30"],
    );
}

#[test]
fn weeks_begin_on_monday_and_months_on_the_first() {
    follow(
        "Europe/Berlin",
        Interval::Week,
        &[
            "2026-03-23T00:00:00+01:00",
            "2026-03-30T00:00:00+02:00",
            "2026-04-06T00:00:00+02:00",
        ],
    );
    follow(
        "Asia/Tehran",
        Interval::Month,
        &[
            "2022-02-01T00:00:00+03:30",
            "2022-03-01T00:00:00+03:30",
            "2022-04-01T00:00:00+04:30",
        ],
    );
    follow(
        "utc",
        Interval::Week,
        &["1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"],
    );
    follow(
        "UTC",
        Interval::Month,
        &[
            "1900-02-01T00:00:00Z",
            "1900-03-01T00:00:00Z",
            "1900-04-01T00:00:00Z",
        ],
    );
    assert_eq!(zone("europe/berlin").name(), "Europe/Berlin");
    assert_eq!(zone("utc").name(), "UTC");
}

const INTERVALS: [Interval; 4] = [
    Interval::Hour,
    Interval::Day,
    Interval::Week,
    Interval::Month,
];

const ZONES: [&str; 10] = [
    "UTC",
    "Europe/Berlin",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Antarctica/Troll",
];

/// Buckets cover time without a hole from `from_ms` on, each of them the same from wherever in it
/// one asks.
fn cover(zone: &Zone, interval: Interval, from_ms: i64, buckets: usize) {
    let mut at_ms = from_ms;
    for _ in 0..buckets {
        let bucket = zone.bucket(interval, at_ms);
        assert!(bucket.holds(at_ms), "{zone:?} {interval:?} {at_ms}");
        assert_eq!(zone.bucket(interval, bucket.start_ms), bucket);
        assert_eq!(zone.bucket(interval, bucket.end_ms - 1), bucket);
        let next = zone.bucket(interval, bucket.end_ms);
        assert_eq!(
            next.start_ms, bucket.end_ms,
            "{zone:?} {interval:?} {at_ms}"
        );
        at_ms = bucket.end_ms;
    }
}

#[test]
fn buckets_follow_one_another_in_every_year() {
    for zone in ZONES.map(zone) {
        for year in [1868, 1919, 1945, 1969, 2006, 2011, 2022, 2026, 2500, 9799] {
            let from_ms = ms(&format!("{year:04}-01-01T00:00:00Z"));
            cover(&zone, Interval::Day, from_ms, 400);
            cover(&zone, Interval::Week, from_ms, 60);
            cover(&zone, Interval::Month, from_ms, 14);
        }
        // The seasons in which clocks are changed.
        for month in ["1919-03", "2011-12", "2026-03", "2026-09", "9799-12"] {
            let from_ms = ms(&format!("{month}-20T00:00:00Z"));
            cover(&zone, Interval::Hour, from_ms, 800);
        }
    }
}

#[test]
fn the_ends_of_time_have_buckets() {
    let (first, last) = (Timestamp::MIN.millis(), Timestamp::MAX.millis());
    for zone in ZONES.map(zone) {
        for interval in INTERVALS {
            for at_ms in [first, first + 1, -1, 0, last - 1, last] {
                let bucket = zone.bucket(interval, at_ms);
                assert!(bucket.holds(at_ms), "{zone:?} {interval:?} {at_ms}");
            }
            assert_eq!(zone.bucket(interval, i64::MAX), zone.bucket(interval, last));
            assert_eq!(
                zone.bucket(interval, i64::MIN),
                zone.bucket(interval, first)
            );
        }
    }
    let ends = zone("UTC").bucket(Interval::Month, last);
    assert_eq!(ends.start_ms, ms("9999-12-01T00:00:00Z"));
    assert_eq!(ends.end_ms, last + 1);
    let begins = zone("UTC").bucket(Interval::Week, first);
    assert_eq!(begins.start_ms, first, "the year 0001 began on a Monday");
    follow(
        "Europe/Berlin",
        Interval::Day,
        &["9999-12-30T00:00:00+01:00", "9999-12-31T00:00:00+01:00"],
    );
    follow(
        "Europe/Berlin",
        Interval::Day,
        &["9999-07-30T00:00:00+02:00", "9999-07-31T00:00:00+02:00"],
    );
}

#[test]
fn the_year_9800_is_where_the_cycle_is_taken_off() {
    assert_eq!(FAR_MS, ms("9800-01-01T00:00:00Z"));
    assert_eq!(
        CYCLE_MS,
        ms("2400-03-01T00:00:00Z") - ms("2000-03-01T00:00:00Z")
    );
}

#[test]
fn an_unknown_zone_is_named() {
    for name in [
        "Europe/Atlantis",
        "",
        "Etc/Unknown",
        "+02:00",
        "../etc/passwd",
        "\0",
    ] {
        let error = Zone::named(name).unwrap_err();
        assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
    }
}
