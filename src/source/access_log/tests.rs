//! The cases of `tests/golden/log_lines.json`, and what they leave open.

use super::*;

/// As the golden cases write it.
fn outcome(format: LogFormat, line: &[u8]) -> Value {
    match parse(format, line) {
        Err(_) => serde_json::json!(["rejected"]),
        Ok(entry) => match Rules::default().leave_out(&entry) {
            Some(rule) => serde_json::json!(["skipped", rule]),
            None => {
                serde_json::json!(["view", entry.at.to_string(), entry.target, entry.referrer])
            }
        },
    }
}

#[test]
fn golden_lines() {
    let golden = include_str!("../../../tests/golden/log_lines.json");
    let cases: Vec<Value> = serde_json::from_str(golden).unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let format = LogFormat::from_str(case["format"].as_str().unwrap(), false).unwrap();
        let line = case["line"].as_str().unwrap();
        assert_eq!(outcome(format, line.as_bytes()), case["outcome"], "{line}");
    }
}

fn combined(request: &[u8]) -> Vec<u8> {
    let head = b"::1 - - [01/Mar/2026:12:00:00 +0000] \"";
    [&head[..], request, b"\" 200 10 \"-\" \"Firefox\""].concat()
}

fn target(request: &[u8]) -> Option<String> {
    let entry = parse(LogFormat::Combined, &combined(request)).ok()?;
    Some(entry.target)
}

#[test]
fn what_the_log_escaped_is_undone() {
    assert_eq!(target(br#"GET /a\"b\\c HTTP/1.1"#).unwrap(), r#"/a"b\c"#);
    assert_eq!(target(br"GET /\xc3\xA9 HTTP/1.1").unwrap(), "/é");
    assert_eq!(target(br"GET /\xe9\xzz HTTP/1.1").unwrap(), r"/%E9\xzz");
    assert_eq!(target(b"GET /\xe9 HTTP/1.1").unwrap(), "/%E9");
    assert_eq!(target(br"GET /a\\ HTTP/1.1").unwrap(), r"/a\");
}

#[test]
fn odd_requests() {
    assert_eq!(target(b"GET /a b HTTP/1.1").unwrap(), "/a b");
    assert_eq!(target(b"GET /a\"b HTTP/1.1").unwrap(), "/a\"b");
    assert_eq!(target(b"GET HTTP/1.1"), None);
    assert_eq!(target(br"\x16\x03\x01 \x02"), None);
    assert_eq!(target(b"GET  HTTP/1.1"), None);
    assert_eq!(target(b""), None);
}

#[test]
fn a_name_with_brackets_is_no_time() {
    let line = b"::1 - [x] [01/Mar/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 10";
    let entry = parse(LogFormat::Common, line).unwrap();
    assert_eq!(entry.at.to_string(), "2026-03-01T12:00:00.000Z");
    assert!(parse(LogFormat::Combined, line).is_err(), "that is common");
}

#[test]
fn times_that_are_none() {
    for bad in [
        "1/Mar/2026:12:00:00 +00000",
        "01/Mar/2026:24:00:00 +0000",
        "01/Mar/2026:12:00:00 +2400",
        "01/Mar/2026:12:00:00  0000",
        "01/Mar/+026:12:00:00 +0000",
        "01/Mär/2026:12:00:00 +000",
        "01/mar/2026:12:00:00 +0000",
    ] {
        assert_eq!(time(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn rules_are_asked_in_their_order_and_can_be_widened() {
    let line =
        b"::1 - - [01/Mar/2026:12:00:00 +0000] \"POST /x.css HTTP/1.1\" 500 1 \"-\" \"curl/8\"";
    let entry = parse(LogFormat::Combined, line).unwrap();
    let mut rules = Rules::default();
    assert_eq!(rules.leave_out(&entry), Some(Rule::Methods));
    rules.methods.push("POST".to_owned());
    assert_eq!(rules.leave_out(&entry), Some(Rule::Errors));
    rules.errors = true;
    assert_eq!(rules.leave_out(&entry), Some(Rule::Assets));
    rules.assets = true;
    assert_eq!(rules.leave_out(&entry), Some(Rule::Bots));
    rules.bots = true;
    assert_eq!(rules.leave_out(&entry), None);
}

proptest::proptest! {
    #[test]
    fn whatever_the_line_holds_it_is_read_or_refused(
        head in "[ -~]{0,20}",
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "[01/Mar/2026:12:00:00 +0000]", " ", "\"", "GET /a", " 200 ", "\\", "\\x", "[", "é", "-",
            ]),
            0..30,
        ),
        tail in proptest::collection::vec(proptest::num::u8::ANY, 0..20),
    ) {
        let line = [head.as_bytes(), pieces.concat().as_bytes(), &tail].concat();
        for format in [LogFormat::Combined, LogFormat::Common, LogFormat::Caddy] {
            if let Ok(entry) = parse(format, &line) {
                let _ = Rules::default().leave_out(&entry);
            }
        }
    }
}
