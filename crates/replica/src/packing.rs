//! Long payloads are packed on their way: records have the names of documents' fields again and again.
//!
//! Always true: what is unpacked takes memory as it comes out, or a few times what came, never as it was promised; and
//! it is as long as it was promised.

use std::cell::RefCell;
use zstd::bulk::Compressor;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// Payloads below this go as they are: packing would cost more than it saves.
pub(crate) const LEAST: usize = 4 << 10;
/// The first of zstd's fast levels: documents of text become a fifth longer than with the first usual one, and both ends take
/// half as long. Its window is 512 KiB.
const LEVEL: i32 = -1;
/// The widest window that is read: 1 MiB.
const WINDOW_LOG: u32 = 20;
/// What is unpacked begins with so many bytes, or times what was packed, and at most doubles. Records become shorter by
/// less than that, and are unpacked in one step.
const FIRST_ROOM: usize = 64 << 10;
const FIRST_TIMES: usize = 8;

/// What a thread keeps that packs or unpacks, about.
pub const PACKING_BYTES: u64 = 640 << 10;

thread_local! {
    static PACKER: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
}

/// The packed form; `None` where it would not save an eighth.
pub(crate) fn pack(payload: &[u8]) -> Option<Box<[u8]>> {
    if payload.len() < LEAST {
        return None;
    }
    let mut packed = vec![0; payload.len() - payload.len() / 8];
    let length = PACKER.with_borrow_mut(|kept| {
        let packer = match kept {
            Some(packer) => packer,
            // Where there is no memory for it, payloads go as they are.
            none => none.insert(Compressor::new(LEVEL).ok()?),
        };
        packer.compress_to_buffer(payload, packed.as_mut_slice()).ok()
    })?;
    packed.truncate(length);
    Some(packed.into())
}

/// What was packed, which is so long; `None` where it is something else. `held` is told how much memory that takes.
pub(crate) fn unpack(packed: &[u8], length: usize, held: &mut dyn FnMut(usize)) -> Option<Vec<u8>> {
    UNPACKER.with_borrow_mut(|kept| unpack_by(unpacker(kept)?, packed, length, held))
}

fn unpacker<'a>(kept: &'a mut Option<Decoder<'static>>) -> Option<&'a mut Decoder<'static>> {
    match kept {
        Some(unpacker) => {
            unpacker.reinit().ok()?;
            Some(unpacker)
        }
        none => {
            let mut unpacker = Decoder::new().ok()?;
            unpacker.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
            Some(none.insert(unpacker))
        }
    }
}

fn unpack_by(
    unpacker: &mut Decoder<'static>,
    packed: &[u8],
    length: usize,
    held: &mut dyn FnMut(usize),
) -> Option<Vec<u8>> {
    let first = packed.len().saturating_mul(FIRST_TIMES).max(FIRST_ROOM);
    let mut payload = Vec::new();
    let mut input = InBuffer::around(packed);
    loop {
        let here = payload.len();
        // Where memory had more room than was asked for, more may have come than was promised.
        let room = length.checked_sub(here)?.min(here.max(first));
        held(here + room);
        payload.reserve_exact(room);
        // What is unpacked is written behind what is there, into memory that nobody has to clear before.
        let mut output = OutBuffer::around_pos(&mut payload, here);
        let left = unpacker.run(&mut input, &mut output).ok()?;
        let came = payload.len() - here;
        if left == 0 && input.pos() == packed.len() {
            return (payload.len() == length).then_some(payload);
        }
        // Something stands behind it, its end is missing, or there is more than was promised.
        if left == 0 || came == 0 {
            return None;
        }
    }
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
        assert!(packed.len() < 1000);
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
