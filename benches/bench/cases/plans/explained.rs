//! The plans that `auto_explain` writes into the server's log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use crate::Error;

/// The tables that grow.
const TABLES: [&str; 4] = ["clicks", "windows", "frames", "books"];

/// What looks at all books on purpose, so that no index has to be kept on what each commit changes:
/// once a second for all that are idle, and once, when a process starts, for those that were deleted.
const OF_ALL_BOOKS: [&str; 2] = ["idle_timeout_ms", "FROM books WHERE deleted"];

/// The slowest plan of a statement, and what is bad about any of them.
#[derive(Default, Debug)]
pub(super) struct Explained {
    pub(super) tree: String,
    pub(super) offences: BTreeSet<String>,
    slowest_ms: f64,
}

/// By statement, each once.
pub(super) fn read(log: &str) -> Result<BTreeMap<String, Explained>, Error> {
    let mut all: BTreeMap<String, Explained> = BTreeMap::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((_, rest)) = line
            .split_once("duration: ")
            .filter(|_| line.ends_with("plan:"))
        else {
            continue;
        };
        let took_ms: f64 = rest.split(' ').next().unwrap_or_default().parse()?;
        let mut json = String::new();
        while let Some(more) = lines.next_if(|line| line.starts_with('\t')) {
            json += more;
        }
        let explained: Value = serde_json::from_str(&json)?;
        let words = explained["Query Text"]
            .as_str()
            .unwrap_or_default()
            .split_whitespace();
        let statement = words.collect::<Vec<_>>().join(" ");
        let plan = &explained["Plan"];
        let is_of_all = OF_ALL_BOOKS.iter().any(|part| statement.contains(part));
        let entry = all.entry(statement).or_default();
        if took_ms >= entry.slowest_ms {
            entry.slowest_ms = took_ms;
            entry.tree.clear();
            draw(plan, 1, &mut entry.tree);
        }
        if !is_of_all {
            find_offences(plan, &mut entry.offences);
        }
    }
    Ok(all)
}

fn find_offences(node: &Value, offences: &mut BTreeSet<String>) {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let relation = text("Relation Name");
    if text("Node Type") == "Seq Scan" && TABLES.contains(&relation) {
        offences.insert(format!("walks all of {relation}"));
    }
    if text("Sort Method").contains("external") {
        offences.insert("sorts on the disk".to_owned());
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        find_offences(child, offences);
    }
}

/// A node a line: what it does, with which table and index, what came of it, what it read.
fn draw(node: &Value, depth: usize, tree: &mut String) {
    let number = |name: &str| node[name].as_f64().unwrap_or_default();
    let texts = |names: &'static [&'static str]| {
        let texts = names.iter().map(|name| (*name, node[*name].as_str()));
        texts.filter_map(|(name, text)| Some((name, text?)))
    };
    tree.push_str(&"  ".repeat(depth));
    for (_, text) in texts(&["Operation", "Node Type", "Relation Name", "Index Name"]) {
        tree.push_str(text);
        tree.push(' ');
    }
    // Nothing goes wrong in writing to a string.
    let _ = write!(
        tree,
        "({} rows × {}, {} ms, {} + {} buffers)",
        number("Actual Rows"),
        number("Actual Loops"),
        number("Actual Total Time"),
        number("Shared Hit Blocks"),
        number("Shared Read Blocks"),
    );
    for (name, text) in texts(&["Index Cond", "Filter", "Sort Method"]) {
        let _ = write!(tree, " {name}: {text}");
    }
    tree.push('\n');
    for child in node["Plans"].as_array().into_iter().flatten() {
        draw(child, depth + 1, tree);
    }
}
