//! What an owner does with a finished book is seen at once, though no stream is open.

use serde_json::{Value, json};

use super::Stage;
use crate::harness::until;

/// Presses a button of the page, and the one that says yes in the dialog that it opens.
async fn press(stage: &Stage, selector: &str, words: &str) {
    let script = "const [selector, words] = arguments;
        const button = [...document.querySelectorAll(selector)].find(b => b.textContent.includes(words));
        button.click();
        document.querySelector('dialog button[value=yes]')?.click();
        return true;";
    let pressed = stage.browser.run(script, json!([selector, words])).await;
    assert_eq!(pressed, true, "{words}");
}

async fn page_shows(stage: &Stage, what: &str, script: &str, wanted: Value) {
    until(what, || async {
        (stage.browser.run(script, json!([])).await == wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_finished_book_shows_what_is_done_to_it() {
    let stage = Stage::set().await;
    let api = stage.server().api();
    let rollups = json!([{"name": "live", "group_by": "page", "aggregate": "count",
                          "window": {"kind": "tumbling", "size_ms": 10_000}}]);
    let settings = json!({"delay_ms": 0, "lateness_ms": 0});
    api.book("b", json!({"rollups": rollups, "settings": settings}))
        .await;
    let now = chrono::Utc::now().timestamp_millis();
    let ages = [("/early", 50_000), ("/now", 1000), ("/late", 55_000)];
    let clicks: Vec<Value> = ages
        .iter()
        .map(|(page, age)| json!({"page": page, "at": now - age}))
        .collect();
    let answer = api.clicks("b", json!(clicks)).await;
    assert_eq!(
        (&answer["on_time"], &answer["dropped"]),
        (&json!(2), &json!(1))
    );
    stage.open("/books/b").await;

    press(&stage, "#finish", "Finish").await;
    let connected = "return document.querySelector('#connection').dataset.state;";
    page_shows(&stage, "it is finished", connected, json!("ended")).await;
    let states = "return [...document.querySelectorAll('#chart rect')].map(r => r.dataset.state);";
    page_shows(&stage, "all is final", states, json!(["closed", "closed"])).await;

    let note = "const field = document.querySelector('.note-form input');
        field.value = '<b>the end</b>';
        field.form.requestSubmit();
        return true;";
    stage.browser.run(note, json!([])).await;
    let notes = "return [...document.querySelectorAll('#notes .words')].map(n => n.textContent);";
    page_shows(&stage, "the note", notes, json!(["<b>the end</b>"])).await;

    // What was too late comes in.
    press(&stage, "button", "Recount").await;
    let pages = "return [...document.querySelectorAll('#pages tr[data-group]')].map(r => r.dataset.group).sort();";
    page_shows(
        &stage,
        "the pages",
        pages,
        json!(["/early", "/late", "/now"]),
    )
    .await;
    let runs =
        "return [...document.querySelectorAll('#runs [data-run]')].map(r => r.dataset.state);";
    page_shows(&stage, "the run", runs, json!(["done"])).await;

    press(&stage, "#finish", "Reopen").await;
    page_shows(&stage, "it is live again", connected, json!("live")).await;
    api.clicks("b", json!({"page": "/again"})).await;
    let again =
        "return document.querySelector('#pages tr[data-group=\"/again\"]')?.dataset.value ?? null;";
    page_shows(&stage, "the click", again, json!("1")).await;
}
