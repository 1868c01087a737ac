//! Versions as entity tags: `"2"`, and the preconditions that name them (RFC 9110, section 13.1).

use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::{Code, Problem};
use crate::book::chapters::{Precondition, Versions};

/// How a tag that is marked as weak is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weak {
    /// Like any other.
    Equal,
    /// It is equal to none.
    Different,
}

/// The entity tag of a version.
pub(super) fn etag(version: i64) -> HeaderValue {
    // Digits within quotes always make a value.
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// What a request says about the version that it is meant for.
pub(super) fn precondition(headers: &HeaderMap) -> Result<Precondition, Problem> {
    Ok(Precondition {
        one_of: versions(headers, &IF_MATCH, Weak::Different)?,
        none_of: versions(headers, &IF_NONE_MATCH, Weak::Equal)?,
    })
}

fn versions(
    headers: &HeaderMap,
    name: &HeaderName,
    weak: Weak,
) -> Result<Option<Versions>, Problem> {
    let lines: Vec<&[u8]> = headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let versions = parsed(&lines.join(&b','), weak).ok_or_else(|| {
        let detail = format!("{name}: `*`, or a list of tags in quotes");
        Problem::new(Code::BadHeader, detail)
    })?;
    Ok(Some(versions))
}

/// The versions that a list of tags names. Other tags than those of versions are none that we made.
fn parsed(list: &[u8], weak: Weak) -> Option<Versions> {
    if list.trim_ascii() == b"*" {
        return Some(Versions::Any);
    }
    let mut versions = Vec::new();
    let mut rest = list.trim_ascii();
    while !rest.is_empty() {
        // Empty elements of a list are allowed.
        if let Some(behind) = rest.strip_prefix(b",") {
            rest = behind.trim_ascii_start();
            continue;
        }
        let strong = rest.strip_prefix(b"W/");
        let is_weak = strong.is_some();
        let tag = strong.unwrap_or(rest).strip_prefix(b"\"")?;
        let end = tag.iter().position(|byte| *byte == b'"')?;
        let (tag, behind) = (&tag[..end], tag[end + 1..].trim_ascii_start());
        if !(behind.is_empty() || behind.starts_with(b",")) {
            return None;
        }
        if !is_weak || weak == Weak::Equal {
            versions.extend(version(tag));
        }
        rest = behind;
    }
    Some(Versions::Of(versions))
}

/// The version that a tag stands for: the same digits, no others that mean the same.
fn version(tag: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(tag).ok()?;
    let version: i64 = text.parse().ok()?;
    (version.to_string() == text).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strong(list: &str) -> Option<Versions> {
        parsed(list.as_bytes(), Weak::Different)
    }

    fn of(versions: &[i64]) -> Versions {
        Versions::Of(versions.to_vec())
    }

    #[test]
    fn lists_of_tags() {
        let cases = [
            ("*", Versions::Any),
            (r#" "2" "#, of(&[2])),
            (r#""2","3" ,, "a,b" , W/"4","0","#, of(&[2, 3, 0])),
            (r#""02", "+2", "2 ", """#, of(&[])),
            (r#""99999999999999999999""#, of(&[])),
        ];
        for (list, versions) in cases {
            assert_eq!(strong(list), Some(versions), "{list}");
        }
        let wrong = [
            "2",
            r#""2"#,
            r#""2""3""#,
            r#"w/"2""#,
            r#""2", *"#,
            "W/",
            "*,*",
        ];
        for list in wrong {
            assert_eq!(strong(list), None, "{list}");
        }
        assert_eq!(parsed(br#"W/"4""#, Weak::Equal), Some(of(&[4])));
    }

    #[test]
    fn lines_of_a_header_are_one_list() {
        let mut headers = HeaderMap::new();
        assert_eq!(precondition(&headers).unwrap(), Precondition::default());
        headers.append(IF_MATCH, etag(1));
        headers.append(IF_MATCH, etag(2));
        headers.append(IF_NONE_MATCH, HeaderValue::from_static("*"));
        let both = precondition(&headers).unwrap();
        assert_eq!(both.one_of, Some(of(&[1, 2])));
        assert_eq!(both.none_of, Some(Versions::Any));
    }
}
