//! The script as it is served.

use crate::harness::{Answer, Database, Server};

#[tokio::test]
async fn the_script_is_small_and_kept_and_for_pages_of_any_origin() {
    let database = Database::create().await;
    let env = [("PAGETIDE_BEACON_PATH", "/reading/tide.js")];
    let server = Server::start_with(&database, &env).await;
    let http = server.api().http;
    let mut scripts = Vec::new();
    for path in ["/beacon.js?book=b&key=k", "/reading/tide.js"] {
        let url = format!("{}{path}", server.url);
        let answer = Answer::of(http.get(&url)).await;
        assert_eq!(answer.status, 200);
        let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        assert!(answer.text.len() < 2048, "{}", answer.text.len());
        assert!(!answer.headers.contains_key("content-encoding"));
        assert_eq!(header("content-type"), "text/javascript; charset=utf-8");
        assert_eq!(header("cache-control"), "public, max-age=3600");
        assert_eq!(header("cross-origin-resource-policy"), "cross-origin");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let same = http.get(&url).header("if-none-match", header("etag"));
        let same = Answer::of(same).await;
        assert_eq!((same.status.as_u16(), &*same.text), (304, ""));
        assert_eq!(same.headers["etag"], header("etag"));
        let older = http.get(&url).header("if-none-match", "\"older\"");
        assert_eq!(Answer::of(older).await.status, 200);
        scripts.push(answer.text);
    }
    assert_eq!(scripts[0], scripts[1]);
    let other = server.api().get("/reading/other.js").await;
    assert_eq!(other.problem(404), "not_found");
}

#[tokio::test]
async fn a_path_that_is_no_scripts_or_anothers_is_refused() {
    let database = Database::create().await;
    for path in [
        "tide.js",
        "/tide",
        "/v1/tide.js",
        "/client.js",
        "/{tide}.js",
    ] {
        let mut command = Server::command();
        command.env("DATABASE_URL", database.url());
        command.env("PAGETIDE_BEACON_PATH", path);
        assert!(Server::try_spawn(command).await.is_err(), "{path}");
    }
}
