//! Every address and method that there is, asked by everyone: a new one without a row fails, and so
//! does a row without one.

mod rows;

use std::collections::BTreeSet;
use std::fs;

use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use rows::{ROWS, Row};

use super::sessions::{open, session};
use super::{id, secret, token};
use crate::harness::steps::execute;
use crate::harness::{Api, Database, PATIENCE, start, until};

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Nobody,
    Wrong,
    Expired,
    Revoked,
    Read,
    Write,
    Manage,
    OtherBook,
    Cookie,
    EndedCookie,
    Admin,
}

use Who::{
    Admin, Cookie, EndedCookie, Expired, Manage, Nobody, OtherBook, Read, Revoked, Write, Wrong,
};

/// In the order of the columns.
const ALL: [Who; 11] = [
    Nobody,
    Wrong,
    Expired,
    Revoked,
    EndedCookie,
    Read,
    Write,
    Manage,
    Cookie,
    OtherBook,
    Admin,
];

impl Who {
    fn expected(self, (.., unknown, known): &Row) -> u16 {
        let known_as = [Read, Write, Manage, Cookie, OtherBook, Admin];
        let place = known_as.iter().position(|who| *who == self);
        place.map_or(*unknown, |place| known[place])
    }
}

/// Everybody's credentials, and what is asked for.
struct Scene {
    database: Database,
    admin: Api,
    book: String,
    tokens: Vec<(Who, String)>,
    ended_session: String,
}

impl Scene {
    async fn set(database: Database, admin: Api) -> Self {
        let book = admin.plain_book("b", 1000, 0).await;
        let public = json!({"settings": {"public_counter": true}});
        admin.patch("/v1/books/b", &public).await.expect(200);
        admin.plain_book("other", 1000, 0).await;
        let mut tokens = vec![(Wrong, format!("pt_{}", "A".repeat(43)))];
        for (who, books, scopes) in [
            (Read, &["b"][..], &["read"][..]),
            (Write, &["b"], &["write"]),
            (Manage, &["b"], &["manage"]),
            (OtherBook, &["other"], &["manage", "write", "read"]),
            (Admin, &[], &["admin"]),
        ] {
            let made = token(&admin, books, scopes).await;
            tokens.push((who, secret(&made).to_owned()));
        }
        // Those that have ended could do everything.
        let revoked = token(&admin, &[], &["admin"]).await;
        let ended_session = open(&admin.with_token(secret(&revoked)), json!({})).await;
        admin
            .delete(&format!("/v1/tokens/{}", id(&revoked)))
            .await
            .expect(204);
        tokens.push((Revoked, secret(&revoked).to_owned()));
        let new = json!({"scopes": ["admin"], "expires_in_ms": 1});
        let expired = admin.post("/v1/tokens", &new).await.expect(201);
        let by_expired = admin.with_token(secret(&expired));
        until("the token expires", || async {
            (by_expired.get("/v1/books").await.status == 401).then_some(())
        })
        .await;
        tokens.push((Expired, by_expired.token));
        Self {
            database,
            book: id(&book).to_owned(),
            admin,
            tokens,
            ended_session: session(&ended_session).to_owned(),
        }
    }

    fn token_of(&self, who: Who) -> Option<&str> {
        let mut tokens = self.tokens.iter();
        tokens.find(|(of, _)| *of == who).map(|(_, token)| &**token)
    }

    /// The address, with something new behind `{id}` that may be removed.
    async fn address(&self, path: &str) -> String {
        let there = path
            .replace("{book}", &self.book)
            .replace("{code}", "not_found")
            .replace("{file}", "app.js");
        if path.contains("/dead-letters/{id}") {
            let letter = Uuid::new_v4();
            let sql = format!(
                "INSERT INTO dead_letters SELECT id, '{letter}', '{letter}', 0, '',
                     jsonb_build_object('id', jsonb_build_object('uuid', '{letter}'),
                                        'at', 0, 'received_at', 0, 'page', '/a')
                 FROM books WHERE id = '{}'",
                self.book
            );
            execute(&self.database, &sql).await;
            return there.replace("{id}", &letter.to_string());
        }
        if path.contains("{note}") {
            let notes = format!("/v1/books/{}/notes", self.book);
            let note = self.admin.post(&notes, &json!({"text": "a note"})).await;
            return there.replace("{note}", id(&note.expect(201)));
        }
        if path == "/v1/tokens/{id}" {
            let fresh = token(&self.admin, &["b"], &["read"]).await;
            return there.replace("{id}", id(&fresh));
        }
        if path == "/badge/{file}" {
            return format!("/badge/{}.svg", self.book);
        }
        if path.ends_with("/counts") {
            return format!("{there}?rollup=pages");
        }
        if path.ends_with("/imports") {
            return format!("{there}?format=combined");
        }
        // There is none that stays.
        there.replace("{run}", &Uuid::new_v4().to_string())
    }

    async fn ask(&self, who: Who, (method, path, body, ..): &Row) -> u16 {
        let address = self.address(path).await;
        assert!(
            !address.contains('{'),
            "{path} has a part that this test does not know"
        );
        let method: Method = method.parse().unwrap();
        let url = format!("{}{address}", self.admin.url);
        let mut request = self.admin.http.request(method, url);
        if let Some(token) = self.token_of(who) {
            request = request.bearer_auth(token);
        }
        let session = match who {
            Cookie => {
                let manager = self.admin.with_token(self.token_of(Manage).unwrap());
                Some(session(&open(&manager, json!({})).await).to_owned())
            }
            EndedCookie => Some(self.ended_session.clone()),
            _ => None,
        };
        if let Some(session) = session {
            request = request.header("cookie", format!("pagetide_session={session}"));
        }
        if !body.is_empty() {
            let body = body.replace("{book}", &self.book);
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        // The head alone: a stream has no end.
        let response = request.timeout(PATIENCE).send().await.unwrap();
        let status = response.status().as_u16();
        if status >= 400 {
            let kind = &response.headers()["content-type"];
            assert_eq!(kind, "application/problem+json", "{path} by {who:?}");
        }
        assert_eq!(
            response.headers().contains_key("www-authenticate"),
            status == 401,
            "{path} by {who:?}"
        );
        status
    }
}

type Routes = BTreeSet<(String, String)>;

/// What the description of the interface names.
async fn described(api: &Api) -> Routes {
    let description = api.get("/openapi.json").await.expect(200);
    let mut routes = Routes::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            if method.parse::<Method>().is_ok() && !["parameters", "summary"].contains(&&**method) {
                routes.insert((method.to_uppercase(), path.clone()));
            }
        }
    }
    routes
}

/// What the code routes without describing it; all of it by GET.
fn undescribed() -> Routes {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http");
    let mut routes = Routes::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The demo's own, which it serves at another origin.
        if path.ends_with("stage.rs") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        for part in text.split(".route(").skip(1) {
            let Some(rest) = part.trim_start().strip_prefix('"') else {
                // The beacon's, from the settings; `beacon` asks there.
                assert!(part.starts_with("path."), "a route without an address");
                continue;
            };
            let (path, handler) = rest.split_once('"').unwrap();
            let handler: String = handler.chars().take(40).collect();
            assert!(
                handler.contains("get("),
                "{path} is not by GET alone: {handler}"
            );
            routes.insert(("GET".to_owned(), path.to_owned()));
        }
    }
    routes
}

#[tokio::test]
async fn every_route_answers_everyone_as_the_table_says() {
    let (database, server) = start().await;
    let api = server.api();
    let mut routes = described(&api).await;
    routes.extend(undescribed());
    let rows = ROWS
        .iter()
        .map(|(method, path, ..)| ((*method).to_owned(), (*path).to_owned()));
    let rows: Routes = rows.collect();
    let without_row: Vec<_> = routes.difference(&rows).collect();
    assert!(without_row.is_empty(), "no row for {without_row:?}");
    let without_route: Vec<_> = rows.difference(&routes).collect();
    assert!(
        without_route.is_empty(),
        "rows for nothing: {without_route:?}"
    );
    assert_eq!(rows.len(), ROWS.len(), "two rows for one route");

    let scene = Scene::set(database, api).await;
    // What removes the book goes last.
    let (last, first): (Vec<&Row>, Vec<&Row>) = ROWS
        .iter()
        .partition(|(method, path, ..)| (*method, *path) == ("DELETE", "/v1/books/{book}"));
    let mut wrong = Vec::new();
    for row in first.into_iter().chain(last) {
        for who in ALL {
            let (status, expected) = (scene.ask(who, row).await, who.expected(row));
            if status != expected {
                wrong.push(format!(
                    "{} {} by {who:?}: {status}, not {expected}",
                    row.0, row.1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
