//! Secrets: made of random bits, stored as a hash alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// SHA-256.
pub(super) type Hash = [u8; 32];

/// Characters behind the prefix of a generated secret: 256 bits, in base64.
const LENGTH: usize = 43;

/// A new secret: `prefix` and 43 URL-safe characters, 256 random bits.
pub(super) fn generate(prefix: &str) -> String {
    let bits: [u8; 32] = rand::random();
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bits))
}

/// Whether `text` could have been generated with `prefix`, so that it is worth looking for.
pub(super) fn has_the_form(text: &str, prefix: &str) -> bool {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == LENGTH && rest.bytes().all(safe))
}

/// What is stored of `secret`.
pub(super) fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// What is stored of `secret` where it must hold only together with `other`.
pub(super) fn seal(secret: &str, other: &Hash) -> Hash {
    let both = Sha256::new().chain_update(other).chain_update(secret);
    both.finalize().into()
}

/// Whether the two are the same, in a time that does not tell how far they are.
pub(super) fn same(left: &Hash, right: &[u8]) -> bool {
    left.as_slice().ct_eq(right).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_secrets_have_the_documented_form() {
        let secret = generate("pt_");
        assert_eq!(secret.len(), 46);
        assert!(has_the_form(&secret, "pt_"));
        assert!(!has_the_form(&secret, "ps_"));
        assert!(!has_the_form(&secret[..45], "pt_"));
        assert!(!has_the_form(&format!("{secret}A"), "pt_"));
        assert!(!has_the_form(&secret.replace(&secret[9..10], "="), "pt_"));
        assert_ne!(generate("pt_"), generate("pt_"));
    }

    #[test]
    fn a_seal_hangs_on_both_secrets() {
        let (one, other) = (hash("one"), hash("other"));
        assert!(same(&seal("s", &one), &seal("s", &one)));
        assert!(!same(&seal("s", &one), &seal("s", &other)));
        assert!(!same(&seal("s", &one), &seal("t", &one)));
        assert!(!same(&one, &one[..31]));
    }
}
