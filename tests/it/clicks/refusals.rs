//! Clicks that are refused one by one, each with its reason.

use serde_json::{Value, json};

use super::{JSON, NDJSON, book_of, post, receipt, send, total};
use crate::harness::start;

/// Clicks as JSON texts, each with the reason for which it is refused.
fn refused() -> Vec<(String, &'static str)> {
    let with = |field: &str, value: &str| format!(r#"{{"page": "/a", "{field}": {value}}}"#);
    let long = |n: usize| format!("\"{}\"", "x".repeat(n));
    let page = |text: &str| format!(r#"{{"page": "{text}"}}"#);
    let mut all = vec![
        (page(""), "page_empty"),
        (page(&"x".repeat(2049)), "page_too_long"),
        // 1,400 bytes as sent, 4,200 as escapes.
        (page(&"ü".repeat(700)), "page_too_long"),
        (with("id", "\"\""), "id_empty"),
        (with("id", &long(201)), "id_too_long"),
        (
            with("id", &format!("\"{}\"", "é".repeat(101))),
            "id_too_long",
        ),
        (with("visitor", &long(201)), "visitor_too_long"),
        (with("referrer", &long(2049)), "referrer_too_long"),
        (with("source", &long(201)), "source_too_long"),
    ];
    for value in [
        "0.0000001",
        "1000000000000.1",
        "-1e13",
        "\"1\"",
        "true",
        "[1]",
        "1e-7",
    ] {
        all.push((with("value", value), "bad_value"));
    }
    let characters = [
        r"\u0000",
        r"\u0001",
        r"\n",
        r"\r",
        r"\t",
        r"\u001b",
        r"\u007f",
        r"\u0085",
        r"\ud800",
        r"\udc00x",
        r"\ud800\ud800",
    ];
    for character in characters {
        all.push((page(&format!("/a{character}")), "bad_character"));
        for field in ["id", "visitor", "referrer", "source"] {
            let text = format!("\"x{character}\"");
            all.push((with(field, &text), "bad_character"));
        }
    }
    all
}

#[tokio::test]
async fn each_refused_click_is_listed_with_its_reason_and_the_good_ones_count() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let refused = refused();
    let texts: Vec<&str> = refused.iter().map(|(text, _)| text.as_str()).collect();
    let good = r#"{"page": "/good", "at": 1}"#;
    let body = format!("[{good}, {}, {good}]", texts.join(", "));
    let taken = receipt(send(&api, "b", JSON, body).await);
    assert_eq!(taken["on_time"], 2);
    assert_eq!(taken["rejected"], refused.len());
    let exceptions = taken["exceptions"].as_array().unwrap();
    for ((place, (text, reason)), exception) in (1..).zip(&refused).zip(exceptions) {
        assert_eq!(exception["index"], place);
        assert_eq!(exception["reason"], *reason, "{text}");
        assert!(!exception["detail"].as_str().unwrap().is_empty());
    }
    let totals = &api.get("/v1/books/b").await.expect(200)["totals"];
    assert_eq!(totals["rejected"], refused.len());
    assert_eq!(totals["received"], refused.len() + 2);
    assert_eq!(total(&api, "b", "pages").await, 2);
}

#[tokio::test]
async fn lines_are_refused_for_the_same_reasons_as_elements() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let refused = refused();
    let texts: Vec<&str> = refused.iter().map(|(text, _)| text.as_str()).collect();
    let problem = send(&api, "b", NDJSON, texts.join("\n")).await.expect(422);
    let codes = problem["errors"].as_array().unwrap().iter();
    let codes: Vec<&str> = codes.map(|e| e["code"].as_str().unwrap()).collect();
    let reasons: Vec<&str> = refused.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(codes, reasons);
}

#[tokio::test]
async fn a_refused_click_is_listed_under_its_id() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = json!([{"page": "", "id": "mine"}, {"page": ""}, {"page": "/a"}]);
    let taken = post(&api, "b", clicks).await;
    assert_eq!(taken["exceptions"][0]["id"], "mine");
    assert_eq!(taken["exceptions"][1]["id"], Value::Null);
}

#[tokio::test]
async fn when_every_click_is_refused_the_answer_is_422_and_only_the_refusals_are_counted() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = json!([{"page": ""}, {"page": "/a", "at": "soon"}]);
    let answer = api.post("/v1/books/b/clicks", &clicks).await;
    let problem = answer.json();
    assert_eq!(answer.problem(422), "all_rejected");
    let errors = problem["errors"].as_array().unwrap();
    let listed: Vec<_> = errors.iter().map(|e| (&e["index"], &e["code"])).collect();
    let (zero, one) = (json!(0), json!(1));
    let (empty, bad_time) = (json!("page_empty"), json!("bad_time"));
    assert_eq!(listed, [(&zero, &empty), (&one, &bad_time)]);
    let book = api.get("/v1/books/b").await.expect(200);
    let totals = json!({"received": 2, "on_time": 0, "late": 0, "dropped": 0, "duplicates": 0,
                        "filtered": 0, "rejected": 2});
    assert_eq!(book["totals"], totals);
    assert_eq!(
        (&book["position"], &book["revision"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(api.counts("b", "pages").await, Vec::<Value>::new());
    assert_eq!(database.number("SELECT count(*) FROM clicks").await, 0);
}

#[tokio::test]
async fn texts_and_values_of_the_greatest_size_are_taken() {
    let (_database, server) = start().await;
    let api = server.api();
    let rollups = [
        ("pages", "page", 1000, 0),
        ("visitors", "visitor", 1000, 0),
        ("referrers", "referrer", 1000, 0),
        ("sources", "source", 1000, 0),
    ];
    book_of(&api, "b", &rollups).await;
    let page = format!("/{}", "x".repeat(2047));
    let escaped = format!("/{}", "%C3%BC".repeat(341));
    assert_eq!(escaped.len(), 2047);
    let texts = json!({"page": page, "at": 1, "id": "i".repeat(200), "visitor": "é".repeat(100),
                       "referrer": "r".repeat(2048), "source": "s".repeat(200)});
    let clicks = json!([
        texts,
        {"page": format!("/{}", "ü".repeat(341)), "at": 1},
        {"page": "/a", "at": 1, "value": 1e12},
        {"page": "/a", "at": 1, "value": -1_000_000_000_000_i64},
        {"page": "/a", "at": 1, "value": 0.000_001},
        {"page": "/a", "at": 1, "visitor": "", "referrer": "", "source": "", "value": null},
    ]);
    let taken = post(&api, "b", clicks).await;
    assert_eq!(taken["on_time"], 6, "{taken}");
    let pages = api.counts("b", "pages").await;
    assert!(pages.iter().any(|c| c["group"] == page));
    assert!(pages.iter().any(|c| c["group"] == escaped));
    for (rollup, group) in [
        ("visitors", "é".repeat(100)),
        ("referrers", "r".repeat(2048)),
        ("sources", "s".repeat(200)),
    ] {
        let counts = api.counts("b", rollup).await;
        assert_eq!(counts.len(), 1, "an empty text is none at all");
        assert_eq!(counts[0]["group"], group);
    }
}
