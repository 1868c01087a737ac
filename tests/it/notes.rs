//! Notes: what people write beside a book's counts, and who is told of it.

use pagetide::book::notes::{MAX_NOTES, Note};
use pagetide::ingest::command::{Command, NoteCommand, carry_out};
use pagetide::ingest::pulse::Pulse;
use pagetide::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::steps::{execute, frames_of};
use crate::harness::{Api, start, until};

const PATH: &str = "/v1/books/b/notes";

async fn add(api: &Api, note: Value) -> Value {
    api.post(PATH, &note).await.expect(201)
}

fn address(note: &Value) -> String {
    format!("{PATH}/{}", note["id"].as_str().unwrap())
}

async fn snapshot(api: &Api) -> Value {
    api.get("/v1/books/b/snapshot").await.expect(200)
}

async fn revision(api: &Api) -> i64 {
    let book = api.get("/v1/books/b").await.expect(200);
    book["revision"].as_i64().unwrap()
}

#[tokio::test]
async fn a_note_is_added_changed_listed_and_removed() {
    let (_database, server) = start().await;
    let api = server.api();
    let book = api.plain_book("b", 1000, 0).await;
    let before = Timestamp::now().to_string();
    let sent = json!({"text": "Chapter two\nis out", "at": "2026-03-01T13:00:00+01:00",
                      "page": "https://book.example/ch02/index.html#top"});
    let answer = api.post(PATH, &sent).await;
    let location = answer.headers["location"].to_str().unwrap().to_owned();
    let note = answer.expect(201);
    let id = (&book["id"], note["id"].as_str().unwrap());
    assert_eq!(
        location,
        format!("/v1/books/{}/notes/{}", id.0.as_str().unwrap(), id.1)
    );
    assert_eq!(id.1.parse::<Uuid>().unwrap().get_version_num(), 7);
    let made = note["created_at"].as_str().unwrap().to_owned();
    assert!(made >= before && made <= Timestamp::now().to_string());
    let expected = json!({"id": id.1, "text": "Chapter two\nis out", "page": "/ch02",
                          "at": "2026-03-01T12:00:00.000Z",
                          "created_at": made, "updated_at": made});
    assert_eq!(note, expected);

    // Milliseconds are a time too; without one it is now, and about no page.
    let long_ago = add(&api, json!({"text": "long ago", "at": -1})).await;
    assert_eq!(long_ago["at"], "1969-12-31T23:59:59.999Z");
    let now = add(&api, json!({"text": "now"})).await;
    assert_eq!(
        (&now["at"], &now["page"]),
        (&now["created_at"], &json!(null))
    );

    // What is not sent stays.
    let changed = api.patch(&location, &json!({"text": "Chapter 2"})).await;
    let changed = changed.expect(200);
    assert!(changed["updated_at"].as_str() >= note["updated_at"].as_str());
    let expected = json!({"id": note["id"], "text": "Chapter 2", "page": "/ch02", "at": note["at"],
                          "created_at": made, "updated_at": changed["updated_at"]});
    assert_eq!(changed, expected);
    let moved = json!({"at": 0, "page": "/ch03.html"});
    let moved = api.patch(&address(&note), &moved).await.expect(200);
    assert_eq!(
        (&moved["at"], &moved["page"], &moved["text"]),
        (
            &json!("1970-01-01T00:00:00.000Z"),
            &json!("/ch03"),
            &json!("Chapter 2")
        )
    );
    let bare = api.patch(&address(&note), &json!({"page": null})).await;
    let bare = bare.expect(200);
    assert_eq!((&bare["page"], &bare["at"]), (&json!(null), &moved["at"]));

    // In the order in which they were made, in parts.
    let first = api.get(&format!("{PATH}?limit=2")).await.expect(200);
    assert_eq!(first["items"], json!([bare, long_ago]));
    let next = first["next_cursor"].as_str().unwrap();
    let rest = api.get(&format!("{PATH}?limit=2&cursor={next}")).await;
    assert_eq!(
        rest.expect(200),
        json!({"items": [now], "next_cursor": null})
    );

    api.delete(&address(&bare)).await.expect(204);
    assert_eq!(api.delete(&address(&bare)).await.problem(404), "not_found");
    let gone = api.patch(&address(&bare), &json!({"text": "x"})).await;
    assert_eq!(gone.problem(404), "not_found");
    let left = api.get(PATH).await.expect(200);
    assert_eq!(left["items"], json!([long_ago, now]));
}

#[tokio::test]
async fn readers_are_told_and_a_snapshot_has_all_notes() {
    let (database, server) = start().await;
    let api = server.api();
    let book = api.plain_book("b", 1000, 0).await["id"].clone();
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let later = add(&api, json!({"text": "later", "at": 2000})).await;
    let frame = events.expect("note").await;
    assert_eq!(frame.position(), Some(1));
    let mut data = frame.data.clone();
    assert!(data.as_object_mut().unwrap().remove("at").is_some());
    let expected = json!({"type": "note", "book": book, "position": 1, "revision": 1,
                          "structure_version": 0, "note": later, "removed": false});
    assert_eq!(data, expected);
    let sooner = add(&api, json!({"text": "sooner", "at": 1000})).await;
    assert_eq!(events.expect("note").await.data["note"], sooner);
    // By the moments that they are about.
    let read = snapshot(&api).await;
    assert_eq!(read["notes"], json!([sooner, later]));
    assert_eq!(
        (&read["position"], &read["revision"]),
        (&json!(2), &json!(2))
    );

    let last = api.patch(&address(&sooner), &json!({"at": 3000})).await;
    let last = last.expect(200);
    let frame = events.expect("note").await;
    assert_eq!(
        (&frame.data["note"], &frame.data["removed"]),
        (&last, &json!(false))
    );
    assert_eq!(snapshot(&api).await["notes"], json!([later, last]));
    // What changes nothing is told to nobody.
    let same = api.patch(&address(&last), &json!({"text": "sooner"})).await;
    assert_eq!(same.expect(200), last);
    api.patch(&address(&last), &json!({})).await.expect(200);
    assert_eq!(revision(&api).await, 3);
    api.delete(&address(&last)).await.expect(204);
    let frame = events.expect("note").await;
    assert_eq!(
        (&frame.data["note"], &frame.data["removed"]),
        (&last, &json!(true))
    );
    assert_eq!(
        (frame.position(), &frame.data["revision"]),
        (Some(4), &json!(4))
    );
    let mut begun = api.follow("b", "?snapshot=1", None).await;
    begun.expect("hello").await;
    assert_eq!(begun.expect("snapshot").await.data["notes"], json!([later]));

    // One who comes back is told what he missed, and a replay of the log can read it.
    let mut back = api.follow("b", "", Some("3")).await;
    back.expect("hello").await;
    assert_eq!(back.expect("note").await.data["removed"], true);
    let logged = "SELECT count(*) FROM book_log WHERE kind = 'note'
                  AND (body->>'removed')::boolean = (seq = 4) AND body->'note'->>'text' <> ''";
    assert_eq!(database.number(logged).await, 4);
}

#[tokio::test]
async fn what_is_no_note_is_refused_field_by_field() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let kept = add(&api, json!({"text": "kept", "at": 5, "page": "/p"})).await;
    let (long, longest) = ("x".repeat(2001), "\u{e9}".repeat(2000));
    let long_page = format!("/{}", "p".repeat(2048));
    let cases = [
        (json!({"text": ""}), "text", "bad_text"),
        (json!({"text": long}), "text", "bad_text"),
        (json!({"text": "a\tb"}), "text", "bad_text"),
        (json!({"text": "a\r\nb"}), "text", "bad_text"),
        (json!({"text": "a\u{0}b"}), "text", "bad_text"),
        (json!({"text": 1}), "text", "wrong_shape"),
        (json!({"text": "x", "at": "yesterday"}), "at", "bad_time"),
        (json!({"text": "x", "at": 1.5}), "at", "bad_time"),
        (json!({"text": "x", "at": {}}), "at", "bad_time"),
        (
            json!({"text": "x", "at": 253_402_300_800_000_i64}),
            "at",
            "time_out_of_range",
        ),
        (
            json!({"text": "x", "at": 10_000_000_000_000_000_000_u64}),
            "at",
            "time_out_of_range",
        ),
        (json!({"text": "x", "page": ""}), "page", "bad_page"),
        (json!({"text": "x", "page": "/a\u{7}"}), "page", "bad_page"),
        (json!({"text": "x", "page": long_page}), "page", "bad_page"),
        (
            json!({"text": "x", "page": "\u{20ac}".repeat(600)}),
            "page",
            "bad_page",
        ),
    ];
    for (sent, field, code) in cases {
        for answer in [
            api.post(PATH, &sent).await,
            api.patch(&address(&kept), &sent).await,
        ] {
            let errors = answer.json()["errors"].clone();
            assert_eq!(
                (&errors[0]["field"], &errors[0]["code"]),
                (&json!(field), &json!(code))
            );
            assert_eq!(errors.as_array().unwrap().len(), 1, "{sent}: {errors}");
            assert_eq!(answer.problem(422), "invalid");
        }
    }
    for sent in [
        json!({}),
        json!({"text": null}),
        json!({"text": "x", "colour": "red"}),
    ] {
        assert_eq!(api.post(PATH, &sent).await.problem(422), "invalid");
    }
    for sent in [
        json!({"text": null}),
        json!({"at": null}),
        json!({"colour": "red"}),
    ] {
        let answer = api.patch(&address(&kept), &sent).await;
        assert_eq!(answer.problem(422), "invalid", "{sent}");
    }
    // Several things at once are told at once.
    let wrong = json!({"text": "", "at": "", "page": ""});
    let errors = api.post(PATH, &wrong).await.json()["errors"].clone();
    assert_eq!(errors.as_array().unwrap().len(), 3, "{errors}");
    for note in ["x", "00000000-0000-7000-8000-000000000000"] {
        let path = format!("{PATH}/{note}");
        assert_eq!(api.delete(&path).await.problem(404), "not_found");
        let answer = api.patch(&path, &json!({"text": "x"})).await;
        assert_eq!(answer.problem(404), "not_found");
    }
    // Another book's note is not this one's.
    api.plain_book("other", 1000, 0).await;
    let elsewhere = address(&kept).replace("/b/", "/other/");
    assert_eq!(api.delete(&elsewhere).await.problem(404), "not_found");
    assert_eq!(api.get(PATH).await.expect(200)["items"], json!([kept]));
    assert_eq!(revision(&api).await, 1);
    // Characters count, not bytes.
    assert_eq!(add(&api, json!({"text": longest})).await["text"], longest);
}

#[tokio::test]
async fn a_page_is_named_as_the_book_names_pages() {
    let (_database, server) = start().await;
    let api = server.api();
    let settings = json!({"canonical_pages": false});
    api.book("b", json!({"settings": settings})).await;
    let raw = add(&api, json!({"text": "x", "page": "/a/index.html"})).await;
    assert_eq!(raw["page"], "/a/index.html");
    let settings = json!({"canonical_pages": true, "base_path": "/docs"});
    api.patch("/v1/books/b", &json!({"settings": settings}))
        .await
        .expect(200);
    let canonical = add(&api, json!({"text": "x", "page": "/docs/a/index.html"})).await;
    assert_eq!(canonical["page"], "/a");
}

#[tokio::test]
async fn a_book_has_room_for_so_many_notes() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    let fill = format!(
        "INSERT INTO notes SELECT b.id, gen_random_uuid(), n, 0, 0, 'note ' || n, NULL
         FROM books b, generate_series(2, {MAX_NOTES}) n"
    );
    execute(&database, &fill).await;
    let last = add(&api, json!({"text": "the last"})).await;
    let answer = api.post(PATH, &json!({"text": "one more"})).await;
    assert_eq!(answer.json()["errors"][0]["code"], "too_many_notes");
    assert_eq!(answer.problem(422), "invalid");
    // A snapshot has them all, and whoever removes one may add another.
    let notes = snapshot(&api).await["notes"].clone();
    assert_eq!(
        i64::try_from(notes.as_array().unwrap().len()),
        Ok(MAX_NOTES)
    );
    assert_eq!(notes[0]["text"], "note 2");
    api.patch(&address(&last), &json!({"text": "changed"}))
        .await
        .expect(200);
    api.delete(&address(&last)).await.expect(204);
    add(&api, json!({"text": "in its place"})).await;
}

#[tokio::test]
async fn notes_stand_among_the_clicks_in_the_order_of_their_commits() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 3_600_000).await;
    let mut events = api.follow("b", "", None).await;
    events.expect("hello").await;
    let click = || json!({"page": "/p", "at": 1000});
    let mut expected = Vec::new();
    for number in 0..5 {
        expected.push((
            "counts",
            api.clicks("b", click()).await["position"].as_i64(),
        ));
        add(&api, json!({"text": format!("note {number}")})).await;
        expected.push(("note", Some(2 * number + 2)));
    }
    for (name, position) in expected {
        assert_eq!(events.expect(name).await.position(), position);
    }
    // Beside one another, each has a position and a revision of its own.
    let writers = (0..40).map(|number| {
        let api = api.clone();
        async move {
            if number % 2 == 0 {
                api.clicks("b", click()).await;
            } else {
                add(&api, json!({"text": format!("beside {number}")})).await;
            }
        }
    });
    futures_util::future::join_all(writers).await;
    let read = snapshot(&api).await;
    assert_eq!(read["notes"].as_array().unwrap().len(), 25);
    assert_eq!(read["windows"][0]["values"], json!({"/p": 25}));
    let position = read["position"].as_i64().unwrap();
    let (mut last, mut notes) = ((10, 10), 0);
    for event in events.through(position).await {
        let now = (
            event.position().unwrap(),
            event.data["revision"].as_i64().unwrap(),
        );
        assert!(now.0 > last.0 && now.1 > last.1, "{last:?} then {now:?}");
        last = now;
        notes += i64::from(event.name == "note");
    }
    assert_eq!((notes, last.1), (20, read["revision"].as_i64().unwrap()));
    // What the lane remembers of the book is what the notes left of it.
    let counts = frames_of(&api, "b", json!([click(), click()])).await;
    assert_eq!(counts[0].data["panes"][0]["values"], json!({"/p": 27}));
    let twice = "SELECT count(*) - count(DISTINCT seq) FROM
                 (SELECT seq FROM clicks UNION ALL SELECT seq FROM book_log) s";
    assert_eq!(database.number(twice).await, 0);
}

#[tokio::test]
async fn a_closed_book_takes_notes_and_is_at_rest_again() {
    let (_database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    api.clicks("b", json!({"page": "/a", "at": 1000})).await;
    api.post("/v1/books/b/close", &json!({})).await.expect(200);
    let note = add(&api, json!({"text": "the end"})).await;
    let note = api
        .patch(&address(&note), &json!({"text": "The end"}))
        .await;
    let note = note.expect(200);
    let read = snapshot(&api).await;
    assert_eq!(
        (&read["at_rest"], &read["notes"]),
        (&json!(true), &json!([note]))
    );
    assert_eq!(read["book"]["status"], "closed");
    let position = read["position"].as_i64().unwrap();
    let mut events = api.follow("b", "?last_event_id=earliest", None).await;
    let all = events.through(position).await;
    let names: Vec<&str> = all.iter().map(|event| &*event.name).collect();
    assert!(names.ends_with(&["status", "note", "note"]), "{names:?}");
    events.expect("end").await;
    api.delete(&address(&note)).await.expect(204);
    assert_eq!(snapshot(&api).await["notes"], json!([]));
}

#[tokio::test]
async fn a_second_try_finds_what_the_first_one_did() {
    let (database, server) = start().await;
    let api = server.api();
    let book = api.plain_book("b", 1000, 0).await;
    let book: Uuid = book["id"].as_str().unwrap().parse().unwrap();
    let now = Timestamp::now();
    let note = Note {
        id: Uuid::now_v7(),
        text: "once".to_owned(),
        at: now,
        page: None,
        created_at: now,
        updated_at: now,
    };
    let mut conn = database.connect().await;
    let mut tell = async |command: NoteCommand, again: bool| {
        let command = Command::Note(command);
        let told = carry_out(&mut conn, now, book, &command, again, &Pulse::new()).await;
        let mut replies = told.unwrap().replies;
        replies.pop().unwrap().map(|receipt| receipt.note)
    };
    let add = || NoteCommand::Add(note.clone());
    for again in [false, true, true] {
        assert_eq!(tell(add(), again).await, Ok(Some(note.clone())));
    }
    let listed = api.get(PATH).await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    // The first try may as well not have been committed.
    let other = Note {
        id: Uuid::now_v7(),
        ..note.clone()
    };
    let told = tell(NoteCommand::Add(other.clone()), true).await;
    assert_eq!(told, Ok(Some(other.clone())));
    tell(NoteCommand::Remove(other.id), false).await.unwrap();
    tell(NoteCommand::Remove(other.id), true).await.unwrap();
    assert!(tell(NoteCommand::Remove(other.id), false).await.is_err());
    assert_eq!(revision(&api).await, 3);
}

#[tokio::test]
async fn notes_go_with_their_book() {
    let (database, server) = start().await;
    let api = server.api();
    api.plain_book("b", 1000, 0).await;
    api.plain_book("other", 1000, 0).await;
    add(&api, json!({"text": "of b"})).await;
    let other = json!({"text": "of another"});
    api.post("/v1/books/other/notes", &other).await.expect(201);
    api.delete("/v1/books/b").await.expect(204);
    assert_eq!(api.get(PATH).await.problem(404), "not_found");
    until("the notes go with their book", async || {
        (database.number("SELECT count(*) FROM notes").await == 1).then_some(())
    })
    .await;
}
