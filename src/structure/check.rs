//! What a structure may be.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::{Chapter, Folders, Name, page_of};
use crate::page;

/// Most bytes of a structure as JSON: a frame of the stream carries it whole.
pub const MAX_STRUCTURE_BYTES: usize = 240 * 1024;

/// Most mistakes that are told at once.
const MAX_ERRORS: usize = 100;

/// What is wrong with a list of chapters: which chapter, which field, and why.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("{}: {detail}", field.unwrap_or("the structure"))]
pub struct ChapterError {
    /// Place in the list; `None`: the list as a whole.
    pub index: Option<usize>,
    /// Name of the field.
    pub field: Option<&'static str>,
    /// A short word for programs.
    pub code: &'static str,
    /// What it has to be.
    pub detail: String,
}

/// How the pages of a book are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Naming<'a> {
    /// Whether they are made canonical.
    pub canonical: bool,
    /// The path below which all of them stand.
    pub base_path: &'a str,
}

/// The chapters with the names that clicks' pages have, each once.
///
/// # Errors
/// Everything that is wrong, not only the first, up to a hundred things.
pub fn check(sent: &[Chapter], naming: Naming<'_>) -> Result<Vec<Chapter>, Vec<ChapterError>> {
    let mut errors = Vec::new();
    check_ids_and_titles(sent, &mut errors);
    let chapters: Vec<Chapter> = sent
        .iter()
        .enumerate()
        .map(|(index, chapter)| Chapter {
            pages: named_pages(index, &chapter.pages, naming, &mut errors),
            ..chapter.clone()
        })
        .collect();
    check_overlaps(&chapters, naming.canonical, &mut errors);
    if serde_json::to_vec(&chapters).map_or(usize::MAX, |json| json.len()) > MAX_STRUCTURE_BYTES {
        errors.push(ChapterError {
            index: None,
            field: None,
            code: "too_large",
            detail: format!(
                "a structure has at most {MAX_STRUCTURE_BYTES} bytes as JSON, its pages being \
                 canonical: a frame of the stream carries it whole. Names that end in /* make it \
                 shorter"
            ),
        });
    }
    if errors.is_empty() {
        return Ok(chapters);
    }
    errors.sort_unstable();
    errors.truncate(MAX_ERRORS);
    Err(errors)
}

fn wrong(index: usize, field: &'static str, code: &'static str, detail: String) -> ChapterError {
    ChapterError {
        index: Some(index),
        field: Some(field),
        code,
        detail,
    }
}

fn check_ids_and_titles(chapters: &[Chapter], errors: &mut Vec<ChapterError>) {
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, Chapter { id, title, .. }) in chapters.iter().enumerate() {
        if !(1..=200).contains(&id.len()) || id.chars().any(char::is_control) {
            let detail = "1 to 200 bytes, none of them a control character";
            errors.push(wrong(index, "id", "bad_id", detail.to_owned()));
        } else {
            match places.entry(id) {
                Entry::Vacant(free) => drop(free.insert(index)),
                Entry::Occupied(first) => {
                    let detail = format!("the chapter at index {} has it already", first.get());
                    errors.push(wrong(index, "id", "id_taken", detail));
                }
            }
        }
        if !(1..=200).contains(&title.chars().count()) || title.chars().any(char::is_control) {
            let detail = "1 to 200 characters, none of them a control character";
            errors.push(wrong(index, "title", "bad_title", detail.to_owned()));
        }
    }
}

/// The pages of a chapter as clicks name them; what cannot be the name of one is left out.
fn named_pages(
    index: usize,
    sent: &[String],
    naming: Naming<'_>,
    errors: &mut Vec<ChapterError>,
) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut pages = Vec::with_capacity(sent.len());
    for (place, page) in sent.iter().enumerate() {
        // Nobody reads the rest.
        if errors.len() >= MAX_ERRORS {
            break;
        }
        // A name in `/*` needs no rule of its own: the star is a character of a path like others.
        match page::named(page, naming.canonical, naming.base_path) {
            Ok(page) if seen.insert(page.clone()) => pages.push(page),
            Ok(_) => {}
            Err(why) => {
                let detail = format!("the page at index {place}: {why}");
                errors.push(wrong(index, "pages", "bad_page", detail));
            }
        }
    }
    pages
}

/// No page may be in two chapters.
fn check_overlaps(chapters: &[Chapter], canonical: bool, errors: &mut Vec<ChapterError>) {
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut folders = Vec::new();
    for (index, chapter) in chapters.iter().enumerate() {
        for page in &chapter.pages {
            match Name::of(page) {
                Name::Folder(folder) => folders.push((folder.to_owned(), index)),
                Name::Page(name) => {
                    let other = *first.entry(name).or_insert(index);
                    if other != index {
                        errors.push(taken(index, name, "is", other));
                    }
                }
            }
        }
    }
    let (folders, nested) = Folders::new(folders);
    for inner in nested.iter().filter(|n| n.place != n.outer) {
        let name = match inner.folder.as_str() {
            "" => "/*".to_owned(),
            folder => format!("{folder}*"),
        };
        errors.push(taken(
            inner.place,
            &name,
            "lies within a folder that is",
            inner.outer,
        ));
    }
    for (name, index) in first {
        let Some((folder, other)) = folders.holding(name) else {
            continue;
        };
        let its_own_page = canonical && page_of(folder) == name;
        if *other != index && !its_own_page {
            errors.push(taken(index, name, "lies in a folder that is", *other));
        }
    }
}

fn taken(index: usize, page: &str, how: &str, other: usize) -> ChapterError {
    let mut shown: String = page.chars().take(100).collect();
    if shown.len() < page.len() {
        shown.push('…');
    }
    let detail = format!("{shown} {how} in the chapter at index {other}; a page is in one at most");
    wrong(index, "pages", "page_taken", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANONICAL: Naming<'_> = Naming {
        canonical: true,
        base_path: "",
    };
    const AS_SENT: Naming<'_> = Naming {
        canonical: false,
        base_path: "",
    };

    fn chapter(id: &str, pages: &[&str]) -> Chapter {
        Chapter {
            id: id.to_owned(),
            title: format!("Title of {id}"),
            pages: pages.iter().map(|page| (*page).to_owned()).collect(),
        }
    }

    /// The pages of some chapters, how they are named, and the mistakes in them.
    type Case<'a> = (
        &'a [&'a [&'a str]],
        Naming<'a>,
        Vec<(Option<usize>, &'a str)>,
    );

    fn list(chapters: &[&[&str]]) -> Vec<Chapter> {
        let ids = (0..).map(|n: usize| n.to_string());
        ids.zip(chapters).map(|(id, p)| chapter(&id, p)).collect()
    }

    fn errors(sent: &[Chapter], naming: Naming<'_>) -> Vec<(Option<usize>, &'static str)> {
        let errors = check(sent, naming).err().unwrap_or_default();
        errors.iter().map(|e| (e.index, e.code)).collect()
    }

    #[test]
    fn pages_get_the_names_that_clicks_have() {
        let sent = [chapter(
            "a",
            &[
                "https://example.org/docs/ch01.html?x#y",
                "/docs/ch01",
                "/docs/ch02/*",
                "/docs/ch%30%33//*",
                "/docs/é/",
                "/docs/*/x/../../y/%2A",
            ],
        )];
        let below = Naming {
            base_path: "/docs",
            ..CANONICAL
        };
        let named = check(&sent, below).unwrap();
        let pages = ["/ch01", "/ch02/*", "/ch03/*", "/%C3%A9", "/y/%2A"];
        assert_eq!(named[0].pages, pages);
        let all = check(&list(&[&["/docs/*"]]), below).unwrap();
        assert_eq!(all[0].pages, ["/*"]);
        let kept = check(&list(&[&["/a/", "/a", "/a.html"]]), AS_SENT).unwrap();
        assert_eq!(kept[0].pages, ["/a/", "/a", "/a.html"]);
    }

    #[test]
    fn everything_that_is_wrong_is_told() {
        let long = "x".repeat(201);
        let mut sent = [
            chapter("", &[]),
            chapter(&long, &["", "/ok", "/\u{7}", &"/x".repeat(1025)]),
            chapter("a\u{85}", &["/é".repeat(400).as_str()]),
            chapter("same", &["/ok.html"]),
            chapter("same", &[]),
        ];
        sent[0].title = long;
        sent[1].title = String::new();
        sent[2].title = "\n".to_owned();
        let expected = [
            (Some(0), "bad_id"),
            (Some(0), "bad_title"),
            (Some(1), "bad_id"),
            (Some(1), "bad_page"),
            (Some(1), "bad_page"),
            (Some(1), "bad_page"),
            (Some(1), "bad_title"),
            (Some(2), "bad_id"),
            (Some(2), "bad_page"),
            (Some(2), "bad_title"),
            (Some(3), "page_taken"),
            (Some(4), "id_taken"),
        ];
        assert_eq!(errors(&sent, CANONICAL), expected);
        let ends = [chapter(&"é".repeat(100), &[]), chapter("b", &["/"])];
        assert_eq!(check(&ends, CANONICAL), Ok(ends.to_vec()));
        assert_eq!(check(&[], CANONICAL), Ok(Vec::new()));
        let many = vec![""; 5000];
        assert_eq!(errors(&list(&[&many]), CANONICAL).len(), MAX_ERRORS);
    }

    #[test]
    fn a_page_is_in_one_chapter_at_most() {
        let taken = |at| vec![(Some(at), "page_taken")];
        let cases: Vec<Case<'_>> = vec![
            (&[&["/a"], &["/a"]], AS_SENT, taken(1)),
            (&[&["/a"], &["/a/"]], AS_SENT, vec![]),
            (&[&["/a"], &["/a/"]], CANONICAL, taken(1)),
            (&[&["/a/b"], &["/a/*"]], CANONICAL, taken(0)),
            (&[&["/a/*"], &["/a/b"]], CANONICAL, taken(1)),
            (&[&["/a/*"], &["/a"]], CANONICAL, vec![]),
            (&[&["/a/*"], &["/a"]], AS_SENT, vec![]),
            (&[&["/a/*"], &["/a/"]], CANONICAL, vec![]),
            (&[&["/a/*"], &["/a/"]], AS_SENT, taken(1)),
            (&[&["/a/*"], &["/a/b/*"]], CANONICAL, taken(1)),
            (&[&["/a/b/*"], &["/a/*"]], CANONICAL, taken(0)),
            (&[&["/a/*"], &["/a/*"]], CANONICAL, taken(1)),
            (&[&["/*"], &["x"]], CANONICAL, taken(1)),
            (&[&["/*"], &["/"]], CANONICAL, vec![]),
            (&[&["/*"], &["/"]], AS_SENT, taken(1)),
        ];
        for (chapters, naming, expected) in cases {
            assert_eq!(errors(&list(chapters), naming), expected, "{chapters:?}");
        }
        let harmless: &[&[&str]] = &[&["/a", "/a/*", "/a/b/*", "/a/b/c", "/a"], &["/ab/*"]];
        assert_eq!(errors(&list(harmless), CANONICAL), []);
    }

    #[test]
    fn a_structure_fits_into_a_frame() {
        let pages: Vec<String> = (0..1000).map(|n| format!("/{n:0>238}")).collect();
        let mut sent = vec![Chapter {
            pages,
            ..chapter("a", &[])
        }];
        let bytes = serde_json::to_vec(&sent).unwrap().len();
        let room = MAX_STRUCTURE_BYTES - bytes;
        assert!(room < 4096, "{room}");
        sent[0].pages.push("x".repeat(room / 2));
        sent[0].pages.push("y".repeat(room - room / 2 - 6));
        assert_eq!(
            serde_json::to_vec(&sent).unwrap().len(),
            MAX_STRUCTURE_BYTES
        );
        assert!(check(&sent, CANONICAL).is_ok());
        sent[0].pages[0].push('z');
        assert_eq!(errors(&sent, CANONICAL), [(None, "too_large")]);
    }
}
