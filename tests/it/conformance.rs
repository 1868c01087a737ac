//! Whatever the description of the interface allows, and much that it does not, is answered as the
//! description says: tried by Schemathesis.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use crate::harness::{Answer, start};

/// How long it goes on trying, in seconds.
const SECONDS: &str = "60";

/// A run that fails can be had again.
const SEED: &str = "20260301";

/// What is tried. Links from one operation to another are not described.
const PHASES: &str = "examples,coverage,fuzzing";

/// What has to hold for every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,\
                      unsupported_method,allow_header_conformance,ignored_auth";

#[tokio::test]
async fn every_answer_is_as_the_description_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("tests/schemathesis");
    let program = folder.join(".venv/bin/schemathesis");
    assert!(
        program.exists(),
        "Schemathesis is missing: tests/install.sh installs it"
    );
    let (_database, server) = start().await;
    let api = server.api();
    let public = json!({"settings": {"public_counter": true}});
    api.book("tried", public).await;
    api.book("doomed", json!({})).await;
    let mut command = Command::new(program);
    command
        .arg("--config-file")
        .arg(folder.join("schemathesis.toml"))
        .arg("run")
        .arg(root.join("openapi.yaml"))
        .args(["--url", &server.url, "--checks", CHECKS, "--phases", PHASES])
        .args(["--header", &format!("Authorization: Bearer {}", api.token)])
        .args([
            "--seed",
            SEED,
            "--max-time",
            SECONDS,
            "--request-timeout",
            "20",
        ])
        .args(["--no-color", "--generation-database", "none"])
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let run = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    eprintln!("{said}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "Schemathesis found something");
    let tried = said.split_once("Test cases:").expect("it tried nothing").1;
    let tried = tried.trim_start().split(' ').next().unwrap();
    assert!(
        tried.parse::<u32>().unwrap() > 500,
        "it tried {tried} requests alone"
    );
    // The server is none the worse for it.
    let ready = Answer::of(api.request(reqwest::Method::GET, "/readyz")).await;
    assert_eq!(ready.status, 200);
}
