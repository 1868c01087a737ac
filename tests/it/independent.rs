//! What scripts that share no code with the program say of logs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Start of an hour, canonical page: how many.
pub(crate) type Hours = BTreeMap<(i64, String), i64>;

/// What a program says, which must have nothing to complain about.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaint.is_empty(),
        "{command:?}: {complaint}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A file of the folder `tests`.
pub(crate) fn file(name: &str) -> String {
    format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// All requests of a log by hour and canonical page, counted by `tests/independent_count.py`.
pub(crate) fn count(log: &str) -> Hours {
    let output = run(Command::new("python3").args([&file("independent_count.py"), log]));
    let counts = output.lines().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let (start, count) = (fields[0].parse().unwrap(), fields[2].parse().unwrap());
        ((start, fields[1].to_owned()), count)
    });
    counts.collect()
}

/// What is to count of an access log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) methods: &'a str,
    pub(crate) errors: bool,
    pub(crate) assets: bool,
    pub(crate) bots: bool,
}

/// Page views.
pub(crate) const PAGE_VIEWS: Rules<'_> = Rules {
    methods: "GET",
    errors: false,
    assets: false,
    bots: false,
};

/// Every request of `tests/data/apache_combined.log`.
pub(crate) const ALL_REQUESTS: Rules<'_> = Rules {
    methods: "GET,HEAD,POST,OPTIONS",
    errors: true,
    assets: true,
    bots: true,
};

/// What becomes of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It counts, in this hour and for this page.
    View(i64, String),
    /// The rule leaves it out.
    Skipped(&'static str),
    /// It cannot be read.
    Rejected,
}

/// The rules, in the order in which they are asked.
pub(crate) const RULES: [&str; 4] = ["methods", "errors", "assets", "bots"];

/// What becomes of each line of a log in the combined format, by `tests/independent_views.py`. Which
/// user agents are bots is all that the program says itself.
pub(crate) fn judge(log: &Path, rules: Rules<'_>) -> Vec<Fate> {
    let mut script = Command::new("python3");
    script.arg(file("independent_views.py")).arg(log);
    script.args(["--methods", rules.methods]);
    for (flag, wanted) in [("--errors", rules.errors), ("--assets", rules.assets)] {
        if wanted {
            script.arg(flag);
        }
    }
    let said = run(&mut script);
    let fate = |line: &str| {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        match fields[..] {
            ["rejected"] => Fate::Rejected,
            ["view", _, _, agent] if !rules.bots && pagetide::bot::is_bot(agent) => {
                Fate::Skipped("bots")
            }
            ["view", hour, page, _] => Fate::View(hour.parse().unwrap(), page.to_owned()),
            [rule, ..] => Fate::Skipped(RULES.iter().find(|known| **known == rule).unwrap()),
            [] => unreachable!("a line has a first field"),
        }
    };
    said.lines().map(fate).collect()
}

/// What comes of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: Hours,
    pub(crate) skipped: BTreeMap<&'static str, i64>,
    /// Numbers of the lines, from 1.
    pub(crate) rejected: Vec<i64>,
}

impl Tally {
    pub(crate) fn of(fates: &[Fate]) -> Self {
        let mut tally = Self {
            skipped: RULES.map(|rule| (rule, 0)).into(),
            ..Self::default()
        };
        for (number, fate) in (1..).zip(fates) {
            match fate {
                Fate::View(hour, page) => {
                    *tally.counts.entry((*hour, page.clone())).or_default() += 1;
                }
                Fate::Skipped(rule) => *tally.skipped.entry(rule).or_default() += 1,
                Fate::Rejected => tally.rejected.push(number),
            }
        }
        tally
    }

    /// What comes of so many copies of the log, one behind the other, of which each line can be read.
    pub(crate) fn times(mut self, copies: i64) -> Self {
        assert!(self.rejected.is_empty());
        for lines in self.counts.values_mut().chain(self.skipped.values_mut()) {
            *lines *= copies;
        }
        self
    }

    /// How many lines count.
    pub(crate) fn views(&self) -> i64 {
        self.counts.values().sum()
    }
}
