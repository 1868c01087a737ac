//! Who stands behind a connection: the peer itself, or whom proxies that are trusted say.
//!
//! A proxy appends the address of its own peer to `X-Forwarded-For`. So the list is read from the
//! right, and only as far as those who wrote it are trusted: what stands further left, anybody may
//! have sent. Addresses are used and forgotten; none is logged or stored.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName};

use super::state::AppState;
use crate::network::Networks;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The other end of the connection, as a request carries it.
#[derive(Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Which peers are believed.
#[derive(Debug)]
pub(crate) struct Proxies {
    trusted: Networks,
    warned: AtomicBool,
}

impl Proxies {
    /// Those of `trusted` are; if nothing is said, this machine's, where only it can connect.
    pub(crate) fn new(trusted: Option<Networks>, listen: SocketAddr) -> Self {
        let usual = || {
            let local = listen.ip().to_canonical().is_loopback();
            local.then(Networks::loopback).unwrap_or_default()
        };
        Self {
            trusted: trusted.unwrap_or_else(usual),
            warned: AtomicBool::new(false),
        }
    }

    /// Warns, once, if a peer that is not trusted speaks for others: a proxy is there that nobody
    /// told us of, and all its clients look like one.
    pub(super) fn look(&self, extensions: &Extensions, headers: &HeaderMap) {
        if self.warned.load(Ordering::Relaxed) {
            return;
        }
        let speaks = [FORWARDED_FOR, FORWARDED_PROTO];
        let speaks = speaks.iter().any(|name| headers.contains_key(name));
        let untrusted = |Peer(peer): &Peer| !self.trusted.contains(*peer);
        if speaks
            && extensions.get().is_some_and(untrusted)
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "X-Forwarded-For or X-Forwarded-Proto came from a peer that is not trusted, and is \
                 not believed; if that is your proxy, set PAGETIDE_TRUSTED_PROXIES"
            );
        }
    }

    /// The client behind `peer`.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> Client {
        let mut client = Client {
            address: peer.to_canonical(),
            tls: false,
        };
        if !self.trusted.contains(peer) {
            return client;
        }
        let mut hops = 0;
        for entry in from_the_right(headers, &FORWARDED_FOR) {
            // What is no address may hide anybody; who wrote it is the last that is known.
            let Some(address) = address_of(entry) else {
                break;
            };
            client.address = address;
            if !self.trusted.contains(address) {
                break;
            }
            hops += 1;
        }
        // Each proxy may append, or the first alone have said it for all.
        let mut schemes = from_the_right(headers, &FORWARDED_PROTO).take(hops + 1);
        client.tls = schemes.by_ref().last().is_some_and(is_https);
        client
    }
}

/// Entries of a list, over all headers of that name, the newest first.
fn from_the_right<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).iter().rev();
    // What is no text reads as no address.
    let values = values.map(|value| value.to_str().unwrap_or("?"));
    values.flat_map(|value| value.rsplit(',').map(str::trim))
}

/// Some proxies write the port too: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
fn address_of(entry: &str) -> Option<IpAddr> {
    let plain = entry.trim_start_matches('[').trim_end_matches(']');
    let address = plain.parse::<IpAddr>();
    let address = address.or_else(|_| entry.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

fn is_https(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("https")
}

/// The client that a request comes from.
#[derive(Clone, Copy)]
pub(super) struct Client {
    /// Used and forgotten: it may be stored and logged nowhere.
    pub(super) address: IpAddr,
    /// Whether it speaks TLS, to a proxy in front of us.
    pub(super) tls: bool,
}

impl Client {
    /// The client behind a request.
    pub(super) fn of(state: &AppState, extensions: &Extensions, headers: &HeaderMap) -> Self {
        let nobody = Peer(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let Peer(peer) = *extensions.get().unwrap_or(&nobody);
        state.proxies.client(peer, headers)
    }
}

impl FromRequestParts<AppState> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Infallible> {
        Ok(Self::of(state, &parts.extensions, &parts.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let named = |name| HeaderName::from_static(name);
        let lines = lines.iter().map(|(name, value)| (named(name), *value));
        lines.map(|(name, v)| (name, v.parse().unwrap())).collect()
    }

    fn client(trusted: &str, peer: &str, lines: &[(&'static str, &'static str)]) -> (String, bool) {
        let listen = "127.0.0.1:0".parse().unwrap();
        let proxies = Proxies::new(Some(trusted.parse().unwrap()), listen);
        let client = proxies.client(peer.parse().unwrap(), &headers(lines));
        (client.address.to_string(), client.tls)
    }

    fn address(trusted: &str, peer: &str, forwarded: &'static str) -> String {
        client(trusted, peer, &[("x-forwarded-for", forwarded)]).0
    }

    #[test]
    fn the_rightmost_address_that_no_trusted_proxy_has_is_the_clients() {
        let ours = "10.0.0.0/8,2001:db8::/32";
        for (peer, forwarded, expected) in [
            // Nobody who speaks for others: it speaks for itself.
            ("192.0.2.9", "192.0.2.1", "192.0.2.9"),
            ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
            // The client itself made the first entry up.
            ("10.0.0.1", "198.51.100.7, 192.0.2.1", "192.0.2.1"),
            ("10.0.0.1", "198.51.100.7, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
            ("2001:db8::1", "192.0.2.1:4711", "192.0.2.1"),
            ("10.0.0.1", "[2001:db9::1]:4711", "2001:db9::1"),
            ("10.0.0.1", "[2001:db9::1]", "2001:db9::1"),
            ("::ffff:10.0.0.1", "::ffff:192.0.2.1", "192.0.2.1"),
            // All of them are ours: the first is as far as it goes.
            ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
            // Whatever that is, 10.0.0.2 wrote it.
            ("10.0.0.1", "192.0.2.1, unknown, 10.0.0.2", "10.0.0.2"),
            ("10.0.0.1", "", "10.0.0.1"),
        ] {
            assert_eq!(address(ours, peer, forwarded), expected, "{forwarded}");
        }
    }

    #[test]
    fn lists_go_on_over_several_headers() {
        let lines = [
            ("x-forwarded-for", "198.51.100.7"),
            ("x-forwarded-for", "192.0.2.1, 10.0.0.2"),
        ];
        assert_eq!(client("10.0.0.0/8", "10.0.0.1", &lines).0, "192.0.2.1");
    }

    #[test]
    fn tls_is_believed_as_far_as_the_address_is() {
        let tls = |peer, for_, proto| {
            let lines = [("x-forwarded-for", for_), ("x-forwarded-proto", proto)];
            client("10.0.0.0/8", peer, &lines).1
        };
        assert!(tls("10.0.0.1", "192.0.2.1", "https"));
        assert!(tls("10.0.0.1", "192.0.2.1", "HTTPS"));
        assert!(!tls("10.0.0.1", "192.0.2.1", "http"));
        assert!(!tls("192.0.2.1", "192.0.2.1", "https"), "not trusted");
        // The client made it up, and the proxy appended what is so.
        assert!(!tls("10.0.0.1", "192.0.2.1", "https, http"));
        // From the client to the outer proxy by TLS, and on in the clear.
        assert!(tls("10.0.0.1", "192.0.2.1, 10.0.0.2", "https, http"));
        // The outer proxy said it, and the inner one left it so.
        assert!(tls("10.0.0.1", "192.0.2.1, 10.0.0.2", "https"));
    }

    #[test]
    fn this_machine_is_trusted_where_only_it_can_connect() {
        let trusts = |listen: &str| {
            let proxies = Proxies::new(None, listen.parse().unwrap());
            proxies.trusted.contains("127.0.0.1".parse().unwrap())
        };
        assert!(trusts("127.0.0.1:8080") && trusts("[::1]:8080"));
        assert!(!trusts("0.0.0.0:8080") && !trusts("192.0.2.1:8080"));
    }
}
