//! The demo's book: its pages in order, and how it is counted.

use serde_json::{Value, json};

/// Its slug.
pub(crate) const SLUG: &str = "how-pagetide-counts";

/// Its title.
pub(crate) const TITLE: &str = "How Pagetide counts";

/// Where its pages are on the stage.
pub(crate) const BASE_PATH: &str = "/book";

/// The length of the windows that the end of the show adds up, in milliseconds: short, so that bars
/// come and are corrected while somebody looks.
pub(crate) const WINDOW_MS: i64 = 5000;

/// The rollup that the end of the show adds up: its place in the list of [`fields`].
pub(crate) const ADDED_UP: i16 = 0;

/// A page of the book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    /// Its name below [`BASE_PATH`], and that of its file; the first has none in its address.
    pub(crate) name: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
}

impl Page {
    /// What it is counted as.
    pub(crate) fn counted_as(self) -> String {
        format!("/{}", self.address())
    }

    /// What stands behind `/book/` in its address.
    pub(crate) fn address(self) -> &'static str {
        if self == PAGES[0] { "" } else { self.name }
    }
}

const fn page(name: &'static str, title: &'static str) -> Page {
    Page { name, title }
}

/// Its pages, in the order in which they are read; the first is the contents.
pub(crate) const PAGES: [Page; 7] = [
    page("contents", "How Pagetide counts"),
    page("clicks", "What a click is"),
    page("windows", "Windows"),
    page("watermark", "How late it is"),
    page("late", "Those who come late"),
    page("acknowledged", "What an answer is worth"),
    page("stream", "The stream"),
];

/// Its chapters, as the interface takes them.
pub(crate) fn chapters() -> Value {
    let chapter = |id: &str, title: &str, pages: &[Page]| {
        let pages: Vec<String> = pages.iter().map(|page| page.counted_as()).collect();
        json!({"id": id, "title": title, "pages": pages})
    };
    json!([
        chapter("contents", "Contents", &PAGES[..1]),
        chapter("counting", "Counting", &PAGES[1..3]),
        chapter("time", "Time", &PAGES[3..5]),
        chapter("trust", "Trust", &PAGES[5..]),
    ])
}

/// The book, as the interface takes it. Late clicks are taken for ten minutes, which is longer than
/// anything that the stage's buttons do. Whoever looks at the stage counts, a program too.
pub(crate) fn fields() -> Value {
    let tumbling = json!({"kind": "tumbling", "size_ms": WINDOW_MS});
    let sliding = json!({"kind": "sliding", "size_ms": 60_000, "slide_ms": 10_000});
    json!({
        "title": TITLE,
        "rollups": [
            {"name": "live", "group_by": "page", "window": tumbling, "aggregate": "count"},
            {"name": "chapters", "group_by": "chapter", "window": tumbling, "aggregate": "count"},
            {"name": "referrers", "group_by": "referrer", "window": tumbling, "aggregate": "count"},
            {"name": "readers", "group_by": "book", "window": sliding, "aggregate": "distinct"},
        ],
        "settings": {
            "delay_ms": 1000, "lateness_ms": 600_000, "idle_timeout_ms": 5000,
            "base_path": BASE_PATH, "filter_bots": false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_are_the_root() {
        assert_eq!(PAGES[0].counted_as(), "/");
        assert_eq!(PAGES[1].counted_as(), "/clicks");
    }

    #[test]
    fn every_page_is_in_a_chapter() {
        let chapters = chapters();
        let pages = chapters.as_array().unwrap().iter();
        let pages = pages.map(|chapter| chapter["pages"].as_array().unwrap().len());
        assert_eq!(pages.sum::<usize>(), PAGES.len());
    }
}
