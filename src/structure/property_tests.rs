//! A structure against a plain reading of the list.

use proptest::prelude::*;

use super::{Chapter, Naming, Structure, check};
use crate::page;

/// Whether `name` takes `page`: by itself, or because the page lies below it.
fn takes(name: &str, page: &str, canonical: bool) -> bool {
    let folder = name.strip_suffix("/*");
    let below = |folder: &str| folder.is_empty() || page.starts_with(&format!("{folder}/"));
    name == page || (folder.is_some_and(below) && !takes_along(name, page, canonical))
}

/// Whether `page` is what `name` is the folder of, which it takes only if nobody names it.
fn takes_along(name: &str, page: &str, canonical: bool) -> bool {
    let folder = name.strip_suffix("/*");
    let itself = |folder: &str| page == if folder.is_empty() { "/" } else { folder };
    canonical && folder.is_some_and(itself)
}

/// The chapters of which one name is of this kind.
fn with(chapters: &[Chapter], is: impl Fn(&str) -> bool) -> Vec<&str> {
    let has = |chapter: &&Chapter| chapter.pages.iter().any(|name| is(name));
    chapters.iter().filter(has).map(|c| c.id.as_str()).collect()
}

fn chapters() -> impl Strategy<Value = Vec<Chapter>> {
    let name = "(/?[ab.]{0,2}){1,3}(/\\*|/|\\.html)?|/\\*|/|[ab]";
    let pages = prop::collection::vec(name.prop_filter("a name", |n| !n.is_empty()), 0..4);
    prop::collection::vec(pages, 0..4).prop_map(|all| {
        let chapter = |(n, pages): (usize, Vec<String>)| Chapter {
            id: n.to_string(),
            title: "T".to_owned(),
            pages,
        };
        all.into_iter().enumerate().map(chapter).collect()
    })
}

/// What the pages of clicks are called where names are called so.
fn called(page: &str, naming: Naming<'_>) -> String {
    if naming.canonical {
        page::canonical(page, naming.base_path)
    } else {
        page.to_owned()
    }
}

proptest! {
    #[test]
    fn a_page_is_where_a_plain_reading_finds_it(
        sent in chapters(),
        pages in prop::collection::vec("(/?[ab.]{0,2}){1,4}/?", 1..20),
        canonical: bool,
    ) {
        let naming = Naming { canonical, base_path: "" };
        let names = || sent.iter().flat_map(|c| &c.pages);
        let named: Vec<Chapter> = sent.iter().map(|chapter| Chapter {
            pages: chapter.pages.iter().map(|page| called(page, naming)).collect(),
            ..chapter.clone()
        }).collect();
        let structure = Structure::new(&named, canonical);
        let mut in_two = Vec::new();
        let near = names().map(|name| name.trim_end_matches('*').to_owned());
        let below = names().map(|name| name.replace('*', "zz/z"));
        for page in pages.iter().cloned().chain(near).chain(below) {
            let page = called(&page, naming);
            let mut all = with(&named, |name| takes(name, &page, canonical));
            if all.is_empty() {
                all = with(&named, |name| takes_along(name, &page, canonical));
            }
            match *all {
                [] => prop_assert_eq!(structure.chapter_of(&page), "", "{}", page),
                [one] => prop_assert_eq!(structure.chapter_of(&page), one, "{}", page),
                _ => in_two.push(page),
            }
        }
        match check(&sent, naming) {
            Err(errors) => prop_assert!(!in_two.is_empty(), "{:?}", errors),
            Ok(checked) => {
                prop_assert_eq!(in_two, Vec::<String>::new());
                prop_assert_eq!(Structure::new(&checked, canonical), structure);
                // What was named once is named the same again.
                prop_assert_eq!(check(&checked, naming), Ok(checked));
            }
        }
    }
}
