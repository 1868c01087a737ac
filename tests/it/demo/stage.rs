//! The stage takes orders from its own pages alone.

use reqwest::Method;
use reqwest::header::{HOST, ORIGIN};

use super::play::Demo;
use crate::harness::{Answer, Api};

#[tokio::test]
async fn other_pages_on_this_machine_press_no_buttons() {
    let demo = Demo::start(&[]).await;
    let api = Api::new(demo.stage(), "no token");
    let deed = |origin: Option<&str>| {
        let request = api.request(Method::POST, "/deeds/plug");
        match origin {
            Some(origin) => request.header(ORIGIN, origin),
            None => request,
        }
    };
    for origin in [
        None,
        Some("null"),
        Some("http://evil.example"),
        Some("http://127.0.0.1:1"),
    ] {
        assert_eq!(Answer::of(deed(origin)).await.status, 403, "{origin:?}");
    }
    // A name that somebody else has made lead here.
    let rebound = api.request(Method::GET, "/").header(HOST, "evil.example");
    assert_eq!(Answer::of(rebound).await.status, 403);

    for path in ["/", "/book/", "/book/windows"] {
        let page = Answer::of(api.request(Method::GET, path)).await;
        assert_eq!(page.status, 200, "{path}");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
    }
    for missing in [
        "/book/nothing",
        "/book/contents",
        "/deeds/plug",
        "/stage.html",
    ] {
        let answer = Answer::of(api.request(Method::GET, missing)).await;
        assert!([404, 405].contains(&answer.status.as_u16()), "{missing}");
    }
    // What was refused was not done.
    assert!(demo.children().len() > 2);
    let (status, _place) = demo.end("TERM").await;
    assert!(status.success());
}
