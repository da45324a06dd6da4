//! Signatures of the cluster's times: who has not got a time from a member of the set cannot make one up.
//!
//! The keys are derived from a secret that the set keeps, one for each 90 days of the times that are signed. So a time says
//! by which key it is signed, and no key is stored, made or thrown away.
//!
//! Always true:
//! 1. The number of a key is above 0: 0 stands in what is not signed.
//! 2. A signature holds for a *block* of times, those of a second that differ in the lower 20 bits of the counter: one is
//!    made for many commits, and whoever has one could name a time that is later by less than a second.
//!
//! What is signed, and with what: `docs/formats/shared-secret.md`.

use crate::secret::{Secret, keyed_digest};
use subtle::ConstantTimeEq;

/// Seconds for which a key signs: 90 days.
const KEY_SECONDS: u64 = 90 * 24 * 3600;
/// The bits of a time that its signature does not depend on.
const BLOCK_MASK: u64 = 0xf_ffff;

/// The keys that times are signed with.
#[derive(Debug)]
pub struct TimeKeys(Secret);

/// A signature, as clients bring it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeSignature {
    /// The beginning of a keyed digest.
    pub hash: [u8; TimeSignature::HASH_BYTES],
    /// The number of the key.
    pub key_id: i64,
}

/// Why a signature does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeFlaw {
    /// No such key signs this time.
    UnknownKey,
    /// The key has not signed this time.
    Mismatch,
}

impl TimeSignature {
    /// As long as MongoDB's.
    pub const HASH_BYTES: usize = 20;
    /// What stands in the place of a signature where nothing is signed.
    pub const NONE: Self = Self { hash: [0; Self::HASH_BYTES], key_id: 0 };
}

impl TimeKeys {
    /// The keys of a secret that a set keeps.
    pub fn of(shared: &Secret) -> Self {
        Self(Secret::new(keyed_digest(shared, &[b"cluster times"]).to_vec()))
    }

    /// The times that share a signature with this one, as one number. A time has its seconds above and its counter below.
    pub fn block_of(time: u64) -> u64 {
        time | BLOCK_MASK
    }

    /// Signs a time.
    pub fn sign(&self, time: u64) -> TimeSignature {
        let key_id = key_of(time);
        let key = Secret::new(keyed_digest(&self.0, &[&key_id.to_le_bytes()]).to_vec());
        let digest = keyed_digest(&key, &[&Self::block_of(time).to_le_bytes()]);
        let mut hash = [0; TimeSignature::HASH_BYTES];
        hash.copy_from_slice(&digest[..TimeSignature::HASH_BYTES]);
        TimeSignature { hash, key_id }
    }

    /// Whether a signature is this set's, of this time.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, time: u64, given: &TimeSignature) -> Result<(), TimeFlaw> {
        if given.key_id != key_of(time) {
            return Err(TimeFlaw::UnknownKey);
        }
        let holds: bool = self.sign(time).hash.ct_eq(&given.hash).into();
        if holds { Ok(()) } else { Err(TimeFlaw::Mismatch) }
    }
}

/// The number of the key that signs a time.
fn key_of(time: u64) -> i64 {
    // A second has 32 bits: the number is small.
    ((time >> 32) / KEY_SECONDS).cast_signed() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secret: u8) -> TimeKeys {
        TimeKeys::of(&Secret::new(vec![secret; 32]))
    }

    #[test]
    fn a_signature_holds_for_its_second_and_for_nothing_later() {
        let (second, keys) = (1_800_000_000_u64, keys(7));
        let time = second << 32 | 5;
        let signature = keys.sign(time);
        assert!(signature.key_id > 0 && signature.hash != TimeSignature::NONE.hash);
        for (claimed, expected) in [
            (time, Ok(())),
            (time + 1, Ok(())),
            (second << 32 | BLOCK_MASK, Ok(())),
            ((second << 32) + BLOCK_MASK + 1, Err(TimeFlaw::Mismatch)),
            (time + (1 << 32), Err(TimeFlaw::Mismatch)),
            (time - (1 << 32), Err(TimeFlaw::Mismatch)),
            (time + (KEY_SECONDS << 32), Err(TimeFlaw::UnknownKey)),
            (u64::MAX, Err(TimeFlaw::UnknownKey)),
        ] {
            assert_eq!(keys.check(claimed, &signature), expected, "{claimed:x}");
        }
    }

    #[test]
    fn no_other_secret_key_or_hash_holds() {
        let time = 1_800_000_000_u64 << 32 | 5;
        let signature = keys(7).sign(time);
        assert_eq!(keys(8).check(time, &signature), Err(TimeFlaw::Mismatch));
        for key_id in [0, -1, i64::MAX, signature.key_id + 1] {
            let other = TimeSignature { key_id, ..signature };
            assert_eq!(keys(7).check(time, &other), Err(TimeFlaw::UnknownKey), "{key_id}");
        }
        for at in 0..TimeSignature::HASH_BYTES {
            let mut other = signature;
            other.hash[at] ^= 1;
            assert_eq!(keys(7).check(time, &other), Err(TimeFlaw::Mismatch), "{at}");
        }
        assert!(keys(7).check(0, &TimeSignature::NONE).is_err());
    }

    #[test]
    fn golden_a_time_is_signed_as_it_was_by_earlier_versions() {
        let signature = keys(7).sign(1_800_000_000_u64 << 32 | 5);
        let hex = signature.hash.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert_eq!(
            (signature.key_id, hex.as_str()),
            (232, "78634d7a2fa6ff52e973e751d7aed6f12481ed4b")
        );
    }
}
