//! The description of the interface is served, and what it describes is there.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::api::Answer;
use crate::harness::start;
use crate::harness::steps::execute;

#[tokio::test]
async fn the_description_is_served_as_yaml_and_as_json_which_say_the_same() {
    let (_database, server) = start().await;
    let http = server.api().http;
    let get = |path: &str| http.get(format!("{}{path}", server.url)).send();
    let json = get("/openapi.json").await.unwrap();
    assert_eq!(json.status(), 200);
    assert_eq!(json.headers()["content-type"], "application/json");
    let json: Value = json.json().await.unwrap();
    let yaml = get("/openapi.yaml").await.unwrap();
    assert_eq!(yaml.status(), 200);
    let kind = yaml.headers()["content-type"].to_str().unwrap();
    assert!(kind.starts_with("application/yaml"), "{kind}");
    let yaml: Value = yaml_serde::from_str(&yaml.text().await.unwrap()).unwrap();
    assert_eq!(yaml, json);
    assert!(json["openapi"].as_str().unwrap().starts_with("3."));
    assert_eq!(json["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn every_reference_in_the_description_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let (_database, server) = start().await;
    let description = server.api().get("/openapi.json").await.expect(200);
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(!found.is_empty());
    let leads = |reference: &str| {
        let pointer = reference.strip_prefix('#').unwrap();
        description.pointer(pointer).is_some()
    };
    let lost: BTreeSet<&str> = found.into_iter().filter(|r| !leads(r)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test]
async fn every_described_operation_is_there() {
    let (database, server) = start().await;
    let api = server.api();
    let book = api.plain_book("b", 1000, 0).await;
    let public = json!({"settings": {"public_counter": true}});
    api.patch("/v1/books/b", &public).await.expect(200);
    // One to be sent again, and one to be thrown away.
    let letter = async |id: u128| {
        let sql = format!(
            "INSERT INTO dead_letters SELECT id, '{0}', '{0}', 0, '', jsonb_build_object(
                 'id', jsonb_build_object('uuid', '{0}'), 'at', 0, 'received_at', 0, 'page', '/a')
             FROM books",
            Uuid::from_u128(id)
        );
        execute(&database, &sql).await;
        Uuid::from_u128(id).to_string()
    };
    let letters = [letter(1).await, letter(2).await];
    let note = json!({"text": "a note"});
    let note = api.post("/v1/books/b/notes", &note).await.expect(201);
    let new = json!({"books": ["b"], "scopes": ["read"]});
    let token = api.post("/v1/tokens", &new).await.expect(201);
    let opened = api.post("/v1/sessions", &json!({})).await.expect(201);
    let cookie = format!("pagetide_session={}", opened["session"].as_str().unwrap());
    let description = api.get("/openapi.json").await.expect(200);
    let mut operations: Vec<(Method, &str)> = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        let methods = methods.filter_map(|name| {
            let known = ["get", "put", "post", "patch", "delete"].contains(&name.as_str());
            known.then(|| name.to_uppercase().parse().unwrap())
        });
        operations.extend(methods.map(|method: Method| (method, path.as_str())));
    }
    assert!(operations.len() >= 15, "{operations:?}");
    let nothing = api.request(Method::POST, "/v1/books/b/imports?format=ndjson");
    let run = Answer::of(nothing).await.expect(200);
    // What is deleted goes last.
    operations.sort_by_key(|(method, path)| {
        let deleted = *method == Method::DELETE;
        (deleted, deleted.then_some(std::cmp::Reverse(path.len())))
    });
    for (method, path) in operations {
        let there = path
            .replace("{book}", book["id"].as_str().unwrap())
            .replace(
                "dead-letters/{id}/",
                &format!("dead-letters/{}/", letters[0]),
            )
            .replace("dead-letters/{id}", &format!("dead-letters/{}", letters[1]))
            .replace("{file}", "b.svg")
            .replace("{note}", note["id"].as_str().unwrap())
            .replace("{run}", run["id"].as_str().unwrap())
            .replace("{id}", token["id"].as_str().unwrap());
        assert!(
            !there.contains('{'),
            "{path} has a part that this test does not know"
        );
        let query = if path.ends_with("/counts") {
            "?rollup=pages"
        } else {
            ""
        };
        let mut request = api.request(method.clone(), &format!("{there}{query}"));
        if path == "/v1/sessions/current" {
            let url = format!("{}{there}", api.url);
            request = api.http.request(method.clone(), url);
            request = request.header("cookie", &cookie);
        }
        if ![Method::GET, Method::DELETE].contains(&method) {
            request = request.json(&json!({}));
        }
        // The head alone: a stream has no end.
        let status = request.send().await.unwrap().status().as_u16();
        assert!(
            ![404, 405].contains(&status) && status < 500,
            "{method} {path}: {status}"
        );
        if method == Method::GET {
            assert_eq!(status, 200, "{path}");
        }
    }
}
