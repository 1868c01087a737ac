//! `/beacon.js`: the script that tells when a book's pages are read (`src/dashboard/beacon.js`), and how
//! it is made small enough to be served.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::Router;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::security::CROSS_ORIGIN_RESOURCE_POLICY;
use super::state::AppState;
use crate::config::beacon::BeaconPath;

/// As it is written, for people.
const SOURCE: &str = include_str!("../dashboard/beacon.js");

/// As it is served, and its entity tag.
static SERVED: LazyLock<(Bytes, HeaderValue)> = LazyLock::new(|| {
    let script = squeezed(SOURCE);
    let tag = URL_SAFE_NO_PAD.encode(&Sha256::digest(&script)[..12]);
    // Such letters within quotes always make a value.
    let tag = HeaderValue::try_from(format!("\"{tag}\""));
    let tag = tag.unwrap_or(HeaderValue::from_static("\"\""));
    (script.into(), tag)
});

/// The script at its usual address, for the tags that are out there, and at `path`.
pub(super) fn routes(path: &BeaconPath) -> Router<AppState> {
    let usual = Router::new().route("/beacon.js", get(script));
    if *path == BeaconPath::default() {
        usual
    } else {
        usual.route(path.as_str(), get(script))
    }
}

/// Browsers keep it for an hour; pages of any origin may have it.
async fn script(headers: HeaderMap) -> Response {
    let (script, tag) = &*SERVED;
    let shared = [
        // A tag with `crossorigin` and `integrity` asks for it so.
        (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=3600"),
        ),
        (ETAG, tag.clone()),
        (
            CROSS_ORIGIN_RESOURCE_POLICY,
            HeaderValue::from_static("cross-origin"),
        ),
    ];
    // A browser sends back the tag as it got it; whatever else it sends, the script does no harm.
    if headers.get(IF_NONE_MATCH) == Some(tag) {
        return (StatusCode::NOT_MODIFIED, shared).into_response();
    }
    let kind = HeaderValue::from_static("text/javascript; charset=utf-8");
    (shared, [(CONTENT_TYPE, kind)], script.clone()).into_response()
}

/// `source` without what only people need: comments that have lines of their own, blanks around signs,
/// and the names that begin with `$`, of which each becomes a letter.
///
/// It knows as much of the language as that one file uses: text in `"`, with neither `"` nor `$` in it,
/// statements that end with `;`, and no names of one letter.
fn squeezed(source: &str) -> String {
    let lines = source.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    let code: Vec<&str> = lines.collect();
    let mut names = BTreeMap::new();
    let parts = code.join("\n");
    let parts = parts.split('"').enumerate().map(|(place, part)| {
        // Every other part is text.
        if place % 2 == 0 {
            renamed(&without_blanks(part), &mut names)
        } else {
            part.to_owned()
        }
    });
    parts.collect::<Vec<_>>().join("\"")
}

/// `code` without the blanks that tell nothing apart.
fn without_blanks(code: &str) -> String {
    let one_of = |signs: &str, c: Option<char>| c.is_some_and(|c| signs.contains(c));
    let mut kept = String::new();
    let mut left = code.chars().peekable();
    while let Some(c) = left.next() {
        let (before, after) = (kept.chars().next_back(), left.peek().copied());
        let tells_nothing = match c {
            ' ' => [before, after].iter().any(|c| one_of(SIGNS, *c)),
            // Behind `)` and `}` a new line may end a statement.
            '\n' => one_of("=>?:,;{([&|!", before) || one_of("?:,.)]}&|", after),
            _ => false,
        };
        if !tells_nothing {
            kept.push(c);
        }
    }
    kept.replace(";}", "}")
}

const SIGNS: &str = "=+-*/<>?:,;{}()[]&|!";

/// `code` with a letter for each name that begins with `$`, the same for the same one.
fn renamed(code: &str, letters: &mut BTreeMap<String, char>) -> String {
    let mut parts = code.split('$');
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphabetic());
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        if name.is_empty() {
            // The end of a pattern, or a value within a template.
            short.push('$');
        } else {
            let next = ('a'..='z').chain('A'..='Z').nth(letters.len());
            let letter = letters
                .entry(name.to_owned())
                .or_insert(next.unwrap_or('_'));
            short.push(*letter);
        }
        short.push_str(rest);
    }
    short
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_only_people_need_is_not_served() {
        let source = r#"
            // A comment.
            let $first = 1, $second = "a + $b ; }";
            if ($first == 2) {
              // Another.
              act($second, /x$/, `${$first}`);
            }
            $second.first();
        "#;
        let served = "let a=1,b=\"a + $b ; }\";if(a==2){act(b,/x$/,`${a}`)}\nb.first();";
        assert_eq!(squeezed(source), served);
    }

    #[test]
    fn the_script_is_small_and_has_a_letter_for_each_of_its_names() {
        let script = squeezed(SOURCE);
        assert!(script.len() < 2048, "{} bytes", script.len());
        let names = SOURCE.split('$').skip(1).map(|part| {
            let end = part.find(|c: char| !c.is_ascii_alphabetic());
            &part[..end.unwrap_or(part.len())]
        });
        let names: BTreeSet<&str> = names.collect();
        assert!(names.len() <= 52, "{} names", names.len());
    }
}
