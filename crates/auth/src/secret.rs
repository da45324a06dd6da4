//! Bytes that must not be shown: wiped when they are dropped, and no text shows them.

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
    pub fn is(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_shows_nothing_and_compares() {
        let secret = Secret::new(b"pencil".to_vec());
        assert_eq!(format!("{secret:?}"), "<secret>");
        assert!(secret.is(b"pencil"));
        assert!(!secret.is(b"pencils") && !secret.is(b"pencim") && !secret.is(b""));
    }
}
