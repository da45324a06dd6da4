//! A temporary file whose bytes are encrypted with a key that is stored nowhere.
//!
//! ```text
//! block 0 · block 1 · …        each BLOCK_BYTES, encrypted, and a tag of 16 bytes
//! ```
//!
//! Always true: a block is encrypted once, when it is full, with its number as the nonce; what does not fill
//! one is in memory. Nothing of the file can be read once the spill is dropped.

use super::SpillStorage;
use crypt::{Cipher, Nonce, TAG_BYTES};
use errors::{Code, Error, Result};
use os::Entropy;

/// Bytes that are encrypted together, and decrypted to read any of them.
const BLOCK_BYTES: usize = 16 << 10;
const STORED_BYTES: usize = BLOCK_BYTES + TAG_BYTES;

/// A spill over another one, which gets whole encrypted blocks.
pub struct EncryptedSpill {
    storage: Box<dyn SpillStorage>,
    cipher: Cipher,
    /// Blocks in the storage.
    blocks: u64,
    /// What is behind them: less than a block.
    tail: Vec<u8>,
}

impl EncryptedSpill {
    /// Over an empty spill, with a random key.
    pub fn new(storage: Box<dyn SpillStorage>, entropy: &dyn Entropy) -> Self {
        Self { storage, cipher: Cipher::temporary(entropy), blocks: 0, tail: Vec::new() }
    }

    fn end_of_blocks(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }

    /// Encrypts the whole blocks of the tail and appends them together.
    fn write_blocks(&mut self) -> Result<()> {
        let whole = self.tail.len() / BLOCK_BYTES;
        let mut stored = Vec::with_capacity(whole * STORED_BYTES);
        for (number, block) in (self.blocks..).zip(self.tail.chunks_exact(BLOCK_BYTES)) {
            let start = stored.len();
            stored.extend_from_slice(block);
            let tag = self.cipher.encrypt(Nonce::counted(number, 0), &[], &mut stored[start..]);
            stored.extend_from_slice(&tag.map_err(|_| damaged())?);
        }
        // Numbers that were used are not used again, also where the disk is full.
        self.blocks += whole as u64;
        self.tail.drain(..whole * BLOCK_BYTES);
        self.storage.append(&stored).map(drop)
    }

    /// Decrypts a block into `out`.
    fn read_block(&self, number: u64, out: &mut Vec<u8>) -> Result<()> {
        out.resize(STORED_BYTES, 0);
        let read = self.storage.read_at(number * STORED_BYTES as u64, out)?;
        let plain = self.cipher.decrypt(Nonce::counted(number, 0), &[], &mut out[..read]);
        let length = plain.map_err(|_| damaged())?.len();
        out.truncate(length);
        if length == BLOCK_BYTES { Ok(()) } else { Err(damaged()) }
    }
}

impl SpillStorage for EncryptedSpill {
    fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.end_of_blocks() + self.tail.len() as u64;
        self.tail.extend_from_slice(bytes);
        if self.tail.len() >= BLOCK_BYTES {
            self.write_blocks()?;
        }
        Ok(at)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (mut filled, mut block) = (0, Vec::new());
        while filled < buf.len() {
            let at = offset + filled as u64;
            let (from, within) = if let Some(within) = at.checked_sub(self.end_of_blocks()) {
                (&self.tail, within as usize)
            } else {
                self.read_block(at / BLOCK_BYTES as u64, &mut block)?;
                (&block, (at % BLOCK_BYTES as u64) as usize)
            };
            let there = from.get(within..).unwrap_or_default();
            let take = there.len().min(buf.len() - filled);
            if take == 0 {
                break;
            }
            buf[filled..filled + take].copy_from_slice(&there[..take]);
            filled += take;
        }
        Ok(filled)
    }
}

fn damaged() -> Error {
    Error::new(Code::INTERNAL_ERROR, "a temporary file does not decrypt: it was changed")
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, EncryptedSpill, STORED_BYTES, SpillStorage};
    use crate::spill::FileSpill;
    use os::sim::SimOs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    const PATH: &str = "/tmp/spill";
    const MARKER: &[u8] = b"a name of somebody";

    fn spill(sim: &SimOs) -> EncryptedSpill {
        let os = sim.os();
        os.vfs.create_dir_all(Path::new("/tmp")).unwrap();
        let file = FileSpill::create(Arc::clone(&os.vfs), PathBuf::from(PATH)).unwrap();
        EncryptedSpill::new(Box::new(file), &*os.entropy)
    }

    #[test]
    fn what_is_appended_is_read_anywhere_and_is_not_on_disk() {
        let sim = SimOs::new(1);
        let mut spill = spill(&sim);
        let mut all = Vec::new();
        for repeats in [1, 0, 300, 7, 5000, 2, 900, 911] {
            let bytes = MARKER.repeat(repeats);
            assert_eq!(spill.append(&bytes).unwrap(), all.len() as u64);
            all.extend(bytes);
        }
        assert!(all.len() > 5 * BLOCK_BYTES, "several blocks, and a tail");
        let edges = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 5, all.len()];
        for from in edges {
            for length in [0, 1, 100, BLOCK_BYTES, 4 * BLOCK_BYTES, all.len()] {
                let mut buf = vec![0; length];
                let read = spill.read_at(from as u64, &mut buf).unwrap();
                let to = all.len().min(from + length);
                assert_eq!(buf[..read], all[from..to], "{length} bytes from {from}");
            }
        }
        let stored = sim.files().remove(&PathBuf::from(PATH)).unwrap();
        assert_eq!(stored.len() % STORED_BYTES, 0);
        assert!(!stored.windows(MARKER.len()).any(|part| part == MARKER));
    }

    #[test]
    fn a_flipped_bit_or_a_block_in_another_place_is_an_error() {
        let sim = SimOs::new(1);
        let mut spill = spill(&sim);
        spill.append(&MARKER.repeat(2 * BLOCK_BYTES / MARKER.len() + 1)).unwrap();
        let read = |spill: &EncryptedSpill| spill.read_at(0, &mut [0; 10]);
        assert_eq!(read(&spill).unwrap(), 10);
        sim.flip_bit(&PathBuf::from(PATH), 5000, 3).unwrap();
        assert!(read(&spill).unwrap_err().message().contains("does not decrypt"));
        sim.flip_bit(&PathBuf::from(PATH), 5000, 3).unwrap();
        sim.copy_within(&PathBuf::from(PATH), STORED_BYTES as u64, 0, STORED_BYTES).unwrap();
        assert!(read(&spill).is_err());
    }
}
