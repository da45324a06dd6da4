//! The hash of maps and sets in memory whose keys clients choose.
//!
//! Always true: its secret is the process's own, so nobody outside can choose keys that all fall in one
//! slot and make a map a list. Clippy refuses the hash's builders that everybody can predict. Nothing
//! that is stored or shown may depend on it: a process hashes otherwise after each start.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64_with_secret;

/// As many as the hash's own default secret has.
const SECRET_BYTES: usize = 192;

struct Secret {
    bytes: [u8; SECRET_BYTES],
    start: u64,
    factor: u64,
}

impl Secret {
    const fn of(random: [u8; SECRET_BYTES + 16]) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        let (mut start, mut factor) = (0, 0);
        let mut at = 0;
        while at < SECRET_BYTES + 16 {
            let byte = random[at];
            match at {
                0..SECRET_BYTES => bytes[at] = byte,
                at if at % 2 == 0 => start = start << 8 | byte as u64,
                _ => factor = factor << 8 | byte as u64,
            }
            at += 1;
        }
        Self { bytes, start, factor: factor | 1 }
    }
}

static SECRET: OnceLock<Secret> = OnceLock::new();

/// For tests, and programs whose keys no client chooses.
static KNOWN: Secret = Secret::of({
    let mut bytes = [0; SECRET_BYTES + 16];
    let (mut state, mut at) = (0x9E37_79B9_7F4A_7C15_u64, 0);
    while at < bytes.len() {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        bytes[at] = (state >> 56) as u8;
        at += 1;
    }
    bytes
});

/// Gives the process its secret, from what fills bytes at random. The first call counts.
pub fn seed_hashes(fill: impl FnOnce(&mut [u8])) {
    SECRET.get_or_init(|| {
        let mut random = [0; SECRET_BYTES + 16];
        fill(&mut random);
        Secret::of(random)
    });
}

/// Has the process a secret of its own?
pub fn hashes_are_seeded() -> bool {
    SECRET.get().is_some()
}

/// Makes hashes of clients' keys. A map keeps the secret that it began with.
#[derive(Clone, Copy)]
pub struct KeyHashing(&'static Secret);

impl Default for KeyHashing {
    fn default() -> Self {
        Self(SECRET.get().unwrap_or(&KNOWN))
    }
}

impl std::fmt::Debug for KeyHashing {
    /// Nobody learns the secret from a log.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("KeyHashing")
    }
}

impl BuildHasher for KeyHashing {
    type Hasher = KeyHash;

    fn build_hasher(&self) -> KeyHash {
        KeyHash { secret: self.0, state: self.0.start }
    }
}

/// The hash of one key.
pub struct KeyHash {
    secret: &'static Secret,
    state: u64,
}

impl KeyHash {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.state ^ value) * u128::from(self.secret.factor);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for KeyHash {
    fn write(&mut self, bytes: &[u8]) {
        self.mix(xxh3_64_with_secret(bytes, &self.secret.bytes));
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

/// A map whose keys clients choose.
pub type KeyMap<K, V> = std::collections::HashMap<K, V, KeyHashing>;
/// A set whose members clients choose.
pub type KeySet<K> = std::collections::HashSet<K, KeyHashing>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash;

    /// A process of its own, as far as its secret goes.
    fn process(seed: u64) -> KeyHashing {
        let mut state = seed;
        let random = std::array::from_fn(|_| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(seed | 1);
            (state >> 56) as u8
        });
        KeyHashing(Box::leak(Box::new(Secret::of(random))))
    }

    /// As an attacker would who knew the secret of one: keys of one slot of a table of 4,096.
    fn check<K: Hash>(keys: impl Iterator<Item = K>) {
        let slot = |of: &KeyHashing, key: &K| of.hash_one(key) & 0xfff;
        let (one, other) = (process(1), process(2));
        let chosen: Vec<K> = keys.filter(|key| slot(&one, key) == 7).collect();
        // Evenly spread there would be 97.
        assert!((49..195).contains(&chosen.len()), "{}", chosen.len());
        let met = chosen.iter().filter(|key| slot(&other, key) == slot(&other, &chosen[0])).count();
        assert!(met <= 5, "{met} of {} meet again", chosen.len());
    }

    #[test]
    fn keys_that_meet_under_one_secret_do_not_under_another() {
        check((0..400_000_u32).map(|n| n.to_be_bytes().to_vec()));
        check((0..400_000_u32).map(|n| format!("{n:>300}")));
        check(0..400_000_usize);
        check((0..400_000_usize).map(|n| n << 32));
    }

    #[test]
    fn the_parts_of_a_key_are_told_apart() {
        let of = process(1);
        assert_ne!(of.hash_one(("ab", "c")), of.hash_one(("a", "bc")));
        assert_ne!(of.hash_one([1_u8, 2]), of.hash_one([2_u8, 1]));
        assert_eq!(of.hash_one("key"), of.hash_one(String::from("key")));
    }

    #[test]
    fn the_first_seed_counts() {
        seed_hashes(|bytes| bytes.fill(7));
        let first = KeyHashing::default().hash_one("key");
        seed_hashes(|bytes| bytes.fill(9));
        assert!(hashes_are_seeded());
        assert_eq!(KeyHashing::default().hash_one("key"), first);
    }
}
