//! Long payloads are packed on their way: records have the names of documents' fields again and again.
//!
//! ```text
//! packed   block …            each but the last one of BLOCK bytes
//! block    length u32 │ one lz4 block
//! ```
//!
//! Always true: what is unpacked takes memory as it comes out, or a few times what came, never as it was promised; and
//! it is as long as it was promised.

pub(crate) mod older;

use std::cell::RefCell;

/// Payloads below this go as they are: packing would cost more than it saves.
pub(crate) const LEAST: usize = 4 << 10;
/// So many bytes are packed at once: what lz4 looks back over, and a little less, for which its table is the smaller one.
const BLOCK: usize = 60 << 10;
/// What is unpacked begins with so many bytes, or times what was packed, and at most doubles. Records become shorter by
/// less than that, and are unpacked in one step.
const FIRST_ROOM: usize = 64 << 10;
const FIRST_TIMES: usize = 8;

/// What a thread keeps that packs, and what it takes while it does, about.
pub const PACKING_BYTES: u64 = 80 << 10;

thread_local! {
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The packed form; `None` where it would not save an eighth.
pub(crate) fn pack(payload: &[u8]) -> Option<Box<[u8]>> {
    if payload.len() < LEAST {
        return None;
    }
    ROOM.with_borrow_mut(|room| {
        room.resize(lz4_flex::block::get_maximum_output_size(BLOCK), 0);
        let most = payload.len() - payload.len() / 8;
        let mut packed = Vec::with_capacity(most / 2);
        for block in payload.chunks(BLOCK) {
            let length = lz4_flex::block::compress_into(block, room).ok()?;
            if packed.len() + size_of::<u32>() + length > most {
                return None;
            }
            packed.extend_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
            packed.extend_from_slice(room.get(..length)?);
        }
        Some(packed.into())
    })
}

/// What was packed, which is so long; `None` where it is something else. `held` is told how much memory that takes.
pub(crate) fn unpack(
    mut packed: &[u8],
    length: usize,
    held: &mut dyn FnMut(usize),
) -> Option<Vec<u8>> {
    let first = packed.len().saturating_mul(FIRST_TIMES).max(FIRST_ROOM);
    let mut payload = Vec::new();
    while !packed.is_empty() {
        let (block_length, rest) = packed.split_first_chunk()?;
        let (block, rest) = rest.split_at_checked(u32::from_le_bytes(*block_length) as usize)?;
        packed = rest;
        let here = payload.len();
        let end = here + length.checked_sub(here)?.min(BLOCK);
        if end > payload.capacity() {
            let room = length.min(first.max(2 * here));
            held(room);
            payload.reserve_exact(room - here);
        }
        payload.resize(end, 0);
        let came = lz4_flex::block::decompress_into(block, payload.get_mut(here..)?).ok()?;
        if came == 0 || here + came != end {
            return None;
        }
    }
    (payload.len() == length).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(packed: &[u8], length: usize) -> Option<Vec<u8>> {
        unpack(packed, length, &mut |_| {})
    }

    fn payload(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at % 251) as u8 ^ (at / 1000) as u8).collect()
    }

    #[test]
    fn payloads_come_out_as_they_were_packed_one_after_the_other() {
        for bytes in [LEAST, 100_000, 5 << 20, LEAST] {
            let payload = payload(bytes);
            let packed = pack(&payload).unwrap();
            assert!(packed.len() < bytes / 2, "{bytes} bytes became {}", packed.len());
            assert_eq!(unpacked(&packed, bytes).as_ref(), Some(&payload));
        }
        // Far shorter than usual: room for it is made step by step.
        let zeros = vec![0; 3 << 20];
        let packed = pack(&zeros).unwrap();
        assert!(packed.len() < zeros.len() / 200);
        assert_eq!(unpacked(&packed, zeros.len()), Some(zeros));
    }

    #[test]
    fn what_is_short_or_would_not_become_shorter_goes_as_it_is() {
        assert_eq!(pack(&payload(LEAST - 1)), None);
        let mut seed = 1_u64;
        let noise = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(50_000).collect();
        assert_eq!(pack(&noise), None);
    }

    #[test]
    fn what_was_not_packed_is_refused() {
        let whole = payload(300_000);
        let packed = pack(&whole).unwrap();
        for length in [0, 1, whole.len() - 1, whole.len() + 1, whole.len() * 2] {
            assert_eq!(unpacked(&packed, length), None, "it is not {length} bytes long");
        }
        for length in [0, 3, 20, packed.len() - 1] {
            assert_eq!(unpacked(&packed[..length], whole.len()), None, "it has no end");
        }
        assert_eq!(unpacked(&[&packed[..], &[0]].concat(), whole.len()), None);
        let twice = [&packed[..], &packed[..]].concat();
        assert_eq!(unpacked(&twice, 2 * whole.len()), None, "two of them");
        assert_eq!(unpacked(&whole, 10), None);
        assert_eq!(unpacked(&packed, whole.len()), Some(whole), "it goes on after that");
    }

    #[test]
    fn memory_grows_with_what_comes_out() {
        let packed = pack(&payload(LEAST)).unwrap();
        let mut most = 0;
        assert_eq!(unpack(&packed, 60 << 20, &mut |held| most = most.max(held)), None);
        assert!((LEAST..=2 * FIRST_ROOM).contains(&most), "{most}");
    }
}
