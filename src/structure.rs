//! The structure of a book: its chapters, in order, and which pages each has.

use std::collections::HashMap;

/// The chapters of a book, ready to be looked up in.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Structure {
    chapter_of_page: HashMap<String, String>,
}

impl Structure {
    /// The id of the chapter that `page` is in; `""` if it is in none.
    #[must_use]
    pub fn chapter_of(&self, page: &str) -> &str {
        self.chapter_of_page.get(page).map_or("", String::as_str)
    }
}
