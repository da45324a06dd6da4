//! The hash of keys for indexes in memory.
//!
//! Always true: its secret is the process's own, so nobody outside can choose keys that all meet in one
//! place and make an index a list. Filters on disk have a hash of their own, which must stay what it is
//! ([`crate::memtable::hash`]): keys chosen against those cost a page read in vain each, and no more.

use os::Entropy;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_secret;

/// As many as the hash's own default secret has.
const SECRET_BYTES: usize = 192;

/// Hashes keys with a secret; a clone has the same.
#[derive(Clone)]
pub struct KeyHasher(Arc<[u8; SECRET_BYTES]>);

impl KeyHasher {
    /// With a secret that nobody knows; under the simulator the seed's.
    pub fn new(entropy: &dyn Entropy) -> Self {
        let mut secret = [0; SECRET_BYTES];
        entropy.fill(&mut secret);
        Self(Arc::new(secret))
    }

    /// With a secret that everybody knows: for tests, and trees whose keys no client chooses.
    pub fn fixed() -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        Self(Arc::new(std::array::from_fn(|_| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 56) as u8
        })))
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_secret(key, &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_meet_under_one_secret_do_not_under_another() {
        let process = |seed| KeyHasher::new(&*os::sim::SimOs::new(seed).os().entropy);
        let (one, other) = (process(1), process(2));
        // As an attacker would who knew the secret: keys of one slot of a table of 4,096.
        let slot = |hasher: &KeyHasher, key: &u32| hasher.hash(&key.to_be_bytes()) & 0xfff;
        let chosen: Vec<u32> = (0..400_000).filter(|key| slot(&one, key) == 7).collect();
        assert!(chosen.len() > 64, "{}", chosen.len());
        let met = chosen.iter().filter(|key| slot(&other, key) == 7).count();
        assert!(met <= 4, "{met} of {} meet again", chosen.len());
        assert_eq!(one.hash(b"k"), process(1).hash(b"k"), "a seed's run can be repeated");
    }
}
