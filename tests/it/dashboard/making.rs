//! Making a book: what is wrong is said beside the field that it is about, and nothing typed is lost.

use serde_json::json;

use crate::harness::browser::Browser;
use crate::harness::server::ADMIN;
use crate::harness::{Database, Server, start, steps};

const SITEMAP: &str = "<urlset><url><loc>https://tides.example/book/ebb</loc></url>
    <url><loc>https://tides.example/book/guide/one</loc></url>
    <url><loc>https://tides.example/book/guide/two</loc></url></urlset>";

/// What a field says is wrong with it, as a screen reader is told.
async fn wrong_with(browser: &Browser, field: &str) -> String {
    let script = "const field = document.getElementById(arguments);
        const said = document.getElementById(`${arguments}-wrong`);
        return field.getAttribute('aria-invalid') === 'true' && document.activeElement === field
            && field.getAttribute('aria-describedby').includes(said.id) && said.textContent;";
    let said = browser.seen(script, json!(field)).await;
    said.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_wrong_with_a_new_book_is_said_at_the_field_and_the_rest_can_be_tried_again() {
    let database = Database::create().await;
    let env = [
        ("PAGETIDE_PUBLIC_URL", "https://stats.example/"),
        ("PAGETIDE_BEACON_PATH", "/reading/tide.js"),
    ];
    let server = Server::start_with(&database, &env).await;
    let api = server.api();
    api.book("ebb-and-flow", json!({"title": "Another"})).await;
    let browser = Browser::start().await;
    browser.log_in(&server.url, ADMIN).await;
    browser.press("a[href='/new']").await;

    browser.press("#make").await;
    assert_eq!(wrong_with(&browser, "title").await, "It needs a title.");
    browser.type_into("#title", "Ebb & flow").await;
    browser.retype("#slug", "ebb-and-flow").await;
    browser.type_into("#title", ": a book").await;
    assert_eq!(
        browser.text_of("#slug").await,
        "ebb-and-flow",
        "what was typed was proposed over"
    );
    browser.paste("#chapters", SITEMAP).await;
    assert_eq!(
        browser.text_of("#chapters").await,
        "Ebb: /book/ebb\nGuide: /book/guide/*"
    );
    assert_eq!(browser.text_of("#site").await, "https://tides.example/book");
    assert_eq!(browser.text_of("#base").await, "/book");
    browser.press("[data-each=page]").await;
    let by_page = "Ebb: /book/ebb\nOne: /book/guide/one\nTwo: /book/guide/two";
    assert_eq!(browser.text_of("#chapters").await, by_page);
    browser.press("#make").await;
    let taken = "Another book has this short name: look at it.";
    assert_eq!(wrong_with(&browser, "slug").await, taken);

    browser.retype("#base", "book").await;
    browser.retype("#slug", "Tides!").await;
    browser.press("#make").await;
    let slug = wrong_with(&browser, "slug").await;
    assert!(slug.contains("1 to 64 of a-z, 0-9 and -"), "{slug}");
    let base = browser.text_of("#base-wrong").await;
    assert!(base.contains("a path that begins with /"), "{base}");

    // The book can be made, its chapters cannot.
    browser.retype("#base", "/book").await;
    browser.retype("#slug", "tides").await;
    browser.type_into("#chapters", "\nThree: /guide/two").await;
    browser.press("#make").await;
    let chapters = wrong_with(&browser, "chapters").await;
    assert!(
        chapters.starts_with("Line 4, “Three”: /guide/two is in the chapter"),
        "{chapters}"
    );
    let made = browser.text_of("#made").await;
    assert_eq!(made, "The book is made; its chapters are not saved yet.");
    let typed = browser.text_of("#chapters").await;
    assert_eq!(typed, format!("{by_page}\nThree: /guide/two"));
    browser.type_into("#chapters", "-and-a-half").await;
    let rows = browser.texts(".preview tbody td").await;
    assert_eq!(rows.last().unwrap(), "/guide/two-and-a-half");
    browser.press("#make").await;
    let snippet = browser.text_of("[data-snippet=mdbook]").await;
    let source = "https://stats.example/reading/tide.js?book=tides&key=pt_";
    assert!(snippet.contains(source), "{snippet}");

    let book = api.get("/v1/books/tides").await.expect(200);
    assert_eq!(book["title"], "Ebb & flow: a book");
    assert_eq!(book["origins"], json!(["https://tides.example"]));
    assert_eq!(book["settings"]["base_path"], "/book");
    let chapters = api.get("/v1/books/tides/chapters").await.expect(200);
    assert_eq!(
        chapters,
        json!([
            {"id": "ebb", "title": "Ebb", "pages": ["/ebb"]},
            {"id": "one", "title": "One", "pages": ["/guide/one"]},
            {"id": "two", "title": "Two", "pages": ["/guide/two"]},
            {"id": "three", "title": "Three", "pages": ["/guide/two-and-a-half"]},
        ])
    );
}

#[tokio::test]
async fn keys_are_made_and_taken_back_on_the_books_page_and_who_may_not_add_books_is_told() {
    let (_database, server) = start().await;
    let api = server.api();
    api.book("tides", json!({"title": "Tides"})).await;
    let reader = steps::token(&api, "tides", "read").await;
    let browser = Browser::start().await;
    browser
        .log_in(&server.url, reader["token"].as_str().unwrap())
        .await;
    browser.press("a[href='/new']").await;
    browser.sees("#no-permission").await;
    browser.press("#logout").await;

    browser.sees("#token").await;
    browser.log_in(&server.url, ADMIN).await;
    browser.press("a[data-book=tides]").await;
    browser.press("#keys > summary").await;
    browser.press("#new-key").await;
    let snippet = browser.text_of("#keys [data-snippet=page]").await;
    let (_, key) = snippet.split_once("data-key=\"").unwrap();
    let key = api.with_token(key.split('"').next().unwrap());
    let post = async |page: &str| {
        let click = json!({"page": page});
        let answer = key.post("/v1/books/tides/clicks", &click).await;
        answer.status.as_u16()
    };
    assert_eq!(post("/ebb").await, 200);
    key.get("/v1/books/tides").await.expect(403);
    let made = api.get("/v1/tokens").await.expect(200);
    let made = &made["items"][1];
    assert_eq!(
        (&made["label"], &made["expires_at"]),
        (&json!("beacon"), &json!(null))
    );

    let row = format!("[data-key='{}']", made["id"].as_str().unwrap());
    browser.press(&format!("{row} button")).await;
    browser.press("dialog button[value=no]").await;
    assert_eq!(post("/ebb").await, 200);
    browser.press(&format!("{row} button")).await;
    browser.press("dialog button[value=yes]").await;
    let gone = "return !document.querySelector(arguments);";
    browser.seen(gone, json!(row)).await;
    assert_eq!(post("/flow").await, 401);
}
