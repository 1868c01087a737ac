//! Heads of requests that are larger than any that makes sense.

use super::{said, until_closed};
use crate::harness::api::http2_client;
use crate::harness::start;

#[tokio::test]
async fn a_huge_head_is_refused_and_not_kept() {
    let (_database, server) = start().await;
    let api = server.api();
    let long_line = format!("x-padding: {}\r\n", "x".repeat(100_000));
    let long_path = format!("GET /{} HTTP/1.1\r\nhost: b\r\n\r\n", "x".repeat(70_000));
    let many_lines = "x-padding: x\r\n".repeat(1000);
    let many_cookies = "cookie: a=b\r\n".repeat(1000);
    let get = "GET /healthz HTTP/1.1\r\nhost: b\r\n";
    for (request, status) in [
        (format!("{get}{long_line}\r\n"), 431),
        // Its end never comes.
        (format!("{get}{long_line}"), 431),
        (format!("{get}{many_lines}\r\n"), 431),
        (format!("{get}{many_cookies}\r\n"), 431),
        (long_path, 414),
    ] {
        let mut stream = said(&api, request.as_bytes()).await;
        let text = until_closed(&mut stream).await;
        let expected = [format!("HTTP/1.1 {status}"), "HTTP/1.1 431".to_owned()];
        assert!(
            expected.iter().any(|start| text.starts_with(start)),
            "{text}"
        );
    }
    // What a browser with many cookies sends is none.
    let fine = format!(
        "{get}cookie: {}\r\nconnection: close\r\n\r\n",
        "c".repeat(8000)
    );
    let text = until_closed(&mut said(&api, fine.as_bytes()).await).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

#[tokio::test]
async fn a_huge_head_is_refused_over_http2_too() {
    let (_database, server) = start().await;
    let http2 = http2_client();
    let get = || http2.get(format!("{}/healthz", server.url));
    assert_eq!(get().send().await.unwrap().status(), 200);
    let answer = get().header("x-padding", "x".repeat(100_000)).send().await;
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status() == 431));
    assert_eq!(
        get().send().await.unwrap().status(),
        200,
        "the others go on"
    );
}
