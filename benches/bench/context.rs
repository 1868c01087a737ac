//! How long to measure, and where.

use std::path::PathBuf;
use std::time::Duration;

use crate::Error;

/// What every case is given.
pub(crate) struct Context {
    /// Short runs, few of them, and small tables.
    pub(crate) quick: bool,
    /// How often a figure is measured.
    pub(crate) runs: usize,
    /// How long a run takes.
    pub(crate) run: Duration,
    /// How long a case runs before it is measured.
    pub(crate) warm_up: Duration,
    /// On the disk; each case makes folders of its own in it.
    pub(crate) folder: PathBuf,
}

impl Context {
    /// Five runs of ten seconds; or, quickly, three of two.
    pub(crate) fn new(quick: bool) -> Result<Self, Error> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/bench");
        std::fs::create_dir_all(&folder)?;
        let (runs, run, warm_up) = if quick { (3, 2, 1) } else { (5, 10, 5) };
        Ok(Self {
            quick,
            runs,
            run: Duration::from_secs(run),
            warm_up: Duration::from_secs(warm_up),
            folder,
        })
    }
}
