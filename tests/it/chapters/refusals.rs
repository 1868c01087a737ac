//! Lists of chapters that are refused.

use reqwest::Method;
use serde_json::{Value, json};

use super::{PATH, book, chapter, put, read};
use crate::harness::start;
use crate::raw::{fields, send};

#[tokio::test]
async fn a_page_is_in_one_chapter_at_most() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let cases: [(&[&[&str]], usize); 8] = [
        (&[&["/a"], &["/b"], &["/a"]], 2),
        (&[&["/a"], &["/a/index.html"]], 1),
        (&[&["/a/*"], &["/a/b"]], 1),
        (&[&["/a/b"], &["/a/*"]], 0),
        (&[&["/a/*"], &["/a/b/*"]], 1),
        (&[&["/a/*"], &["/a/*"]], 1),
        (&[&["/*"], &["/a"]], 1),
        (&[&["/a/*"], &["/*"]], 0),
    ];
    for (pages, index) in cases {
        let chapters = (0..)
            .zip(pages)
            .map(|(n, pages)| chapter(&format!("c{n}"), pages));
        let problem = put(&api, &chapters.collect()).await.expect(422);
        let error = &problem["errors"][0];
        assert_eq!(problem["errors"].as_array().unwrap().len(), 1, "{problem}");
        let told = (&error["index"], &error["field"], &error["code"]);
        assert_eq!(
            told,
            (&json!(index), &json!("pages"), &json!("page_taken")),
            "{pages:?}"
        );
    }
    assert_eq!(read(&api).await, (json!([]), "\"0\"".to_owned()));
    let harmless: [&[&[&str]]; 3] = [
        &[&["/a", "/a/*", "/a/b", "/a/b/*"], &["/ab/*", "/ab"]],
        &[&["/a/*"], &["/a"]],
        &[&["/*"], &["/"]],
    ];
    for pages in harmless {
        let chapters = (0..)
            .zip(pages)
            .map(|(n, pages)| chapter(&format!("c{n}"), pages));
        put(&api, &chapters.collect()).await.expect(200);
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_told_by_index_and_field() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let long = "x".repeat(201);
    let wrong = json!([
        {"id": "", "title": "T", "pages": []},
        {"id": long, "title": "", "pages": ["/a"]},
        {"id": "a\u{1f}", "title": long, "pages": [""]},
        {"id": "a", "title": "T\u{7f}", "pages": ["/\u{0}", "/".repeat(2049)]},
        {"id": "a", "title": "T", "pages": ["/é".repeat(300)]},
    ]);
    let problem = put(&api, &wrong).await.expect(422);
    assert_eq!(problem["code"], "invalid");
    let errors = problem["errors"].as_array().unwrap();
    let indexes: Vec<i64> = errors
        .iter()
        .map(|e| e["index"].as_i64().unwrap())
        .collect();
    assert_eq!(indexes, [0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4]);
    let expected = [
        "id", "id", "title", "id", "pages", "title", "pages", "pages", "title", "id", "pages",
    ];
    assert_eq!(fields(&problem), expected);
    let fits =
        json!([{"id": "é".repeat(100), "title": "é".repeat(200), "pages": ["x".repeat(2048)]}]);
    assert_eq!(put(&api, &fits).await.expect(200), fits);
}

#[tokio::test]
async fn bodies_of_another_shape_are_refused() {
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let shapes = [
        (json!({}), None, ""),
        (json!("x"), None, ""),
        (Value::Null, None, ""),
        (json!([1]), Some(0), ""),
        (json!([chapter("a", &[]), ["b", "T", []]]), Some(1), ""),
        (json!([{"id": "a", "title": "T"}]), Some(0), ""),
        (json!([{"id": 1, "title": "T", "pages": []}]), Some(0), "id"),
        (
            json!([{"id": "a", "title": "T", "pages": "/a"}]),
            Some(0),
            "pages",
        ),
        (
            json!([chapter("a", &[]), {"id": "b", "title": "T", "pages": ["/b", 1]}]),
            Some(1),
            "pages",
        ),
        (
            json!([{"id": "a", "title": "T", "pages": [], "page": "/a"}]),
            Some(0),
            "page",
        ),
    ];
    for (body, index, field) in shapes {
        let problem = put(&api, &body).await.expect(422);
        let error = &problem["errors"][0];
        assert_eq!(error["code"], "wrong_shape", "{body}");
        assert_eq!(error["index"].as_u64(), index, "{body}: {error}");
        assert_eq!(error["field"].as_str().unwrap_or_default(), field, "{body}");
    }
    let json = Some("application/json");
    for (kind, body, status) in [
        (json, "[", 400),
        (json, "", 400),
        (json, r#"[{"id":"\ud800","title":"T","pages":[]}]"#, 422),
        (None, "[]", 415),
        (Some("text/plain"), "[]", 415),
    ] {
        let answer = send(&api, (Method::PUT, PATH), kind, body).await;
        answer.problem(status);
    }
    assert_eq!(api.delete(PATH).await.problem(405), "method_not_allowed");
    assert_eq!(read(&api).await, (json!([]), "\"0\"".to_owned()));
}

#[tokio::test]
async fn a_structure_fits_into_a_frame_or_is_refused() {
    const MOST: usize = 240 * 1024;
    let (_database, server) = start().await;
    let api = server.api();
    book(&api, json!({})).await;
    let list = |bytes: usize| {
        let pages: Vec<String> = (0..bytes / 1100).map(|n| format!("/{n:0>1000}")).collect();
        let mut list = json!([{"id": "a", "title": "T", "pages": pages}]);
        let mut missing = bytes - list.to_string().len();
        for n in 0.. {
            if missing == 0 {
                break;
            }
            let more = if missing < 2000 { missing } else { 1000 };
            // Quotes and a comma come with it.
            let page = format!("{n:x>width$}", width = more - 3);
            list[0]["pages"].as_array_mut().unwrap().push(json!(page));
            missing -= more;
        }
        list
    };
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let fits = list(MOST);
    assert_eq!(fits.to_string().len(), MOST);
    assert_eq!(put(&api, &fits).await.expect(200), fits);
    let frame = events.expect("chapter").await;
    assert_eq!(frame.data["chapters"], fits);
    assert!(frame.data.to_string().len() < 256 * 1024);
    let problem = put(&api, &list(MOST + 1)).await.expect(422);
    let error = &problem["errors"][0];
    assert_eq!(error["code"], "too_large");
    assert!(
        error["detail"].as_str().unwrap().contains("245760"),
        "{error}"
    );
    // What is escaped is longer.
    let escaped = json!([{"id": "a", "title": "T", "pages":
        (0..150).map(|n| format!("/{n}{}", "é".repeat(340))).collect::<Vec<_>>()}]);
    assert!(escaped.to_string().len() < MOST);
    let problem = put(&api, &escaped).await.expect(422);
    assert_eq!(problem["errors"][0]["code"], "too_large");
    assert_eq!(put(&api, &list(1_100_000)).await.problem(413), "too_large");
}
