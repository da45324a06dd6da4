//! Blocked Bloom filters: is this key certainly not here? One cache line per question.
//!
//! A block is eight words of 64 bits; a key sets one bit in each word of one block. At ten bits
//! per key about one absent key in a hundred is let through.
//!
//! ```text
//! 0   u8   version, 1
//! 1   …    reserved, 0
//! 8   u64  number of blocks
//! 16  blocks × 8 × u64
//! ```
//!
//! On disk: `docs/formats/segment.md`.

use crate::bytes::{put_u64, u64_at};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
const BLOCK_BYTES: usize = 64;
const BITS_PER_KEY: usize = 10;

/// The filter's bytes for these key hashes.
pub(crate) fn build(hashes: &[u64]) -> Vec<u8> {
    let blocks = (hashes.len() * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8).max(1);
    let mut words = vec![0u64; blocks * 8];
    for hash in hashes {
        let block = block_of(*hash, blocks as u64) * 8;
        for (word, bit) in bits(*hash).enumerate() {
            words[block + word] |= bit;
        }
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + words.len() * 8);
    out.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
    put_u64(&mut out, blocks as u64);
    for word in words {
        put_u64(&mut out, word);
    }
    debug_assert!(check(&out).is_ok(), "a filter reads as it was written");
    debug_assert!(hashes.iter().all(|hash| may_contain(&out, *hash)), "what is in passes");
    out
}

/// Says what is wrong with a filter's bytes.
pub(crate) fn check(bytes: &[u8]) -> Result<(), &'static str> {
    let blocks = u64_at(bytes, 8).ok_or("filter is cut short")?;
    let length = blocks.checked_mul(BLOCK_BYTES as u64).and_then(|bytes| bytes.checked_add(16));
    if bytes[0] != VERSION || blocks == 0 || length != Some(bytes.len() as u64) {
        return Err("filter header does not fit the filter");
    }
    Ok(())
}

/// False where no key with this hash was added to the (checked) filter.
pub(crate) fn may_contain(bytes: &[u8], hash: u64) -> bool {
    debug_assert!(check(bytes).is_ok(), "a filter is checked when it is loaded");
    let blocks = (bytes.len() - HEADER_BYTES) / BLOCK_BYTES;
    let start = HEADER_BYTES + block_of(hash, blocks as u64) * BLOCK_BYTES;
    let (words, _) = bytes[start..start + BLOCK_BYTES].as_chunks::<8>();
    words.iter().zip(bits(hash)).all(|(word, bit)| u64::from_le_bytes(*word) & bit != 0)
}

fn block_of(hash: u64, blocks: u64) -> usize {
    ((u128::from(hash) * u128::from(blocks)) >> 64) as usize
}

/// One bit per word, from hash bits that do not choose the block.
fn bits(hash: u64) -> impl Iterator<Item = u64> {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..8u32).map(move |word| 1 << (mixed >> (16 + 6 * word) & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::hash;

    #[test]
    fn added_keys_pass_and_few_others_do() {
        let hashes: Vec<u64> = (0..20_000u64).map(|i| hash(&i.to_be_bytes())).collect();
        let filter = build(&hashes);
        check(&filter).unwrap();
        assert!(filter.len() < 20_000 * 11 / 8);
        assert!(hashes.iter().all(|hash| may_contain(&filter, *hash)));
        let wrong = (20_000..40_000u64).filter(|i| may_contain(&filter, hash(&i.to_be_bytes())));
        let wrong = wrong.count();
        assert!(wrong < 20_000 * 2 / 100, "{wrong} of 20,000 absent keys let through");
    }

    #[test]
    fn damaged_header_is_refused() {
        let filter = build(&[1, 2, 3]);
        for cut in 0..filter.len() {
            assert!(check(&filter[..cut]).is_err(), "cut at {cut}");
        }
        for at in [0, 8, 15] {
            let mut bad = filter.clone();
            bad[at] ^= 0x40;
            assert!(check(&bad).is_err(), "byte {at}");
        }
    }
}
