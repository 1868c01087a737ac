//! What a body may look like.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Method;
use serde_json::{Value, json};

use super::{JSON, NDJSON, exceptions, post, receipt, send, total};
use crate::harness::api::{Answer, Api};
use crate::harness::start;

const MIB: usize = 1024 * 1024;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

async fn send_encoded(api: &Api, encoding: &str, body: Vec<u8>) -> Answer {
    let request = api
        .request(Method::POST, "/v1/books/b/clicks")
        .header("content-type", "application/json")
        .header("content-encoding", encoding)
        .body(body);
    Answer::of(request).await
}

#[tokio::test]
async fn one_click_an_array_lines_and_plain_text_are_taken() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let array = r#"[{"page": "/a", "at": 1}, {"page": "/b", "at": 1}]"#;
    let lines = "{\"page\": \"/a\", \"at\": 1}\r\n\n  \n{\"page\": \"/b\", \"at\": 1}";
    let cases = [
        (1, "application/json", r#"{"page": "/a", "at": 1}"#),
        (2, "application/json", array),
        (2, "Application/JSON; charset=utf-8", array),
        (2, "text/plain;charset=UTF-8", array),
        (1, "text/plain", r#" {"page": "/a", "at": 1} "#),
        (2, "application/x-ndjson", lines),
    ];
    let mut sum = 0;
    for (clicks, kind, body) in cases {
        let taken = receipt(send(&api, "b", Some(kind), body).await);
        assert_eq!(taken["on_time"], clicks, "{kind} {body}");
        assert_eq!(taken["exceptions"], json!([]));
        sum += clicks;
    }
    assert_eq!(total(&api, "b", "pages").await, sum);
}

#[tokio::test]
async fn a_gzipped_body_is_taken() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let body = gzip(br#"[{"page": "/a", "at": 1}, {"page": "/b", "at": 1}]"#);
    assert_eq!(
        receipt(send_encoded(&api, "gzip", body.clone()).await)["on_time"],
        2
    );
    assert_eq!(
        receipt(send_encoded(&api, "GZIP", body).await)["on_time"],
        2
    );
}

#[tokio::test]
async fn a_damaged_gzip_is_refused_as_unreadable() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let good = gzip(br#"{"page": "/a"}"#);
    let cut = good[..good.len() - 6].to_vec();
    let mut wrong_sum = good.clone();
    let at = wrong_sum.len() - 5;
    wrong_sum[at] ^= 0xff;
    for body in [cut, wrong_sum, br#"{"page": "/a"}"#.to_vec(), Vec::new()] {
        assert_eq!(
            send_encoded(&api, "gzip", body).await.problem(400),
            "not_json"
        );
    }
}

#[tokio::test]
async fn a_gzip_bomb_is_refused_as_too_large() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let bomb = gzip(&vec![b' '; 64 * MIB]);
    assert!(bomb.len() < MIB);
    assert_eq!(
        send_encoded(&api, "gzip", bomb).await.problem(413),
        "too_large"
    );
}

#[tokio::test]
async fn another_compression_is_refused_with_the_one_that_is_taken() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let answer = send_encoded(&api, "br", b"{}".to_vec()).await;
    assert!(answer.text.contains("gzip"), "{}", answer.text);
    assert_eq!(answer.problem(415), "unsupported_media_type");
}

#[tokio::test]
async fn a_body_has_at_most_a_mebibyte() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let mut body = br#"{"page": "/a", "at": 1}"#.to_vec();
    body.resize(MIB, b' ');
    receipt(send(&api, "b", JSON, body.clone()).await);
    body.push(b' ');
    let answer = send(&api, "b", JSON, body).await;
    assert_eq!(answer.problem(413), "too_large");
    assert_eq!(total(&api, "b", "pages").await, 1);
}

#[tokio::test]
async fn whoever_sends_far_too_much_gets_the_answer_that_says_so() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    // Many times, for the answer can be lost in a race with what is still being sent.
    for _ in 0..20 {
        let answer = send(&api, "b", JSON, vec![b' '; 8 * MIB]).await;
        assert_eq!(answer.problem(413), "too_large");
    }
}

#[tokio::test]
async fn a_request_has_at_most_ten_thousand_clicks() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let clicks = |n: usize| vec![json!({"page": "/a", "at": 1}); n];
    assert_eq!(
        post(&api, "b", json!(clicks(10_000))).await["on_time"],
        10_000
    );
    let answer = api.post("/v1/books/b/clicks", &json!(clicks(10_001))).await;
    assert_eq!(answer.problem(413), "too_many_clicks");
    let lines = "{\"page\": \"/a\", \"at\": 1}\n".repeat(10_001);
    let answer = send(&api, "b", NDJSON, lines).await;
    assert_eq!(answer.problem(413), "too_many_clicks");
    assert_eq!(total(&api, "b", "pages").await, 10_000);
}

#[tokio::test]
async fn another_content_type_is_refused_with_the_header_to_send() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let kinds = [
        None,
        Some(""),
        Some("application/x-www-form-urlencoded"),
        Some("application/jsonx"),
        Some("multipart/form-data; boundary=x"),
    ];
    for kind in kinds {
        let answer = send(&api, "b", kind, r#"{"page": "/a"}"#).await;
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.contains("Content-Type: application/json"),
            "{detail}"
        );
        assert_eq!(answer.problem(415), "unsupported_media_type", "{kind:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused_as_a_whole() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let bodies: [&[u8]; 8] = [
        b"",
        b"  ",
        b"page=/a",
        b"{",
        br#"[{"page": "/a"}"#,
        br#"[{"page": "/a"},]"#,
        br#"{"page": "/a"} {"page": "/b"}"#,
        b"{\"page\": \"/\xff\"}",
    ];
    for body in bodies {
        for kind in ["application/json", "text/plain"] {
            let answer = send(&api, "b", Some(kind), body).await;
            assert_eq!(answer.problem(400), "not_json", "{body:?}");
        }
    }
    let book = api.get("/v1/books/b").await.expect(200);
    assert_eq!(book["totals"]["received"], 0);
}

#[tokio::test]
async fn no_clicks_at_all_are_none_received() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    for (kind, body) in [
        (JSON, "[]"),
        (JSON, " [ ] "),
        (NDJSON, ""),
        (NDJSON, "\n\r\n "),
    ] {
        let taken = receipt(send(&api, "b", kind, body).await);
        assert_eq!(taken["received"], 0);
        assert_eq!(
            (&taken["position"], &taken["revision"]),
            (&json!(0), &json!(0))
        );
        assert_eq!(taken["watermark"], Value::Null);
    }
}

#[tokio::test]
async fn a_click_of_the_wrong_shape_is_a_rejected_click() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let wrong = [
        "5",
        r#""/a""#,
        "null",
        "{}",
        r#"{"page": 5}"#,
        r#"{"page": null}"#,
        r#"{"page": "/a", "pages": "/b"}"#,
        r#"{"page": "/a", "page": "/b"}"#,
        r#"{"page": "/a", "id": 7}"#,
        r#"{"page": "/a", "visitor": ["x"]}"#,
        r#"{"Page": "/a"}"#,
    ];
    for one in wrong {
        let problem = send(&api, "b", NDJSON, one).await.expect(422);
        assert_eq!(problem["code"], "all_rejected", "{one}");
        assert_eq!(problem["errors"][0]["index"], 0);
        assert_eq!(problem["errors"][0]["code"], "wrong_shape", "{one}");
    }
    let body = format!(r#"[{}, {{"page": "/a", "at": 1}}]"#, wrong.join(","));
    let taken = receipt(send(&api, "b", JSON, body).await);
    assert_eq!(
        (&taken["on_time"], &taken["rejected"]),
        (&json!(1), &json!(wrong.len()))
    );
    assert_eq!(exceptions(&taken)[0], "0 rejected wrong_shape");
}

#[tokio::test]
async fn a_list_in_place_of_a_click_is_of_the_wrong_shape() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    for body in [r#"[["/a"]]"#, r#"[["/a", "id-1"]]"#, "[[]]"] {
        let problem = send(&api, "b", JSON, body).await.expect(422);
        assert_eq!(problem["errors"][0]["code"], "wrong_shape", "{body}");
    }
    assert_eq!(total(&api, "b", "pages").await, 0);
}

#[tokio::test]
async fn a_line_that_is_no_json_is_rejected_by_itself() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let lines =
        "{\"page\": \"/a\", \"at\": 1}\n{\"page\": \nnonsense\n{\"page\": \"/b\", \"at\": 1}";
    let taken = receipt(send(&api, "b", NDJSON, lines).await);
    assert_eq!(taken["on_time"], 2);
    assert_eq!(
        exceptions(&taken),
        ["1 rejected not_json", "2 rejected not_json"]
    );
}

#[tokio::test]
async fn a_line_that_is_no_utf8_is_rejected_by_itself() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let lines =
        b"{\"page\": \"/a\", \"at\": 1}\n{\"page\": \"/\xff\"}\n{\"page\": \"/b\", \"at\": 1}";
    let taken = receipt(send(&api, "b", NDJSON, lines.to_vec()).await);
    assert_eq!(
        (&taken["on_time"], &taken["rejected"]),
        (&json!(2), &json!(1))
    );
}
