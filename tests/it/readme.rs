//! The README's lines, run as they stand.

use std::fs;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::harness::{Database, PATIENCE, Server};

/// The shell blocks of the README that talk to a running server, in order.
fn blocks() -> Vec<String> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let text = fs::read_to_string(readme).unwrap();
    let mut blocks = Vec::new();
    for part in text.split("```sh\n").skip(1) {
        let block = part.split("```").next().unwrap();
        if block.contains("$PAGETIDE") {
            blocks.push(block.to_owned());
        }
    }
    blocks
}

#[tokio::test]
async fn the_lines_of_the_readme_work_as_they_stand() {
    let database = Database::create().await;
    // No admin token is chosen: the first start makes one and prints lines to paste.
    let mut command = Server::command();
    command.env("DATABASE_URL", database.url());
    let server = Server::spawn(command).await;
    let said = |start: &str| {
        let lines = server.said.iter().filter(|line| line.starts_with(start));
        lines.cloned().collect::<Vec<_>>()
    };
    let exports = said("export PAGETIDE=");
    assert_eq!(exports.len(), 1, "{:?}", server.said);
    let pasted = said("curl ");
    assert_eq!(pasted.len(), 3);

    let blocks = blocks();
    assert!(blocks.len() >= 4, "{blocks:?}");
    for line in &pasted {
        let shown = blocks.iter().any(|block| block.contains(line.as_str()));
        assert!(shown, "the README does not show the printed line: {line}");
    }
    let shell = |script: &str| {
        let script = format!("set -euo pipefail\n{}\n{script}", exports[0]);
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).kill_on_drop(true);
        // What a person has at hand in the folder of the project.
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    for block in &blocks {
        if block.contains("curl -N") {
            // It never ends by itself: its first event is enough.
            let mut child = shell(block).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let first = tokio::time::timeout(PATIENCE, lines.next_line()).await;
            assert_eq!(first.unwrap().unwrap().unwrap(), "event: hello", "{block}");
            child.kill().await.unwrap();
            continue;
        }
        let mut child = shell(block).spawn().unwrap();
        let mut output = String::new();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_to_string(&mut output).await.unwrap();
        assert!(child.wait().await.unwrap().success(), "{block}\n{output}");
        assert!(!output.contains("/problems/"), "{block}\n{output}");
        assert!(!output.is_empty(), "{block}");
    }
}
