//! Clicks as a back end sends them, drawn from a seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Pages of a book.
pub(crate) const PAGES: u32 = 200;

/// How many different readers there are.
const READERS: u32 = 20_000;

/// How many different sites they come from.
const SITES: u32 = 20;

/// Draws clicks: a page, a reader, and for one in four where that reader came from; no id, no time.
pub(crate) struct Clicks {
    rng: StdRng,
    pages: u32,
}

impl Clicks {
    /// On so many pages; the same ones for the same seed.
    pub(crate) fn seeded(seed: u64, pages: u32) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            pages,
        }
    }

    /// The next, as JSON.
    pub(crate) fn one(&mut self) -> String {
        let page = self.rng.random_range(0..self.pages);
        let reader = self.rng.random_range(0..READERS);
        let mut json =
            format!(r#"{{"page":"/guide/chapter-{page:03}.html","visitor":"r{reader:05}""#);
        if self.rng.random_ratio(1, 4) {
            let site = self.rng.random_range(0..SITES);
            return format!(r#"{json},"referrer":"https://site-{site:02}.example/a/list"}}"#);
        }
        json.push('}');
        json
    }

    /// The next `count`, as an array.
    pub(crate) fn many(&mut self, count: usize) -> String {
        let all: Vec<String> = (0..count).map(|_| self.one()).collect();
        format!("[{}]", all.join(","))
    }
}
