//! A running demo, and what belongs to it on this machine.

use std::fs;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::embedded::{Scratch, runs};
use crate::harness::{Server, until};

/// A running `pagetide demo`, in a folder of its own.
pub(super) struct Demo {
    process: Server,
    /// What is left here at the end was left behind.
    pub(super) place: Scratch,
}

impl Demo {
    /// Starts one that opens no browser, and waits until it can be looked at.
    pub(super) async fn start(arguments: &[&str]) -> Self {
        let place = Scratch::new();
        let mut command = Server::command();
        command.args(["demo", "--no-open", "--listen", "127.0.0.1:0"]);
        command.args(arguments).env("TMPDIR", &place.0);
        let process = Server::spawn(command).await;
        Self { process, place }
    }

    /// Where its stage is.
    pub(super) fn stage(&self) -> &str {
        &self.process.url
    }

    /// The folder in which its server and Postgres keep what they keep.
    pub(super) fn data(&self) -> PathBuf {
        let mut folders = fs::read_dir(&self.place.0).unwrap().map(Result::unwrap);
        let folder = folders.find(|f| {
            f.file_name()
                .to_string_lossy()
                .starts_with("pagetide-demo-")
        });
        folder.unwrap().path().join("data")
    }

    /// The server and its Postgres: everything that the demo has started, and what that has.
    pub(super) fn children(&self) -> Vec<u32> {
        let parents = parents();
        let mut found = vec![self.process.pid()];
        let mut at = 0;
        while at < found.len() {
            let children = parents.iter().filter(|(_, parent)| *parent == found[at]);
            found.extend(children.map(|(child, _)| *child).collect::<Vec<_>>());
            at += 1;
        }
        found.split_off(1)
    }

    /// Sends a signal, such as `INT`, and waits for the end of the demo itself.
    pub(super) async fn end(self, signal: &str) -> (ExitStatus, Scratch) {
        self.process.signal(signal);
        (self.process.ended().await, self.place)
    }
}

/// Waits until none of these processes is left.
pub(super) async fn all_gone(processes: &[u32]) {
    until("they are gone", async || {
        (!processes.iter().any(|pid| runs(*pid))).then_some(())
    })
    .await;
}

/// Every process of this machine, with its parent.
fn parents() -> Vec<(u32, u32)> {
    let listed = std::process::Command::new("ps")
        .args(["-A", "-o", "pid=,ppid="])
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let pairs = listed.lines().map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    });
    pairs.collect()
}
