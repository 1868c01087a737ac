//! What cannot be asked, and what cannot be answered.

use reqwest::Method;

use super::{ask, book, csv, with};
use crate::harness::{self, Answer};

#[tokio::test]
async fn what_cannot_be_answered_says_why() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api).await;
    let refusals = [
        ("rollup=pages&last=0", 400, "last"),
        ("rollup=pages&last=1001", 400, "last"),
        ("rollup=pages&last=-1", 400, "last"),
        ("rollup=pages&last=all", 400, "last"),
        ("rollup=pages&top=0", 400, "top"),
        ("rollup=pages&top=1001", 400, "top"),
        ("rollup=pages&top=", 400, "top"),
        ("rollup=pages&merge=yes", 400, "merge"),
        ("rollup=pages&interval=year", 400, "year"),
        ("rollup=pages&groups=none", 400, "none"),
        ("rollup=pages&groups=total&top=2", 400, "top"),
        ("rollup=sliding&groups=total&merge=true", 422, "overlap"),
        ("rollup=pages&from=5&to=5", 400, "from"),
        ("rollup=pages&from=6&to=5", 400, "from"),
        ("rollup=pages&interval=day&merge=true", 400, "merge"),
        ("rollup=pages&tz=Europe/Berlin", 400, "tz"),
        ("rollup=pages&merge=true&tz=UTC", 400, "tz"),
        (
            "rollup=pages&interval=day&tz=Europe/Atlantis",
            400,
            "Europe/Atlantis",
        ),
        ("rollup=pages&interval=day&tz=", 400, "tz"),
        (
            "rollup=pages&interval=day&tz=Etc/Unknown",
            400,
            "Etc/Unknown",
        ),
        ("rollup=pages&interval=day&tz=%00", 400, "tz"),
        ("rollup=sliding&interval=day", 422, "tumbling"),
        ("rollup=sessions&interval=day", 422, "tumbling"),
        ("rollup=sliding&merge=true", 422, "overlap"),
        ("rollup=none&merge=true", 404, "pages"),
    ];
    for (query, status, named) in refusals {
        for kind in ["application/json", "text/csv"] {
            let path = format!("/v1/books/b/counts?{query}");
            let request = api.request(Method::GET, &path).header("accept", kind);
            let answer = Answer::of(request).await;
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(named), "{query}: {detail}");
            let code = match status {
                400 => "bad_query",
                404 => "not_found",
                _ => "unanswerable",
            };
            assert_eq!(answer.problem(status), code, "{query}");
        }
    }
    let fine = [
        "rollup=pages&merge=false&interval=day",
        "rollup=greatest&merge=true",
        "rollup=pages&interval=week&tz=europe/berlin",
        "rollup=tops&merge=true&top=1000",
    ];
    for query in fine {
        api.get(&format!("/v1/books/b/counts?{query}"))
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn a_cursor_is_good_for_queries_of_its_shape() {
    let (_database, server) = harness::start().await;
    let api = server.api();
    book(&api).await;
    let shapes: [&[(&str, &str)]; 12] = [
        &[],
        &[("from", "1000")],
        &[("to", "9000")],
        &[("last", "5")],
        &[("last", "6")],
        &[("top", "2")],
        &[("merge", "true")],
        &[("merge", "true"), ("top", "2")],
        &[("interval", "day")],
        &[("interval", "hour")],
        &[("groups", "total")],
        &[("interval", "day"), ("tz", "Asia/Kathmandu")],
    ];
    for shape in shapes {
        let query = with("pages", &[("limit", "1")], shape);
        let page = ask(&api, &query).await.expect(200);
        let cursor = page["next_cursor"].as_str().unwrap();
        for other in shapes {
            let query = with("pages", &[("cursor", cursor)], other);
            let answer = ask(&api, &query).await;
            if other == shape {
                answer.expect(200);
            } else {
                assert_eq!(
                    answer.problem(400),
                    "bad_query",
                    "{shape:?}, then {other:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn too_many_groups_are_not_merged() {
    let (database, server) = harness::start().await;
    let api = server.api();
    api.plain_book("b", 1000, 60_000).await;
    let mut conn = database.connect().await;
    // Through the database, for it would take a while through the front door.
    let fill = "INSERT INTO windows (book_id, generation, rollup, start_ms, end_ms, group_key, fired,
                                     weight, state, changed_ms)
                SELECT b.id, 0, 0, w * 1000, w * 1000 + 1000, '/' || n, true, 1,
                       '\\x010100000000000000', 0
                FROM books b, generate_series(0, 1) w, generate_series(w * 100000, w * 100000 + 100000) n";
    sqlx::raw_sql(sqlx::AssertSqlSafe(fill))
        .execute(&mut conn)
        .await
        .unwrap();
    for how in [("merge", "true"), ("interval", "day")] {
        let query = with("pages", &[("limit", "1")], &[how]);
        let answer = ask(&api, &query).await;
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("200000"), "{detail}");
        assert_eq!(answer.problem(422), "unanswerable");
        let query = with(
            "pages",
            &[("last", "1")],
            &[("merge", "true"), ("top", "3")],
        );
        assert_eq!(
            ask(&api, &query).await.expect(200)["items"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
    }
    let query = with("pages", &[("last", "1")], &[("merge", "true")]);
    assert_eq!(csv(&api, &query).await.len(), 100_001);
}
