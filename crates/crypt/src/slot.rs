//! One slot of `fern.keys`: the data keys of a data directory, wrapped by the master key. Bytes in,
//! bytes out.
//!
//! ```text
//! 0    [8]  magic "FERNKEYS"
//! 8    u32  format version, 1
//! 12   u16  cipher, 1: AES-256-GCM
//! 14   u16  number of data keys, 1 to 32
//! 16   u64  generation: 1 for a new file, +1 with each change
//! 24   [16] fingerprint of the master key
//! 40   [16] id of the data directory, random
//! 56   [8]  zeros
//! 64   64 bytes for each data key, numbers ascending:
//!        u32 number · [12] nonce · [32] the key, encrypted · [16] tag
//! …    zeros
//! 4088 u64  xxh3 of bytes 0..4088
//! ```
//!
//! Always true: a slot whose checksum is right is whole, key or not; one whose keys open was written
//! by somebody with the master key, as the header and a key's number are bound to each encrypted key.
//!
//! On disk: `docs/formats/keys.md`.

use crate::cipher::{Cipher, NONCE_BYTES, Nonce, TAG_BYTES};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::master::{KEY_BYTES, MasterKey, Secret};
use crate::ring::{DIRECTORY_BYTES, KeyNumber, KeyRing, MOST_KEYS};
use os::Entropy;
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroizing;

/// Bytes of a slot; the file is two.
pub(crate) const SLOT_BYTES: usize = 4096;
/// The format this program writes.
const VERSION: u32 = 1;
const CIPHER_AES_256_GCM: u16 = 1;
const MAGIC: &[u8; 8] = b"FERNKEYS";
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 4 + NONCE_BYTES + KEY_BYTES + TAG_BYTES;
const SUM_AT: usize = SLOT_BYTES - 8;
/// Numbers that only count up are far below this.
const MOST_CHANGES: u64 = 1 << 62;

const _: () = assert!(HEADER_BYTES + MOST_KEYS * RECORD_BYTES <= SUM_AT);

pub(crate) type SlotBytes = [u8; SLOT_BYTES];

/// A slot that is whole, not yet opened.
#[derive(PartialEq, Eq, Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) bytes: Box<SlotBytes>,
    pub(crate) generation: u64,
    pub(crate) fingerprint: Fingerprint,
    directory: [u8; DIRECTORY_BYTES],
    count: usize,
}

/// What the two slots of a file say.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) newest: Slot,
    /// Which of the two slots says something else, and must be written again.
    pub(crate) repair: Option<usize>,
}

/// The bytes of a slot with these keys.
pub(crate) fn encode(
    ring: &KeyRing,
    master: &MasterKey,
    generation: u64,
    entropy: &dyn Entropy,
) -> Result<Box<SlotBytes>> {
    let keys = ring.keys();
    assert!((1..=MOST_KEYS).contains(&keys.len()), "a ring has 1 to 32 keys");
    let mut out = Box::new([0; SLOT_BYTES]);
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..14].copy_from_slice(&CIPHER_AES_256_GCM.to_le_bytes());
    out[14..16].copy_from_slice(&(keys.len() as u16).to_le_bytes());
    out[16..24].copy_from_slice(&generation.to_le_bytes());
    out[24..40].copy_from_slice(&master.fingerprint().0);
    out[40..56].copy_from_slice(&ring.directory);
    let cipher = Cipher::new(master.secret());
    let (header, records) = out.split_at_mut(HEADER_BYTES);
    for ((number, key), record) in keys.iter().zip(records.chunks_exact_mut(RECORD_BYTES)) {
        let nonce = Nonce::random(entropy);
        let mut encrypted = key.clone();
        let tag = cipher.encrypt(nonce, &bound(header, *number), &mut *encrypted)?;
        record[..4].copy_from_slice(&u32::from(number.0).to_le_bytes());
        record[4..16].copy_from_slice(nonce.bytes());
        record[16..48].copy_from_slice(&*encrypted);
        record[48..].copy_from_slice(&tag);
    }
    let sum = xxh3_64(&out[..SUM_AT]);
    out[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    Ok(out)
}

/// What is bound to an encrypted key.
fn bound(header: &[u8], number: KeyNumber) -> Vec<u8> {
    [header, &u32::from(number.0).to_le_bytes()].concat()
}

impl Slot {
    /// Reads one slot without a key.
    fn decode(bytes: &SlotBytes) -> Result<Self> {
        let u32_at = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let u16_at = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u16::from_le_bytes(*b));
        let u64_at = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let sixteen = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
        if &bytes[..8] != MAGIC {
            return Err(Error::Damaged("it does not begin as one"));
        }
        if xxh3_64(&bytes[..SUM_AT]) != u64_at(SUM_AT) {
            return Err(Error::Damaged("its checksum is wrong"));
        }
        if u32_at(8) != VERSION || u16_at(12) != CIPHER_AES_256_GCM {
            return Err(Error::Newer(u32_at(8)));
        }
        let (count, generation) = (usize::from(u16_at(14)), u64_at(16));
        if !(1..=MOST_KEYS).contains(&count) || !(1..MOST_CHANGES).contains(&generation) {
            return Err(Error::Damaged("its numbers cannot be"));
        }
        Ok(Self {
            bytes: Box::new(*bytes),
            generation,
            fingerprint: Fingerprint(sixteen(24)),
            directory: sixteen(40),
            count,
        })
    }

    /// Opens the keys.
    pub(crate) fn unwrap(&self, master: &MasterKey) -> Result<KeyRing> {
        let given = master.fingerprint();
        if self.fingerprint != given {
            return Err(Error::OtherMaster { made_with: self.fingerprint, given });
        }
        let cipher = Cipher::new(master.secret());
        let (header, records) = self.bytes.split_at(HEADER_BYTES);
        let mut keys: Vec<(KeyNumber, Secret)> = Vec::with_capacity(self.count);
        for record in records.chunks_exact(RECORD_BYTES).take(self.count) {
            let number = record.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let number = u16::try_from(number);
            let number = number.map_err(|_| Error::Damaged("its keys have numbers too great"))?;
            let number = KeyNumber(number);
            if number.0 == 0 || keys.last().is_some_and(|(before, _)| *before >= number) {
                return Err(Error::Damaged("its keys are out of order"));
            }
            let nonce = record[4..].first_chunk().copied().unwrap_or_default();
            let mut encrypted = Zeroizing::new([0; KEY_BYTES + TAG_BYTES]);
            encrypted.copy_from_slice(&record[16..]);
            let plain =
                cipher.decrypt(Nonce::stored(nonce), &bound(header, number), &mut *encrypted)?;
            let mut key = Secret::default();
            key.copy_from_slice(plain);
            keys.push((number, key));
        }
        Ok(KeyRing::of(self.directory, keys))
    }
}

/// What the two slots of a file say. The one of the higher generation holds; with none whole, what is
/// encrypted in the data directory cannot be read any more.
pub(crate) fn read(slots: &[SlotBytes; 2]) -> Result<Found> {
    match (Slot::decode(&slots[0]), Slot::decode(&slots[1])) {
        (Ok(a), Ok(b)) if a.directory != b.directory => {
            Err(Error::Damaged("its two slots are of two data directories"))
        }
        (Ok(a), Ok(b)) if a == b => Ok(Found { newest: a, repair: None }),
        (Ok(a), Ok(b)) if b.generation > a.generation => Ok(Found { newest: b, repair: Some(0) }),
        // A whole slot of a newer program is no damage: it may hold a newer key.
        (Err(newer @ Error::Newer(_)), _) | (_, Err(newer @ Error::Newer(_))) => Err(newer),
        (Ok(a), _) => Ok(Found { newest: a, repair: Some(1) }),
        (Err(_), Ok(b)) => Ok(Found { newest: b, repair: Some(0) }),
        (Err(error), Err(_)) => Err(error),
    }
}

#[cfg(test)]
mod tests;
