//! The shape of the code: who may import whom, and how long a file may be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every source file: its module (the first part of its path), its path, its text.
fn sources() -> Vec<(String, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    assert!(paths.len() > 30);
    let read = paths.iter().map(|path| {
        let shown = path.strip_prefix(&root).unwrap().display().to_string();
        let module = shown.split(['/', '.']).next().unwrap().to_owned();
        (module, shown, fs::read_to_string(path).unwrap())
    });
    read.collect()
}

/// The roots that a file uses: crates, and `crate::module` for modules of ours. Paths within code
/// (`sqlx::query!`) count like `use` lines.
fn uses(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap();
        for (at, _) in code.match_indices("::") {
            let before = code[..at]
                .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            let root = before.unwrap();
            let preceded = code[..at - root.len()].ends_with("::");
            if root == "crate" {
                let rest = code[at + 2..].split(|c: char| !c.is_alphanumeric() && c != '_');
                found.insert(format!("crate::{}", rest.into_iter().next().unwrap()));
            } else if !preceded {
                found.insert(root.to_owned());
            }
        }
    }
    found
}

#[test]
fn the_engine_and_its_words_are_pure() {
    let pure = [
        "engine",
        "calendar",
        "click",
        "rollup",
        "page",
        "structure",
        "time",
    ];
    let outside = [
        "sqlx",
        "tokio",
        "axum",
        "hyper_util",
        "rand",
        "metrics",
        "tracing",
    ];
    for (module, path, text) in sources() {
        if !pure.contains(&module.as_str()) {
            continue;
        }
        let uses = uses(&text);
        for name in outside {
            assert!(!uses.contains(name), "src/{path} uses {name}");
        }
        for name in uses.iter().filter_map(|u| u.strip_prefix("crate::")) {
            assert!(pure.contains(&name), "src/{path} uses crate::{name}");
        }
    }
}

#[test]
fn only_http_knows_axum_and_nothing_imports_http_or_app() {
    for (module, path, text) in sources() {
        let uses = uses(&text);
        // `app` hands the router to the listener, and `main` is the program.
        if !["http", "app", "main"].contains(&module.as_str()) {
            for name in ["axum", "crate::http", "crate::app"] {
                assert!(!uses.contains(name), "src/{path} uses {name}");
            }
        }
        if module == "app" {
            assert!(!uses.contains("axum"), "src/{path} uses axum");
        }
    }
}

#[test]
fn sql_stands_with_the_tables_owners() {
    let owners = [
        "access",
        "app",
        "book",
        "checkpoint",
        "counts",
        "db",
        "frame",
        "http",
        "ingest",
        "job",
        "run",
        "runs",
        "stream",
        "visitor",
    ];
    for (module, path, text) in sources() {
        if uses(&text).contains("sqlx") {
            assert!(owners.contains(&module.as_str()), "src/{path} uses sqlx");
        }
        let writes = ["INSERT INTO", "UPDATE books", "DELETE FROM"];
        if ["http", "app", "stream", "counts", "job", "runs"].contains(&module.as_str()) {
            for statement in writes {
                assert!(!text.contains(statement), "src/{path} writes: {statement}");
            }
        }
        if module != "run" {
            for statement in ["INSERT INTO runs", "UPDATE runs"] {
                assert!(!text.contains(statement), "src/{path} writes: {statement}");
            }
        }
        if module != "checkpoint" {
            for statement in ["INSERT INTO jobs", "UPDATE jobs"] {
                assert!(!text.contains(statement), "src/{path} writes: {statement}");
            }
        }
    }
}

#[test]
fn sources_and_bots_know_no_database() {
    for (module, path, text) in sources() {
        if ["source", "bot"].contains(&module.as_str()) {
            let uses = uses(&text);
            for name in ["sqlx", "crate::book", "crate::ingest", "crate::job"] {
                assert!(!uses.contains(name), "src/{path} uses {name}");
            }
        }
    }
}

#[test]
fn the_way_of_a_click_never_turns_back() {
    // Each module may know those before it in this list, never those behind it. The lane wakes the
    // hub after a commit, so what follows a stream stands before it.
    let order = [
        "book",
        "checkpoint",
        "run",
        "frame",
        "stream",
        "ingest",
        "runs",
        "job",
        "http",
        "app",
    ];
    for (module, path, text) in sources() {
        let Some(place) = order.iter().position(|m| *m == module) else {
            continue;
        };
        let uses = uses(&text);
        for later in &order[place + 1..] {
            assert!(
                !uses.contains(&format!("crate::{later}")),
                "src/{path} uses {later}"
            );
        }
    }
}

#[test]
fn no_file_needs_a_map() {
    for (_, path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= 420, "src/{path} has {lines} lines");
    }
}

#[test]
fn the_committed_description_of_the_interface_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.yaml");
    let committed = fs::read_to_string(path).unwrap();
    assert!(
        committed == pagetide::http::openapi::yaml().unwrap(),
        "openapi.yaml is out of date: make openapi"
    );
}
