//! The data keys of one data directory, and the keys that are derived from them.
//!
//! Always true: data keys have ascending numbers from 1, and there are 1 to [`MOST_KEYS`] of them. None goes; newer ones
//! may come while others use the ring ([`KeyRing::take_newer`]).

use crate::cipher::Cipher;
use crate::error::{Error, Result};
use crate::master::Secret;
use crate::nonces::NonceLog;
use aws_lc_rs::hkdf;
use os::Entropy;
use os::sync::{RwLock, RwLockReadGuard};

/// So many data keys fit into `fern.keys`.
pub const MOST_KEYS: usize = 32;
/// Bytes of the salt that a key is derived with.
pub const SALT_BYTES: usize = 16;
/// Bytes of a data directory's id.
pub(crate) const DIRECTORY_BYTES: usize = 16;

/// Which data key; stored beside what is encrypted with a key derived from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyNumber(pub u16);

/// What a derived key is for. Keys of different purposes have nothing to do with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Segments and blobs of the data file.
    DataFile,
    /// The redo log.
    Log,
}

impl Purpose {
    /// On disk by what is encrypted with it: never changed.
    fn label(self) -> &'static [u8] {
        match self {
            Self::DataFile => b"fern data file\0",
            Self::Log => b"fern log\0",
        }
    }
}

/// A data directory's data keys.
pub struct KeyRing {
    /// Random, of the data directory.
    pub(crate) directory: [u8; DIRECTORY_BYTES],
    /// By number, ascending.
    keys: RwLock<Vec<(KeyNumber, Secret)>>,
    /// A test's: see [`NonceLog`].
    watch: Option<NonceLog>,
}

/// A key that was derived for one thing that is written now: a segment, a blob, an epoch of the log.
/// Number and salt are stored beside what is encrypted; [`KeyRing::cipher`] derives the key again from them.
#[derive(Debug)]
pub struct FreshKey {
    /// The data key that it is derived from.
    pub number: KeyNumber,
    /// Random: no two fresh keys are the same.
    pub salt: [u8; SALT_BYTES],
    /// Encrypts with it. Nonces are counted from the start.
    pub cipher: Cipher,
}

impl KeyRing {
    /// The first data key of a new data directory.
    pub(crate) fn new(entropy: &dyn Entropy) -> Self {
        let mut directory = [0; DIRECTORY_BYTES];
        entropy.fill(&mut directory);
        Self::of(directory, vec![(KeyNumber(1), random(entropy))])
    }

    /// These keys, of which there is at least one.
    pub(crate) fn of(directory: [u8; DIRECTORY_BYTES], keys: Vec<(KeyNumber, Secret)>) -> Self {
        assert!(!keys.is_empty(), "a ring has at least one key");
        Self { directory, keys: RwLock::new(keys), watch: None }
    }

    /// The keys, by number.
    pub(crate) fn keys(&self) -> RwLockReadGuard<'_, Vec<(KeyNumber, Secret)>> {
        self.keys.read()
    }

    /// Adds a random data key, which is the newest from here on.
    pub(crate) fn add(&self, entropy: &dyn Entropy) -> Result<()> {
        let mut keys = self.keys.write();
        if keys.len() == MOST_KEYS {
            return Err(Error::Full);
        }
        let newest = keys.last().map_or(0, |(number, _)| number.0);
        let next = newest.checked_add(1).ok_or(Error::Full)?;
        keys.push((KeyNumber(next), random(entropy)));
        Ok(())
    }

    /// Takes the keys of this directory that another ring has and this one has not: what is written from here on
    /// is encrypted with the newest of them. They must be on disk.
    pub fn take_newer(&self, other: &Self) {
        assert_eq!(self.directory, other.directory, "both are of one data directory");
        let mut keys = self.keys.write();
        let newest = keys.last().map(|(number, _)| *number);
        keys.extend(other.keys().iter().filter(|(number, _)| Some(*number) > newest).cloned());
    }

    /// How many data keys there are: at least one.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.keys().len()
    }

    /// The data key for what is encrypted from now on.
    pub fn newest(&self) -> KeyNumber {
        let keys = self.keys();
        let (number, _) = keys.last().expect("a ring has at least one key");
        *number
    }

    /// A key for one thing that is written now, derived from the newest data key.
    pub fn fresh(&self, purpose: Purpose, entropy: &dyn Entropy) -> FreshKey {
        let mut salt = [0; SALT_BYTES];
        entropy.fill(&mut salt);
        let number = self.newest();
        let cipher = self.cipher(number, purpose, &salt).expect("the ring has its newest key");
        FreshKey { number, salt, cipher }
    }

    /// Encrypts and decrypts with the key derived from a data key for a purpose and a salt: two salts have
    /// two keys, and each counts its own nonces.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`] where the ring lacks the data key.
    pub fn cipher(
        &self,
        number: KeyNumber,
        purpose: Purpose,
        salt: &[u8; SALT_BYTES],
    ) -> Result<Cipher> {
        Ok(Cipher::watched(&*self.derive(number, purpose, salt)?, self.watch.as_ref()))
    }

    /// The same keys; each nonce that is used is told to the log. For tests.
    #[must_use]
    pub fn watched_by(&self, log: &NonceLog) -> Self {
        let same = Self::of(self.directory, self.keys().clone());
        Self { watch: Some(log.clone()), ..same }
    }

    fn derive(&self, number: KeyNumber, purpose: Purpose, context: &[u8]) -> Result<Secret> {
        let keys = self.keys();
        let at = keys.binary_search_by_key(&number, |(number, _)| *number);
        let (_, key) = &keys[at.map_err(|_| Error::NoSuchKey(number.0.into()))?];
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &self.directory).extract(&**key);
        let info = [purpose.label(), context];
        let mut derived = Secret::default();
        extracted
            .expand(&info, hkdf::HKDF_SHA256)
            .and_then(|key| key.fill(&mut *derived))
            .expect("HKDF with SHA-256 gives 32 bytes");
        Ok(derived)
    }
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyRing({} keys, newest {})", self.len(), self.newest().0)
    }
}

fn random(entropy: &dyn Entropy) -> Secret {
    let mut key = Secret::default();
    entropy.fill(&mut *key);
    key
}

#[cfg(test)]
mod tests {
    use super::{KeyNumber, KeyRing, MOST_KEYS, Purpose, SALT_BYTES};
    use crate::cipher::Nonce;
    use crate::error::Error;
    use crate::master::Secret;
    use crate::nonces::NonceLog;
    use os::sim::SimOs;

    fn fixed() -> KeyRing {
        let key = |byte| Secret::from([byte; 32]);
        let keys = vec![(KeyNumber(1), key(1)), (KeyNumber(3), key(3))];
        KeyRing::of([9; 16], keys)
    }

    /// The expected bytes are RFC 5869's, computed with Python's `hmac` alone.
    #[test]
    fn derived_keys_are_those_of_hkdf_with_sha_256() {
        let derived = fixed().derive(KeyNumber(3), Purpose::Log, b"context").unwrap();
        let expected = "85b3121d3bea8572459917e0c4105194340bdaf365bb91f08b381000c9092039";
        for (at, byte) in derived.iter().enumerate() {
            assert_eq!(expected[2 * at..2 * at + 2], format!("{byte:02x}"), "byte {at}");
        }
    }

    #[test]
    fn every_key_purpose_and_context_has_a_key_of_its_own() {
        let ring = fixed();
        let mut seen = Vec::new();
        for number in [1, 3] {
            for purpose in [Purpose::DataFile, Purpose::Log] {
                for context in [&b""[..], b"a", b"b", b"ab"] {
                    let key = ring.derive(KeyNumber(number), purpose, context).unwrap();
                    assert!(!seen.contains(&key), "{number} {purpose:?} {context:?}");
                    seen.push(key);
                }
            }
        }
        let missing = ring.cipher(KeyNumber(2), Purpose::Log, &[0; SALT_BYTES]);
        assert!(matches!(missing, Err(Error::NoSuchKey(2))));
    }

    #[test]
    fn a_fresh_key_is_derived_again_from_what_is_stored_beside_it() {
        let (ring, os) = (fixed(), SimOs::new(1).os());
        let fresh = ring.fresh(Purpose::Log, &*os.entropy);
        let mut bytes = b"a record".to_vec();
        let tag = fresh.cipher.encrypt(Nonce::counted(1, 0), b"", &mut bytes).unwrap();
        bytes.extend(tag);
        let again = ring.cipher(fresh.number, Purpose::Log, &fresh.salt).unwrap();
        assert_eq!(again.decrypt(Nonce::counted(1, 0), b"", &mut bytes).unwrap(), b"a record");
        assert_ne!(ring.fresh(Purpose::Log, &*os.entropy).salt, fresh.salt);
    }

    #[test]
    #[should_panic(expected = "nonce")]
    fn a_nonce_that_is_used_twice_is_noticed() {
        let ring = fixed().watched_by(&NonceLog::default());
        let cipher = ring.cipher(KeyNumber(1), Purpose::Log, &[0; SALT_BYTES]).unwrap();
        cipher.encrypt(Nonce::counted(1, 0), b"", &mut [1]).unwrap();
        cipher.encrypt(Nonce::counted(2, 0), b"", &mut [1]).unwrap();
        let again = ring.cipher(KeyNumber(1), Purpose::Log, &[0; SALT_BYTES]).unwrap();
        again.encrypt(Nonce::counted(1, 0), b"", &mut [2]).unwrap();
    }

    #[test]
    fn a_ring_in_use_takes_the_keys_that_are_newer_than_its_own() {
        let (ring, os) = (fixed(), SimOs::new(1).os());
        let rotated = ring.watched_by(&NonceLog::default());
        rotated.add(&*os.entropy).unwrap();
        ring.take_newer(&rotated);
        ring.take_newer(&rotated);
        assert_eq!((ring.newest(), ring.len()), (KeyNumber(4), 3));
        assert_eq!(*ring.keys(), *rotated.keys());
        assert_eq!(ring.fresh(Purpose::Log, &*os.entropy).number, KeyNumber(4));
        ring.take_newer(&fixed());
        assert_eq!(ring.newest(), KeyNumber(4), "an older ring takes none away");
    }

    #[test]
    fn a_ring_takes_so_many_keys_and_no_more() {
        let os = SimOs::new(1).os();
        let ring = KeyRing::new(&*os.entropy);
        for number in 1..MOST_KEYS as u16 {
            assert_eq!(ring.newest(), KeyNumber(number));
            ring.add(&*os.entropy).unwrap();
        }
        assert!(matches!(ring.add(&*os.entropy), Err(Error::Full)));
    }
}
