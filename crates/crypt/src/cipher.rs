//! Encrypting bytes with one derived key: AES-256-GCM.
//!
//! Always true: what opens is what was encrypted, under the same key, nonce and additional data. That no
//! nonce is used twice under one key is the caller's duty; whoever cannot count takes random ones.

use crate::error::{Error, Result};
use crate::master::{KEY_BYTES, Secret};
use crate::nonces::NonceLog;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce as Twelve, UnboundKey};
use os::Entropy;

/// Bytes that encrypting adds behind what is encrypted.
pub const TAG_BYTES: usize = 16;
/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 12;

/// What must differ between any two things that are encrypted with one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    /// Of a count, and of a part of what is counted.
    pub fn counted(count: u64, part: u32) -> Self {
        let mut bytes = [0; NONCE_BYTES];
        bytes[..8].copy_from_slice(&count.to_le_bytes());
        bytes[8..].copy_from_slice(&part.to_le_bytes());
        Self(bytes)
    }

    /// A random one, to be stored beside what is encrypted. With 2^32 of them under one key the chance
    /// that two are the same is below 2^-32.
    pub fn random(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; NONCE_BYTES];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// One that was stored.
    pub fn stored(bytes: [u8; NONCE_BYTES]) -> Self {
        Self(bytes)
    }

    /// To be stored.
    pub fn bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }
}

/// Encrypts and decrypts with one key. May be used by many threads at once.
pub struct Cipher {
    key: LessSafeKey,
    /// A test's: it is told each nonce.
    watch: Option<(NonceLog, u64)>,
}

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self::watched(key, None)
    }

    pub(crate) fn watched(key: &[u8; KEY_BYTES], log: Option<&NonceLog>) -> Self {
        let watch = log.map(|log| (log.clone(), NonceLog::name_of(key)));
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of this length fits the cipher");
        Self { key: LessSafeKey::new(key), watch }
    }

    /// With a random key that is stored nowhere, for what is of no use once this is dropped.
    pub fn temporary(entropy: &dyn Entropy) -> Self {
        let mut key = Secret::default();
        entropy.fill(&mut *key);
        Self::new(&key)
    }

    /// Encrypts `bytes` in place and gives the tag that goes with them.
    ///
    /// # Errors
    /// Only beyond the 64 GiB that the cipher can encrypt at once.
    pub fn encrypt(&self, nonce: Nonce, bound: &[u8], bytes: &mut [u8]) -> Result<[u8; TAG_BYTES]> {
        if let Some((log, key)) = &self.watch {
            log.used(*key, nonce.0);
        }
        let nonce = Twelve::assume_unique_for_key(nonce.0);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(bound), bytes);
        let tag = tag.map_err(|_| Error::NotAuthentic)?;
        let tag = tag.as_ref().first_chunk().expect("the cipher's tag has 16 bytes");
        Ok(*tag)
    }

    /// Decrypts in place what was encrypted, its tag behind it, and gives what had been encrypted.
    ///
    /// # Errors
    /// [`Error::NotAuthentic`]; what is in `encrypted` is then of no use.
    pub fn decrypt<'a>(
        &self,
        nonce: Nonce,
        bound: &[u8],
        encrypted: &'a mut [u8],
    ) -> Result<&'a [u8]> {
        let nonce = Twelve::assume_unique_for_key(nonce.0);
        let opened = self.key.open_in_place(nonce, Aad::from(bound), encrypted);
        opened.map(|plain| &*plain).map_err(|_| Error::NotAuthentic)
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

#[cfg(test)]
mod tests {
    use super::{Cipher, Nonce, TAG_BYTES};

    fn encrypted(plain: &[u8]) -> Vec<u8> {
        let mut bytes = plain.to_vec();
        let tag = Cipher::new(&[1; 32]).encrypt(Nonce::counted(5, 0), b"page 5", &mut bytes);
        bytes.extend(tag.unwrap());
        bytes
    }

    #[test]
    fn what_was_encrypted_opens_in_its_place_alone() {
        let plain = b"what a user stored";
        let bytes = encrypted(plain);
        assert_eq!(bytes.len(), plain.len() + TAG_BYTES);
        assert!(!bytes.windows(4).any(|part| plain.windows(4).any(|of_plain| of_plain == part)));
        let open = |key: u8, nonce: Nonce, bound: &[u8]| {
            Cipher::new(&[key; 32])
                .decrypt(nonce, bound, &mut bytes.clone())
                .map(<[u8]>::to_vec)
                .ok()
        };
        assert_eq!(open(1, Nonce::counted(5, 0), b"page 5").as_deref(), Some(&plain[..]));
        assert_eq!(open(2, Nonce::counted(5, 0), b"page 5"), None, "another key");
        assert_eq!(open(1, Nonce::counted(6, 0), b"page 5"), None, "another count");
        assert_eq!(open(1, Nonce::counted(5, 1), b"page 5"), None, "another part");
        assert_eq!(open(1, Nonce::counted(5, 0), b"page 6"), None, "another place");
    }

    #[test]
    fn no_flipped_bit_and_no_shorter_piece_opens() {
        let bytes = encrypted(b"what a user stored");
        let opens = |mut bytes: Vec<u8>| {
            Cipher::new(&[1; 32]).decrypt(Nonce::counted(5, 0), b"page 5", &mut bytes).is_ok()
        };
        assert!(opens(bytes.clone()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(flipped), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(!opens(bytes[..length].to_vec()), "{length} bytes");
        }
    }
}
