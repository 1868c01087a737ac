//! Prepared requests.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::clicks::{Clicks, PAGES};

/// How many different bodies there are of one click each.
const SINGLES: usize = 10_000;

/// How many of many clicks each.
const BATCHES: usize = 64;

/// What a load sends, ready to be written: any head goes with any body.
pub(crate) struct Mix {
    /// Request line and headers, but for the last.
    heads: Vec<Vec<u8>>,
    /// The header that says how long the body is, and the body.
    bodies: Vec<Vec<u8>>,
    /// In each body.
    pub(crate) clicks: usize,
}

impl Mix {
    /// Requests of `clicks` clicks each on [`PAGES`] pages of these books; the same ones for the same
    /// seed.
    pub(crate) fn new(seed: u64, token: &str, books: &[String], clicks: usize) -> Self {
        Self::on_pages(PAGES, seed, token, books, clicks)
    }

    /// On fewer or more pages.
    pub(crate) fn on_pages(
        pages: u32,
        seed: u64,
        token: &str,
        books: &[String],
        clicks: usize,
    ) -> Self {
        let heads = books.iter().map(|book| {
            let head = format!(
                "POST /v1/books/{book}/clicks HTTP/1.1\r\nhost: bench\r\n\
                 authorization: Bearer {token}\r\ncontent-type: application/json\r\n"
            );
            head.into_bytes()
        });
        let mut drawn = Clicks::seeded(seed, pages);
        let count = if clicks == 1 { SINGLES } else { BATCHES };
        let bodies = (0..count).map(|_| {
            let body = match clicks {
                1 => drawn.one(),
                many => drawn.many(many),
            };
            format!("content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
        });
        Self {
            heads: heads.collect(),
            bodies: bodies.collect(),
            clicks,
        }
    }

    /// One of them, in its two parts.
    pub(crate) fn draw(&self, rng: &mut StdRng) -> [&[u8]; 2] {
        let head = self.heads.choose(rng).map_or(&[][..], Vec::as_slice);
        let body = self.bodies.choose(rng).map_or(&[][..], Vec::as_slice);
        [head, body]
    }
}
