//! Canonical pages: one name for what a reader would call one page.
//!
//! The rules stand in section 4 of the contract and follow RFC 3986, section 6.2.2
//! (percent-encoding and path-segment normalization).

use std::borrow::Cow;

/// Most bytes of a page, as sent and canonical: it is part of an index key in Postgres.
pub const MAX_PAGE_BYTES: usize = 2048;

/// Why a text names no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageError {
    /// It is empty.
    #[error("1 to 2048 bytes")]
    Empty,
    /// It has more than [`MAX_PAGE_BYTES`].
    #[error("1 to 2048 bytes")]
    TooLong,
    /// It has more than [`MAX_PAGE_BYTES`] in its canonical form.
    #[error("more than 2048 bytes once it is escaped")]
    TooLongEscaped,
    /// It holds a control character.
    #[error("it holds a control character")]
    ControlCharacter,
}

/// The name of the page `sent` in a book whose pages are made `canonical`, or stay as they are, and all
/// stand below `base_path` (`""`: none).
///
/// # Errors
/// It can be the name of none.
pub fn named(sent: &str, canonical: bool, base_path: &str) -> Result<String, PageError> {
    if sent.is_empty() {
        return Err(PageError::Empty);
    }
    if sent.len() > MAX_PAGE_BYTES {
        return Err(PageError::TooLong);
    }
    if sent.chars().any(char::is_control) {
        return Err(PageError::ControlCharacter);
    }
    if !canonical {
        return Ok(sent.to_owned());
    }
    let page = self::canonical(sent, base_path);
    if page.len() > MAX_PAGE_BYTES {
        return Err(PageError::TooLongEscaped);
    }
    Ok(page)
}

/// The canonical form of `sent` in a book whose pages all stand below `base_path` (`""`: none).
#[must_use]
pub fn canonical(sent: &str, base_path: &str) -> String {
    let path = path_of(sent);
    let path = normalize_escapes(path);
    let path = resolve_dots(&path);
    let path = squeeze_slashes(&path);
    let path = without_base(&path, base_path);
    without_endings(path).to_owned()
}

/// The path of an absolute http(s) URL, or all of `sent`, without query and fragment.
fn path_of(sent: &str) -> &str {
    let end = sent.find(['?', '#']).unwrap_or(sent.len());
    let bare = &sent[..end];
    let path = match authority_and_path(bare) {
        Some(rest) => rest.find('/').map_or("", |slash| &rest[slash..]),
        None => bare,
    };
    if path.is_empty() { "/" } else { path }
}

fn authority_and_path(url: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let head = url.get(..scheme.len())?;
        head.eq_ignore_ascii_case(scheme)
            .then(|| &url[scheme.len()..])
    })
}

/// Undoes escapes of unreserved characters, writes the others with capital digits, and escapes
/// what RFC 3986 does not allow in a path.
fn normalize_escapes(path: &str) -> Cow<'_, str> {
    if path.bytes().all(|b| b != b'%' && is_path_byte(b)) {
        return Cow::Borrowed(path);
    }
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len() + 16);
    let mut i = 0;
    while i < bytes.len() {
        let byte = bytes[i];
        if byte == b'%'
            && let Some(decoded) = hex_pair(bytes, i + 1)
        {
            if is_unreserved(decoded) {
                out.push(char::from(decoded));
            } else {
                push_escape(&mut out, decoded);
            }
            i += 3;
            continue;
        }
        if is_path_byte(byte) {
            out.push(char::from(byte));
        } else {
            push_escape(&mut out, byte);
        }
        i += 1;
    }
    Cow::Owned(out)
}

fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |i: usize| char::from(*bytes.get(i)?).to_digit(16);
    u8::try_from(digit(at)? * 16 + digit(at + 1)?).ok()
}

fn push_escape(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// `unreserved` of RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// `pchar` and `/` of RFC 3986, section 3.3, without the percent sign.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

/// `remove_dot_segments` of RFC 3986, section 5.2.4.
fn resolve_dots(path: &str) -> Cow<'_, str> {
    if !path.starts_with('.') && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let (root, relative) = match path.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", path),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = relative.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." if last => kept.push(""),
            "." => {}
            ".." => {
                kept.pop();
                if last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    Cow::Owned(format!("{root}{}", kept.join("/")))
}

fn squeeze_slashes(path: &str) -> Cow<'_, str> {
    if !path.contains("//") {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !out.ends_with('/') {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

fn without_base<'a>(path: &'a str, base_path: &str) -> &'a str {
    let base = base_path.trim_end_matches('/');
    match path.strip_prefix(base) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// Takes trailing slashes, `/index.html` and `.html` off until none is left. A name that is only
/// `.html` stays, and so does one of which a dot segment would be left.
fn without_endings(mut path: &str) -> &str {
    loop {
        let shorter = path
            .strip_suffix('/')
            .or_else(|| path.strip_suffix("/index.html"))
            .or_else(|| {
                path.strip_suffix(".html")
                    .filter(|rest| !matches!(last_segment(rest), "" | "." | ".."))
            });
        match shorter {
            Some(rest) => path = rest,
            None if path.is_empty() => return "/",
            None => return path,
        }
    }
}

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        sent: String,
        base_path: String,
        canonical: String,
    }

    #[test]
    fn golden_cases() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../tests/golden/pages.json")).unwrap();
        assert!(cases.len() >= 36);
        for case in cases {
            assert_eq!(
                canonical(&case.sent, &case.base_path),
                case.canonical,
                "{}",
                case.sent
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn canonical_of_canonical_is_itself(page in "[/.a%é?#:h-z0-9]{1,40}|(/|\\.|index|\\.html|%2e|a|%41|//){1,12}") {
            let once = canonical(&page, "");
            proptest::prop_assert_eq!(canonical(&once, ""), once);
        }
    }
}
