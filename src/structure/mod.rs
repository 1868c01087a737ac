//! The structure of a book: its chapters, in order, and which pages each has.
//!
//! [`Chapter`] is what a client writes; [`check()`] says what is wrong with a list of them and gives
//! their pages the names that clicks have; [`Structure`] is what clicks are looked up in.

mod check;
#[cfg(test)]
mod property_tests;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use check::{ChapterError, MAX_STRUCTURE_BYTES, Naming, check};

/// A chapter of a book.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Chapter {
    /// 1 to 200 bytes, unique within the book; the group of rollups by chapter.
    #[schema(example = "ch02")]
    pub id: String,
    /// For people, 1 to 200 characters.
    #[schema(example = "The second chapter")]
    pub title: String,
    /// Pages, made canonical as those of clicks are; a name that ends in `/*` takes all below it.
    #[schema(example = json!(["/ch02/*"]))]
    pub pages: Vec<String>,
}

/// The chapters of a book, ready to be looked up in.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Structure {
    /// The chapters' ids, in order.
    ids: Vec<String>,
    /// The chapter of each page that has a name of its own, by place.
    named: HashMap<String, usize>,
    folders: Folders,
}

impl Structure {
    /// The structure of `chapters`, whose names are as [`check()`] gives them. In a book with
    /// `canonical` pages the page of a folder itself, `/ch02`, has lost its slash; it is taken with
    /// what is below it, unless a chapter names it.
    ///
    /// Any list makes one: where a page is in two chapters, which `check` refuses, it is in that
    /// which names it, or in that of the folder that holds the other, or in the first of them.
    #[must_use]
    pub fn new(chapters: &[Chapter], canonical: bool) -> Self {
        let mut named: HashMap<String, usize> = HashMap::new();
        let mut folders = Vec::new();
        for (place, chapter) in chapters.iter().enumerate() {
            for page in &chapter.pages {
                match Name::of(page) {
                    Name::Page(page) => {
                        named.entry(page.to_owned()).or_insert(place);
                    }
                    Name::Folder(folder) => folders.push((folder.to_owned(), place)),
                }
            }
        }
        let (folders, _) = Folders::new(folders);
        if canonical {
            for (folder, place) in &folders.sorted {
                named.entry(page_of(folder).to_owned()).or_insert(*place);
            }
        }
        Self {
            ids: chapters.iter().map(|chapter| chapter.id.clone()).collect(),
            named,
            folders,
        }
    }

    /// The id of the chapter that `page` is in; `""` if it is in none.
    #[must_use]
    pub fn chapter_of(&self, page: &str) -> &str {
        let named = self.named.get(page).copied();
        let place = named.or_else(|| self.folders.holding(page).map(|(_, place)| *place));
        place.map_or("", |place| &self.ids[place])
    }

    /// Roughly how many bytes of memory it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        // A string, a number, and the slack of the table that holds them.
        const ENTRY: usize = 64;
        let texts = self.ids.iter().chain(self.named.keys());
        let texts = texts.chain(self.folders.sorted.iter().map(|(folder, _)| folder));
        texts.map(|text| text.len() + ENTRY).sum::<usize>() + ENTRY
    }
}

/// What a name among the pages of a chapter stands for.
enum Name<'a> {
    /// One page.
    Page(&'a str),
    /// All pages that begin with this: it ends in a slash, or is empty and takes everything.
    Folder(&'a str),
}

impl<'a> Name<'a> {
    fn of(page: &'a str) -> Self {
        match page.strip_suffix('*') {
            Some("/") => Self::Folder(""),
            Some(folder) if folder.ends_with('/') => Self::Folder(folder),
            _ => Self::Page(page),
        }
    }
}

/// The page that a folder itself is, where pages are canonical.
fn page_of(folder: &str) -> &str {
    match folder.strip_suffix('/') {
        Some(page) => page,
        None => "/",
    }
}

/// Folders, none of which lies within another. Whatever sorts between a folder and a page below it
/// would lie within that folder; so the last one that does not sort behind a page is the only one
/// that can hold it, and one search among the sorted finds it, however deep the page lies.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Folders {
    /// Each with the place of its chapter.
    sorted: Vec<(String, usize)>,
}

/// A folder that lies within another, or is the same.
struct Nested {
    folder: String,
    place: usize,
    /// The place of the outer one's chapter.
    outer: usize,
}

impl Folders {
    /// Those of `all` that lie within no other, and those that do.
    fn new(mut all: Vec<(String, usize)>) -> (Self, Vec<Nested>) {
        all.sort_unstable();
        let mut sorted: Vec<(String, usize)> = Vec::with_capacity(all.len());
        let mut nested = Vec::new();
        for (folder, place) in all {
            match sorted.last() {
                Some((last, outer)) if folder.starts_with(last) => nested.push(Nested {
                    folder,
                    place,
                    outer: *outer,
                }),
                _ => sorted.push((folder, place)),
            }
        }
        (Self { sorted }, nested)
    }

    /// The folder that `page` lies in, and the place of its chapter.
    fn holding(&self, page: &str) -> Option<&(String, usize)> {
        let behind = self
            .sorted
            .partition_point(|(folder, _)| folder.as_str() <= page);
        let last = self.sorted[..behind].last()?;
        page.starts_with(&last.0).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structure(chapters: &[(&str, &[&str])], canonical: bool) -> Structure {
        let chapters = chapters.iter().map(|(id, pages)| Chapter {
            id: (*id).to_owned(),
            title: "T".to_owned(),
            pages: pages.iter().map(|page| (*page).to_owned()).collect(),
        });
        Structure::new(&chapters.collect::<Vec<_>>(), canonical)
    }

    #[test]
    fn pages_are_found_by_name_and_by_folder() {
        let book = structure(
            &[
                ("one", &["/ch01", "/ch01/a/b"]),
                ("two", &["/ch02/*", "/ch02/x/*"]),
                ("three", &["/ch03/*"]),
                ("intro", &["/ch03"]),
            ],
            true,
        );
        let cases = [
            ("/ch01", "one"),
            ("/ch01/a/b", "one"),
            ("/ch01/a", ""),
            ("/ch02", "two"),
            ("/ch02/a", "two"),
            ("/ch02/x/y/z", "two"),
            ("/ch02-a", ""),
            ("/ch02.5/a", ""),
            ("/ch020", ""),
            ("/ch03", "intro"),
            ("/ch03/a", "three"),
            ("/", ""),
            ("ch01", ""),
            ("", ""),
        ];
        for (page, chapter) in cases {
            assert_eq!(book.chapter_of(page), chapter, "{page}");
        }
        assert_eq!(Structure::default().chapter_of("/"), "");
    }

    #[test]
    fn a_folder_takes_its_own_page_only_where_that_has_lost_its_slash() {
        let book = structure(&[("two", &["/ch02/*"])], false);
        assert_eq!(book.chapter_of("/ch02/"), "two");
        assert_eq!(book.chapter_of("/ch02"), "");
    }

    #[test]
    fn slash_star_takes_everything() {
        for canonical in [true, false] {
            let book = structure(&[("all", &["/*", "/a/*", "x"])], canonical);
            for page in ["/", "/a", "/a/b", "a", "x"] {
                assert_eq!(book.chapter_of(page), "all", "{page}");
            }
        }
        let book = structure(&[("home", &["/"]), ("all", &["/*"])], true);
        assert_eq!(book.chapter_of("/"), "home");
        assert_eq!(book.chapter_of("/a"), "all");
    }

    #[test]
    fn a_star_that_does_not_stand_alone_is_a_letter() {
        let book = structure(&[("one", &["*", "/a*", "/b/*c"])], true);
        for page in ["/", "/ab", "/b/c", "/b/dc"] {
            assert_eq!(book.chapter_of(page), "", "{page}");
        }
        assert_eq!(book.chapter_of("/b/*c"), "one");
    }
}
