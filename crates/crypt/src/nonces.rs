//! For tests: every nonce that was used with every key of a ring.
//!
//! Always true: a nonce that is used a second time with the same key is a panic. A log outlives the rings
//! that it watches, so that a simulated crash and the next start are one run to it.

use crate::master::KEY_BYTES;
use aws_lc_rs::digest::{SHA256, digest};
use os::sync::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// A key, and a nonce that was used with it.
type Used = (u64, [u8; 12]);

/// What was used. Clones share it.
#[derive(Clone, Default)]
pub struct NonceLog(Arc<Mutex<HashSet<Used>>>);

impl NonceLog {
    /// Tells keys apart without keeping them.
    pub(crate) fn name_of(key: &[u8; KEY_BYTES]) -> u64 {
        let hash = digest(&SHA256, key);
        hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub(crate) fn used(&self, key: u64, nonce: [u8; 12]) {
        let is_new = self.0.lock().insert((key, nonce));
        assert!(is_new, "the nonce {nonce:02x?} was used twice with one key");
    }

    /// How many nonces were used.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether nothing was encrypted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for NonceLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NonceLog({})", self.len())
    }
}
