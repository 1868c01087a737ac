//! A click: one reader's view of, or click on, one page of a book.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::time::Timestamp;

/// A click as admission let it in: validated, its page canonical, its time and id fixed.
///
/// As JSON it is kept where it waits (the spool, dead letters): times in milliseconds, the value in
/// millionths.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Click {
    /// Unique within the book.
    pub id: ClickId,
    /// Event time.
    #[serde(with = "crate::time::millis")]
    pub at: Timestamp,
    /// When this server received it.
    #[serde(with = "crate::time::millis")]
    pub received_at: Timestamp,
    /// Canonical page.
    pub page: String,
    /// Who read, as the sender names readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visitor: Option<String>,
    /// The page that the reader came from, as sent; grouped by [`referrer_host`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referrer: Option<String>,
    /// Which of the book's publications or campaigns sent it, as the sender names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// A number of the sender's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Micros>,
}

/// The id of a click and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClickId {
    /// What is stored and compared.
    pub uuid: Uuid,
    /// What the sender wrote, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// Whether this server made the id for this very request, so that nobody can have sent it before.
    /// What was kept somewhere may have been committed meanwhile.
    #[serde(skip)]
    pub fresh: bool,
}

impl ClickId {
    /// Most bytes of an id that a sender chooses.
    pub const MAX_BYTES: usize = 200;

    /// The id that a sender chose: a UUID as it is, another text hashed into one within the book.
    #[must_use]
    pub fn chosen(book: Uuid, sent: &str) -> Self {
        // Only the form with hyphens: 32 hexadecimal digits are as likely a checksum.
        let hyphenated = sent.len() == uuid::fmt::Hyphenated::LENGTH;
        let uuid = Uuid::try_parse(sent).ok().filter(|_| hyphenated);
        let text = || format!("id:{sent}");
        Self {
            uuid: uuid.unwrap_or_else(|| Uuid::new_v5(&book, text().as_bytes())),
            sent: Some(sent.to_owned()),
            fresh: false,
        }
    }

    /// The id of the click at `index` of a request with an `Idempotency-Key`.
    #[must_use]
    pub fn derived(book: Uuid, key: &str, index: usize) -> Self {
        Self {
            uuid: Uuid::new_v5(&book, format!("key:{index}:{key}").as_bytes()),
            sent: None,
            fresh: false,
        }
    }

    /// The id of what a log says at byte `offset` of a source, so that the same line there is the same
    /// click. With the time that the line gives, if it gives one, the ids of a log grow as the log does,
    /// and so the primary key grows at one end (version 8 of RFC 9562: laid out by us, as version 7 is).
    #[must_use]
    pub fn imported(
        book: Uuid,
        source: &str,
        offset: u64,
        line: &[u8],
        at_ms: Option<i64>,
    ) -> Self {
        let hash = Sha256::new()
            .chain_update("pagetide import")
            .chain_update(book.as_bytes())
            .chain_update((source.len() as u64).to_be_bytes())
            .chain_update(source)
            .chain_update(offset.to_be_bytes())
            .chain_update(line)
            .finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        if let Some(at_ms) = at_ms {
            bytes[..6].copy_from_slice(&at_ms.to_be_bytes()[2..]);
        }
        Self {
            uuid: Uuid::new_v8(bytes),
            sent: None,
            fresh: false,
        }
    }

    /// A new id. Version 7 grows with time, so the primary key grows at one end.
    #[must_use]
    pub fn made() -> Self {
        Self {
            uuid: Uuid::now_v7(),
            sent: None,
            fresh: true,
        }
    }

    /// The id as its sender knows it.
    #[must_use]
    pub fn shown(&self) -> String {
        self.sent.clone().unwrap_or_else(|| self.uuid.to_string())
    }
}

/// A decimal of at most 6 fraction digits, held in millionths, so that sums are exact and do not
/// depend on order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl Micros {
    const MAX: i64 = 1_000_000_000_000 * 1_000_000;
    const DIGITS: i32 = 6;

    /// Reads a JSON number, without going through binary floating point.
    ///
    /// `None`: no number, more than 6 fraction digits, or more than 10¹² in size.
    #[must_use]
    pub fn from_json(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (negative, digits) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty()
            || !whole
                .bytes()
                .chain(fraction.bytes())
                .all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let mut size: i64 = 0;
        for byte in whole.bytes().chain(fraction.bytes()) {
            size = size.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
        }
        let mut scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        while scale > Self::DIGITS && size % 10 == 0 && size != 0 {
            size /= 10;
            scale -= 1;
        }
        if size == 0 {
            return Some(Self(0));
        }
        let up = u32::try_from(Self::DIGITS.checked_sub(scale)?).ok()?;
        let micros = size.checked_mul(10_i64.checked_pow(up)?)?;
        (micros <= Self::MAX).then_some(Self(if negative { -micros } else { micros }))
    }
}

/// The part of a referrer by which clicks are grouped: the host of an http(s) URL, in lower case
/// and without `www.`; anything else as it is.
#[must_use]
pub fn referrer_host(referrer: &str) -> String {
    let lower = referrer.to_ascii_lowercase();
    let rest = lower
        .strip_prefix("https://")
        .or_else(|| lower.strip_prefix("http://"));
    let Some(rest) = rest else {
        return referrer.to_owned();
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let host_port = authority.rsplit('@').next().unwrap_or(authority);
    let host = match host_port.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => host_port,
    };
    host.strip_prefix("www.").unwrap_or(host).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<i64> {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        Micros::from_json(&raw).map(|m| m.0)
    }

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(micros("0.1"), Some(100_000));
        assert_eq!(micros("-12.000001"), Some(-12_000_001));
        assert_eq!(micros("1.5e3"), Some(1_500_000_000));
        assert_eq!(micros("100e-8"), Some(1));
        assert_eq!(micros("0e99"), Some(0));
        assert_eq!(micros("1000000000000"), Some(Micros::MAX));
        for bad in [
            "0.0000001",
            "1000000000000.1",
            "1e13",
            "1e999999999",
            "\"1\"",
            "true",
            "1e-7",
        ] {
            assert_eq!(micros(bad), None, "{bad}");
        }
    }

    #[test]
    fn ids_are_taken_hashed_or_derived() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let uuid = "018f4f0e-0000-7000-8000-000000000001";
        assert_eq!(ClickId::chosen(a, uuid).shown(), uuid);
        let capital = ClickId::chosen(a, &uuid.to_uppercase());
        assert_eq!(capital.uuid, ClickId::chosen(a, uuid).uuid);
        assert_eq!(capital.shown(), uuid.to_uppercase());
        let checksum = "d41d8cd98f00b204e9800998ecf8427e";
        assert_eq!(ClickId::chosen(a, checksum).shown(), checksum);
        assert_eq!(ClickId::chosen(a, "x").shown(), "x");
        assert_ne!(ClickId::chosen(a, "x").uuid, ClickId::chosen(b, "x").uuid);
        assert_ne!(
            ClickId::derived(a, "x", 1).uuid,
            ClickId::derived(a, "x", 2).uuid
        );
        assert_ne!(
            ClickId::derived(a, "x", 0).uuid,
            ClickId::chosen(a, "key:0:x").uuid
        );
        let imported = |book, source, offset, line: &[u8], at_ms| {
            ClickId::imported(book, source, offset, line, at_ms).uuid
        };
        let id = imported(a, "log", 7, b"line", Some(1_000));
        assert_eq!(id, imported(a, "log", 7, b"line", Some(1_000)));
        assert!(id < imported(a, "log", 7, b"line", Some(1_001)));
        for other in [
            imported(b, "log", 7, b"line", Some(1_000)),
            imported(a, "logl", 7, b"ine", Some(1_000)),
            imported(a, "log", 8, b"line", Some(1_000)),
            imported(a, "log", 7, b"lime", Some(1_000)),
            imported(a, "log", 7, b"line", None),
        ] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn hosts_of_referrers() {
        assert_eq!(
            referrer_host("https://www.Example.org:8080/a?b"),
            "example.org"
        );
        assert_eq!(referrer_host("http://u:p@example.org"), "example.org");
        assert_eq!(referrer_host("android-app://com.x"), "android-app://com.x");
    }
}
