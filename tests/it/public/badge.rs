//! The picture.

use serde_json::{Value, json};

use super::ask;
use crate::harness::browser::Browser;
use crate::harness::start;

#[tokio::test]
async fn a_badge_shows_and_says_its_number() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("b", json!({"settings": {"public_counter": true}}))
        .await;
    let clicks: Value = (0..1234)
        .map(|n| json!({"page": if n < 34 { "/a" } else { "/b" }}))
        .collect();
    api.clicks("b", clicks).await;
    for (query, says) in [
        ("", "views: 1,234"),
        ("?page=/a", "views: 34"),
        ("?page=/none", "views: 0"),
        ("?label=%3Cb%3E%20%26%20%22%C3%A4%22", "<b> & \"ä\": 1,234"),
    ] {
        let answer = ask(&api, &format!("/badge/b.svg{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(
            answer.headers["content-type"],
            "image/svg+xml; charset=utf-8"
        );
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(answer.text.contains("role=\"img\""));
        assert!(!says.contains('<') || answer.text.contains("&lt;b&gt; &amp; &quot;ä&quot;"));
        if !says.contains('<') {
            assert!(
                answer.text.contains(&format!("<title>{says}</title>")),
                "{}",
                answer.text
            );
        }
    }
    let long = "x".repeat(41);
    let answer = ask(&api, &format!("/badge/b.svg?label={long}")).await;
    assert_eq!(answer.problem(400), "bad_query");

    // As a browser understands it: a document with that title, and a picture in a page.
    let browser = Browser::start().await;
    let url = format!("{}/badge/b.svg?label=%3Cb%3E%20%26", server.url);
    browser.visit(&url).await;
    let title = "return document.documentElement.querySelector('title').textContent";
    assert_eq!(browser.run(title, json!(null)).await, "<b> &: 1,234");
    let drawn = "const image = new Image();
        image.src = location.href;
        await image.decode();
        return [image.naturalWidth > 60, image.naturalHeight]";
    browser.visit(&format!("{}/healthz", server.url)).await;
    let drawn = drawn.replace("location.href", &format!("'{url}'"));
    assert_eq!(browser.run(&drawn, json!(null)).await, json!([true, 20]));
}
