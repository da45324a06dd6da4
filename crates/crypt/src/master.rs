//! The master key: 32 bytes that the operator keeps, as base64 in a file.
//!
//! Always true: its bytes are wiped when it is dropped; a [`Fingerprint`] tells which one it is and
//! does not help to find it.

use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a key, the master's and every other's.
pub(crate) const KEY_BYTES: usize = 32;

/// A key that is wiped when it is dropped.
pub(crate) type Secret = Zeroizing<[u8; KEY_BYTES]>;

/// What the fingerprint is made of, besides the key.
const FINGERPRINT_OF: &[u8] = b"fern";

/// The key that wraps the data keys.
pub struct MasterKey(Secret);

impl MasterKey {
    /// The key whose base64 a file holds; white space at both ends is left out.
    ///
    /// # Errors
    /// In one sentence what it must be.
    pub fn parse(text: &[u8]) -> Result<Self> {
        const MUST_BE: &str =
            "it must hold the base64 of 32 bytes; make one with openssl rand -base64 32";
        // The decoder may write up to three bytes more than the key before it finds the end.
        let mut decoded = Zeroizing::new([0; KEY_BYTES + 4]);
        let length = STANDARD.decode_slice(text.trim_ascii(), &mut *decoded);
        if !matches!(length, Ok(KEY_BYTES)) {
            return Err(Error::KeyFile(MUST_BE));
        }
        let mut key = Secret::default();
        key.copy_from_slice(&decoded[..KEY_BYTES]);
        Ok(Self(key))
    }

    /// Which key it is.
    pub fn fingerprint(&self) -> Fingerprint {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*self.0), FINGERPRINT_OF);
        let mut short = [0; 16];
        short.copy_from_slice(&tag.as_ref()[..16]);
        Fingerprint(short)
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.0
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.fingerprint())
    }
}

#[cfg(test)]
mod tests {
    use super::{KEY_BYTES, MasterKey, STANDARD};
    use base64::Engine;

    #[test]
    fn a_master_is_the_base64_of_32_bytes() {
        let text = |bytes: usize| STANDARD.encode(vec![7; bytes]);
        let key = MasterKey::parse(format!(" {}\r\n", text(KEY_BYTES)).as_bytes()).unwrap();
        assert_eq!(**key.secret(), [7; KEY_BYTES]);
        let inside = text(KEY_BYTES).replacen('B', "B\n", 1);
        let unpadded = text(KEY_BYTES).replace('=', "");
        for wrong in ["", "!", &text(16), &text(31), &text(33), &text(64), &inside, &unpadded] {
            let line = MasterKey::parse(wrong.as_bytes()).unwrap_err().to_string();
            assert!(line.contains("openssl rand -base64 32"), "{wrong}: {line}");
        }
    }

    #[test]
    fn a_fingerprint_tells_keys_apart_and_shows_none() {
        let of = |byte: u8| MasterKey::parse(STANDARD.encode([byte; 32]).as_bytes()).unwrap();
        assert_eq!(of(7).fingerprint(), of(7).fingerprint());
        assert_ne!(of(7).fingerprint(), of(8).fingerprint());
        assert!(!format!("{:?}", of(7)).contains("0707"));
        assert_eq!(of(7).fingerprint().to_string().len(), 16);
    }
}
