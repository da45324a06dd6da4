//! A root, or a change of one, as an encrypted file stores it behind its link: roots have keys of documents.
//!
//! ```text
//! 0   u32   number of the data key
//! 4   [16]  salt
//! 20  …     root, encrypted
//! …   [16]  tag
//! ```
//!
//! Always true: each is encrypted with a key of its own, derived from its salt; generation and link are
//! bound to the tag. The blob's checksum is of the encrypted bytes.
//!
//! On disk: `docs/formats/superblock.md`, section "encrypted files".

use crypt::{KeyNumber, KeyRing, Nonce, Purpose, SALT_BYTES};
use os::Entropy;

/// Which blob it is: the bytes of its link, and its generation.
type Place<'a> = (&'a [u8], u64);

fn bound((link, generation): Place<'_>) -> Vec<u8> {
    [link, &generation.to_le_bytes()].concat()
}

/// The bytes of a root as they are stored behind the link.
pub fn encrypt_root(
    keys: &KeyRing,
    entropy: &dyn Entropy,
    place: Place<'_>,
    root: &[u8],
) -> Vec<u8> {
    let fresh = keys.fresh(Purpose::DataFile, entropy);
    let mut out = u32::from(fresh.number.0).to_le_bytes().to_vec();
    out.extend_from_slice(&fresh.salt);
    let start = out.len();
    out.extend_from_slice(root);
    let nonce = Nonce::counted(place.1, 0);
    let tag = fresh.cipher.encrypt(nonce, &bound(place), &mut out[start..]);
    out.extend_from_slice(&tag.expect("a root is shorter than what the cipher can encrypt"));
    out
}

/// The root of stored bytes; the error says what is wrong.
pub fn decrypt_root(
    keys: &KeyRing,
    place: Place<'_>,
    stored: &[u8],
) -> Result<Vec<u8>, &'static str> {
    let short = "an encrypted root is cut short";
    let (number, rest) = stored.split_first_chunk().ok_or(short)?;
    let (salt, encrypted) = rest.split_first_chunk::<SALT_BYTES>().ok_or(short)?;
    let missing = "a root is encrypted with a key that is not there";
    let number = u16::try_from(u32::from_le_bytes(*number)).map_err(|_| missing)?;
    let cipher = keys.cipher(KeyNumber(number), Purpose::DataFile, salt).map_err(|_| missing)?;
    let mut bytes = encrypted.to_vec();
    let plain = cipher.decrypt(Nonce::counted(place.1, 0), &bound(place), &mut bytes);
    let length = plain.map_err(|_| "a root does not decrypt")?.len();
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decrypt_root, encrypt_root};
    use crypt::{KeysFile, MasterKey};
    use os::sim::SimOs;
    use std::path::Path;

    #[test]
    fn a_root_comes_back_in_its_place_and_unchanged_alone() {
        let os = SimOs::new(1).os();
        let master = MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).unwrap();
        os.vfs.create_dir_all(Path::new("/d")).unwrap();
        let keys = KeysFile::create(&os, Path::new("/d"), &master).unwrap().into_ring();
        let root = b"least and greatest key";
        let stored = encrypt_root(&keys, &*os.entropy, (b"link", 7), root);
        assert!(!stored.windows(5).any(|bytes| bytes == b"least"));
        assert_eq!(decrypt_root(&keys, (b"link", 7), &stored).unwrap(), root);
        assert!(decrypt_root(&keys, (b"link", 8), &stored).is_err(), "another generation");
        assert!(decrypt_root(&keys, (b"Link", 7), &stored).is_err(), "another link");
        for bit in 0..stored.len() * 8 {
            let mut bad = stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decrypt_root(&keys, (b"link", 7), &bad).is_err(), "bit {bit}");
        }
        for length in 0..stored.len() {
            assert!(decrypt_root(&keys, (b"link", 7), &stored[..length]).is_err());
        }
        let empty = encrypt_root(&keys, &*os.entropy, (b"link", 7), b"");
        assert_eq!(decrypt_root(&keys, (b"link", 7), &empty).unwrap(), b"");
    }
}
