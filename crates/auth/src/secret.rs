//! Bytes that must not be shown: wiped when they are dropped, and no text shows them.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes that nobody is to see.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for whoever computes with them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether these are the bytes; takes as long for any that are as many.
    pub fn constant_time_eq(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// HMAC-SHA-256 under a key over some parts, each with its length.
pub fn keyed_digest(key: &Secret, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.bytes()).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::{Secret, keyed_digest};

    #[test]
    fn a_digest_is_of_the_key_and_of_where_parts_end() {
        let of = |key: &[u8], parts: &[&[u8]]| keyed_digest(&Secret::new(key.to_vec()), parts);
        assert_eq!(of(b"k", &[b"ab", b"c"]), of(b"k", &[b"ab", b"c"]));
        assert_ne!(of(b"k", &[b"ab", b"c"]), of(b"k", &[b"a", b"bc"]));
        assert_ne!(of(b"k", &[b"ab", b"c"]), of(b"l", &[b"ab", b"c"]));
    }

    #[test]
    fn a_secret_shows_nothing_and_compares() {
        let secret = Secret::new(b"pencil".to_vec());
        assert_eq!(format!("{secret:?}"), "<secret>");
        assert!(secret.constant_time_eq(b"pencil"));
        assert!(
            !secret.constant_time_eq(b"pencils")
                && !secret.constant_time_eq(b"pencim")
                && !secret.constant_time_eq(b"")
        );
    }
}
