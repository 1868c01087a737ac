//! Where a request comes from: the page that a browser makes it for.

use axum::http::Method;
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;

/// Whether a request that is authorised by a cookie alone may be answered. `SameSite=Lax` keeps the
/// cookie from other sites, but a site has many hosts, and old browsers know no `SameSite`: so what
/// changes something and names its `Origin` must come from our own pages, or from an origin that is
/// `allowed`.
pub(super) fn may_use_cookie(parts: &Parts, allowed: impl Fn(&str) -> bool) -> bool {
    let harmless = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
    let Some(origin) = parts.headers.get(ORIGIN).filter(|_| !harmless) else {
        return true;
    };
    // One that is no text is nobody's.
    let origin = origin.to_str().unwrap_or("null");
    host(parts).is_some_and(|host| is_at(origin, host)) || allowed(origin)
}

/// The name under which the client asked for us.
fn host(parts: &Parts) -> Option<&str> {
    let header = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 carries it in the address.
    header.or_else(|| {
        parts
            .uri
            .authority()
            .map(axum::http::uri::Authority::as_str)
    })
}

/// Whether `origin` is that of pages at `host`. Whether they were served over TLS, `host` does not
/// tell.
fn is_at(origin: &str, host: &str) -> bool {
    let https = origin.strip_prefix("https://").map(|rest| (rest, ":443"));
    let http = || origin.strip_prefix("http://").map(|rest| (rest, ":80"));
    https.or_else(http).is_some_and(|(rest, usual_port)| {
        let short = |name: &str| name.strip_suffix(usual_port).unwrap_or(name).to_owned();
        short(rest).eq_ignore_ascii_case(&short(host))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn may(method: &str, origin: Option<&str>, host: Option<&str>, allowed: &[&str]) -> bool {
        let mut request = Request::builder().method(method).uri("/v1/books");
        for (name, value) in [(ORIGIN, origin), (HOST, host)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        may_use_cookie(&parts, |origin| allowed.contains(&origin))
    }

    #[test]
    fn what_changes_something_must_come_from_a_page_of_ours() {
        let host = Some("books.example:8080");
        for (origin, allowed, expected) in [
            (None, &[][..], true),
            (Some("http://books.example:8080"), &[], true),
            (Some("https://books.example:8080"), &[], true),
            (Some("http://BOOKS.example:8080"), &[], true),
            (Some("http://books.example"), &[], false),
            (Some("http://books.example:8081"), &[], false),
            (Some("http://evil.books.example:8080"), &[], false),
            (Some("http://books.example:8080.evil.example"), &[], false),
            (Some("http://books.example:8080@evil.example"), &[], false),
            (Some("https://evil.example"), &[], false),
            (Some("null"), &[], false),
            (Some(""), &[], false),
            (Some("books.example:8080"), &[], false),
            (Some("ftp://books.example:8080"), &[], false),
            (
                Some("https://docs.example"),
                &["https://docs.example"],
                true,
            ),
            (
                Some("https://docs.example"),
                &["https://other.example"],
                false,
            ),
            (
                Some("http://docs.example"),
                &["https://docs.example"],
                false,
            ),
        ] {
            for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
                let may = may(method, origin, host, allowed);
                assert_eq!(may, expected, "{method} {origin:?} {allowed:?}");
            }
            for method in ["GET", "HEAD", "OPTIONS"] {
                assert!(may(method, origin, host, allowed), "{method} {origin:?}");
            }
        }
    }

    #[test]
    fn the_usual_port_may_be_named_or_not() {
        for (origin, host, expected) in [
            ("https://books.example", "books.example:443", true),
            ("https://books.example:443", "books.example", true),
            ("http://books.example", "books.example:80", true),
            ("http://books.example", "books.example:443", false),
            ("https://books.example", "books.example:80", false),
        ] {
            let may = may("POST", Some(origin), Some(host), &[]);
            assert_eq!(may, expected, "{origin} {host}");
        }
        assert!(!may("POST", Some("https://books.example"), None, &[]));
    }

    #[test]
    fn http2_names_the_host_in_the_address() {
        let request = Request::post("http://books.example:8080/v1/books");
        let request = request.header(ORIGIN, "http://books.example:8080");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert!(may_use_cookie(&parts, |_| false));
    }
}
