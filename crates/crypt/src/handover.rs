//! Data keys on their way to another server, which has a master key of its own: encrypted for a pair of keys that it has
//! made for this one time.
//!
//! ```text
//! 0    u32   version, 1
//! 4    [32]  public key of who gives the data keys, made for this one time
//! 36   …     encrypted: [16] id of the directory · for each data key u16 number · [32] the key
//! …    [16]  tag
//! ```
//!
//! The key that they are encrypted with is derived by HKDF-SHA256 from what X25519 gives both sides, salted with both public
//! keys; it encrypts once, with the nonce 0.
//!
//! Always true: who listens learns nothing of the keys. That the other side is who it says is its caller's to know.

use crate::cipher::{Cipher, Nonce, TAG_BYTES};
use crate::error::{Error, Result};
use crate::master::{KEY_BYTES, MasterKey, Secret};
use crate::ring::{DIRECTORY_BYTES, KeyNumber, KeyRing, MOST_KEYS};
use crate::slot::{self, SLOT_BYTES};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hkdf;
use os::Entropy;
use zeroize::Zeroizing;

/// Bytes of a public key.
pub const PUBLIC_KEY_BYTES: usize = 32;
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 4 + PUBLIC_KEY_BYTES;
const RECORD_BYTES: usize = 2 + KEY_BYTES;
/// Says what the derived key is for.
const LABEL: &[u8] = b"fern data keys for another server";

/// The pair of keys of a server that asks for data keys.
pub struct KeyRequest {
    private: PrivateKey,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl KeyRequest {
    /// A new pair.
    pub fn new(entropy: &dyn Entropy) -> Self {
        let mut secret = Secret::default();
        entropy.fill(&mut *secret);
        let private = PrivateKey::from_private_key(&X25519, &*secret);
        let private = private.expect("any 32 bytes are a private key");
        let public = private.compute_public_key().expect("a private key has a public one");
        let public = public.as_ref().try_into().expect("a public key has 32 bytes");
        Self { private, public }
    }

    /// What the other side encrypts for.
    pub fn public(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public
    }

    /// The data keys that came.
    ///
    /// # Errors
    /// They are of another version, damaged, or for somebody else.
    pub fn open(&self, given: &[u8]) -> Result<KeyRing> {
        let damaged = || Error::Damaged("data keys of another server are cut short");
        let (head, encrypted) = given.split_at_checked(HEAD_BYTES).ok_or_else(damaged)?;
        let (version, giver) = head.split_first_chunk().ok_or_else(damaged)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(Error::Newer(version));
        }
        let cipher = shared(&self.private, giver, &self.public, giver)?;
        let mut bytes = Zeroizing::new(encrypted.to_vec());
        ring_of(cipher.decrypt(Nonce::counted(0, 0), head, &mut bytes)?)
    }
}

impl std::fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyRequest")
    }
}

impl KeyRing {
    /// The data keys, for who has made this public key.
    ///
    /// # Errors
    /// It is none.
    pub fn encrypt_for(
        &self,
        receiver: &[u8; PUBLIC_KEY_BYTES],
        entropy: &dyn Entropy,
    ) -> Result<Vec<u8>> {
        let own = KeyRequest::new(entropy);
        let cipher = shared(&own.private, receiver, receiver, &own.public)?;
        let keys = self.keys();
        let length = DIRECTORY_BYTES + keys.len() * RECORD_BYTES;
        let mut plain = Zeroizing::new(Vec::with_capacity(length));
        plain.extend_from_slice(&self.directory);
        for (number, key) in &*keys {
            plain.extend_from_slice(&number.0.to_le_bytes());
            plain.extend_from_slice(&**key);
        }
        let mut out = Vec::with_capacity(HEAD_BYTES + length + TAG_BYTES);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&own.public);
        let tag = cipher.encrypt(Nonce::counted(0, 0), &out, &mut plain)?;
        out.extend_from_slice(&plain);
        out.extend_from_slice(&tag);
        Ok(out)
    }

    /// The bytes of a new `fern.keys` with these data keys, wrapped by a master key.
    ///
    /// # Errors
    /// Never for keys that a file has held.
    pub fn to_file(&self, master: &MasterKey, entropy: &dyn Entropy) -> Result<Vec<u8>> {
        let slot: Box<[u8; SLOT_BYTES]> = slot::encode(self, master, 1, entropy)?;
        Ok([*slot, *slot].concat())
    }
}

/// What both sides can compute and nobody else.
fn shared(private: &PrivateKey, other: &[u8], receiver: &[u8], giver: &[u8]) -> Result<Cipher> {
    let other = UnparsedPublicKey::new(&X25519, other);
    agree(private, other, Error::NotAuthentic, |agreed| {
        let salt = [receiver, giver].concat();
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(agreed);
        let mut key = Secret::default();
        extracted
            .expand(&[LABEL], hkdf::HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut *key))
            .expect("HKDF with SHA-256 gives 32 bytes");
        Ok(Cipher::new(&key))
    })
}

fn ring_of(plain: &[u8]) -> Result<KeyRing> {
    let wrong = || Error::Damaged("data keys of another server are not in order");
    let (directory, rest) = plain.split_first_chunk::<DIRECTORY_BYTES>().ok_or_else(wrong)?;
    let (records, left) = rest.as_chunks::<RECORD_BYTES>();
    if !left.is_empty() || !(1..=MOST_KEYS).contains(&records.len()) {
        return Err(wrong());
    }
    let mut keys: Vec<(KeyNumber, Secret)> = Vec::with_capacity(records.len());
    for record in records {
        let (number, bytes) = record.split_at(2);
        let number = KeyNumber(u16::from_le_bytes([number[0], number[1]]));
        let least = keys.last().map_or(1, |(last, _)| last.0.saturating_add(1));
        if number.0 < least {
            return Err(wrong());
        }
        let mut key = Secret::default();
        key.copy_from_slice(bytes);
        keys.push((number, key));
    }
    Ok(KeyRing::of(*directory, keys))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys_file::{FILE_NAME, KeysFile};
    use crate::ring::Purpose;
    use os::sim::SimOs;
    use os::{OpenOptions, Os};
    use std::path::Path;

    fn ring(os: &Os) -> KeyRing {
        let ring = KeyRing::new(&*os.entropy);
        ring.add(&*os.entropy).unwrap();
        ring
    }

    fn same(one: &KeyRing, other: &KeyRing) -> bool {
        one.directory == other.directory && *one.keys() == *other.keys()
    }

    #[test]
    fn keys_come_to_who_asked_for_them_and_to_nobody_else() {
        let os = SimOs::new(1).os();
        let (ring, request) = (ring(&os), KeyRequest::new(&*os.entropy));
        let given = ring.encrypt_for(request.public(), &*os.entropy).unwrap();
        assert!(same(&request.open(&given).unwrap(), &ring));
        for (_, key) in &*ring.keys() {
            assert!(!given.windows(KEY_BYTES).any(|part| part == **key), "nothing is plain");
        }
        let other = KeyRequest::new(&*os.entropy);
        assert!(matches!(other.open(&given), Err(Error::NotAuthentic)));
        for at in 0..given.len() {
            let mut changed = given.clone();
            changed[at] ^= 1;
            assert!(request.open(&changed).is_err(), "byte {at}");
            assert!(request.open(&given[..at]).is_err(), "{at} bytes");
        }
        // A public key that would make what is agreed on known to everybody.
        assert!(ring.encrypt_for(&[0; 32], &*os.entropy).is_err());
    }

    #[test]
    fn another_master_key_wraps_what_has_come() {
        let os = SimOs::new(1).os();
        let master = MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).unwrap();
        let ring = ring(&os);
        let directory = Path::new("/data");
        os.vfs.create_dir_all(directory).unwrap();
        let options = OpenOptions { create: true, ..OpenOptions::default() };
        let file = os.vfs.open(&directory.join(FILE_NAME), options).unwrap();
        file.write_all_at(&ring.to_file(&master, &*os.entropy).unwrap(), 0).unwrap();
        let opened = KeysFile::open(&os, directory, &master).unwrap().into_ring();
        assert!(same(&opened, &ring));
        // What was encrypted before is decrypted with it.
        let fresh = ring.fresh(Purpose::Log, &*os.entropy);
        let mut bytes = b"a record".to_vec();
        let tag = fresh.cipher.encrypt(Nonce::counted(1, 0), b"", &mut bytes).unwrap();
        bytes.extend(tag);
        let again = opened.cipher(fresh.number, Purpose::Log, &fresh.salt).unwrap();
        assert_eq!(again.decrypt(Nonce::counted(1, 0), b"", &mut bytes).unwrap(), b"a record");
    }
}
