//! Origins, as browsers name them (RFC 6454, section 6.2): scheme, host and port, nothing else.

use std::fmt;
use std::str::FromStr;

/// Longest host with its port, in bytes.
const MAX_HOST_BYTES: usize = 300;

/// A list of origins, as a setting holds it: separated by commas.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origins(Vec<String>);

/// Something in a list is no origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no origin as browsers send it, such as https://example.org")]
pub struct NoOrigin(String);

impl Origins {
    /// Whether `origin` is in the list.
    #[must_use]
    pub fn contains(&self, origin: &str) -> bool {
        self.0.iter().any(|listed| listed == origin)
    }

    /// Whether it lists none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Origins {
    /// As a policy lists them: with blanks between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl FromStr for Origins {
    type Err = NoOrigin;

    fn from_str(text: &str) -> Result<Self, NoOrigin> {
        let items = text.split(',').map(str::trim).filter(|i| !i.is_empty());
        let origins = items.map(|item| {
            let fine = is_origin(item).then(|| item.to_owned());
            fine.ok_or_else(|| NoOrigin(item.to_owned()))
        });
        origins.collect::<Result<_, _>>().map(Self)
    }
}

/// Whether `text` is an origin as a browser would send it: in small letters and without the port
/// that the scheme has anyway. Any other form would be listed and never match.
#[must_use]
pub fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let usual_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:[]_".contains(&b);
    (1..=MAX_HOST_BYTES).contains(&host.len())
        && host.bytes().all(allowed)
        && !host.starts_with([':', '.'])
        && !host.ends_with(usual_port)
}

/// Whether a page of `origin` came from `host` itself, the `Host` that a request was sent to.
#[must_use]
pub fn is_of_host(origin: &str, host: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_what_browsers_send() {
        for fine in [
            "https://example.org",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "https://xn--bcher-kva.example:8443",
            "http://my_host",
        ] {
            assert!(is_origin(fine), "{fine}");
        }
        for wrong in [
            "",
            "*",
            "null",
            "example.org",
            "https://",
            "https://example.org/",
            "https://example.org/path",
            "https://Example.org",
            "https://example.org:443",
            "http://example.org:80",
            "ftp://example.org",
            "https://user@example.org",
            "https://:8443",
        ] {
            assert!(!is_origin(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_setting_lists_origins() {
        let two: Origins = " https://a.example, http://b.example:1 ,".parse().unwrap();
        assert!(two.contains("https://a.example") && two.contains("http://b.example:1"));
        assert!(!two.contains("http://a.example"));
        assert_eq!("".parse(), Ok(Origins::default()));
        assert!("https://a.example,*".parse::<Origins>().is_err());
    }

    #[test]
    fn a_host_has_pages_of_its_own() {
        assert!(is_of_host("http://127.0.0.1:8080", "127.0.0.1:8080"));
        assert!(is_of_host("https://example.org", "Example.org"));
        assert!(!is_of_host(
            "https://example.org.evil.example",
            "example.org"
        ));
        assert!(!is_of_host("null", "null"));
    }
}
