//! Payloads as programs before 2026-11-29 pack them: each one frame of zstd. They are read, so that a set can be upgraded
//! member by member; nothing is packed so any more.
//!
//! Always true: as with what is packed now (`packing.rs`).

use std::cell::RefCell;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::{FIRST_ROOM, FIRST_TIMES};

/// The widest window that is read: 1 MiB.
const WINDOW_LOG: u32 = 20;

thread_local! {
    static UNPACKER: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
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

    #[test]
    fn payloads_of_members_of_before_are_read_and_what_is_none_is_refused() {
        let whole: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8 ^ (at / 1000) as u8).collect();
        let packed = zstd::bulk::compress(&whole, 1).unwrap();
        for _ in 0..2 {
            assert_eq!(unpacked(&packed, whole.len()).as_ref(), Some(&whole));
            for length in [0, 1, whole.len() - 1, whole.len() + 1, whole.len() * 2] {
                assert_eq!(unpacked(&packed, length), None, "it is not {length} bytes long");
            }
            for length in [0, 3, 20, packed.len() - 1] {
                assert_eq!(unpacked(&packed[..length], whole.len()), None, "it has no end");
            }
            let twice = [&packed[..], &packed[..]].concat();
            assert_eq!(unpacked(&twice, 2 * whole.len()), None, "two of them");
        }
        let mut most = 0;
        let short = zstd::bulk::compress(&whole[..4096], 1).unwrap();
        assert_eq!(unpack(&short, 60 << 20, &mut |held| most = most.max(held)), None);
        assert!((4096..=2 * FIRST_ROOM).contains(&most), "{most}");
    }
}
