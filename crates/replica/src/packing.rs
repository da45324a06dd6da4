//! Long payloads are packed on their way: records have the names of documents' fields again and again. What a member's log
//! has compressed of one goes as it is, and is kept by who gets it, for his log.
//!
//! Always true: what is unpacked takes memory as it comes out, or a few times what came, never as it was promised; and
//! it is as long as it was promised.

use engine::{CompressedPart, EntryBytes};
use std::cell::RefCell;
use std::sync::Arc;
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
    let mut packed = vec![0; most_packed(payload.len())];
    let length =
        with_packer(|packer| packer.compress_to_buffer(payload, packed.as_mut_slice()).ok())?;
    packed.truncate(length);
    Some(packed.into())
}

/// The packed form of a payload of which parts are there compressed: those as they are, each of the others in a frame of
/// its own; `None` where it would not save an eighth.
pub(crate) fn join(payload: &EntryBytes) -> Option<Box<[u8]>> {
    let most = most_packed(payload.len());
    let blocks: usize = payload.compressed().iter().map(|part| part.block.len()).sum();
    let mut packed = Vec::with_capacity(blocks.min(most) + FIRST_ROOM.min(most));
    let mut here = 0;
    for part in payload.compressed() {
        pack_between(payload.get(here..part.range.start)?, &mut packed)?;
        packed.extend_from_slice(&part.block);
        here = part.range.end;
    }
    pack_between(payload.get(here..)?, &mut packed)?;
    (packed.len() <= most).then(|| packed.into())
}

/// Packs what stands between two parts that are there compressed.
fn pack_between(bytes: &[u8], packed: &mut Vec<u8>) -> Option<()> {
    if !bytes.is_empty() {
        packed.extend_from_slice(&with_packer(|packer| packer.compress(bytes).ok())?);
    }
    Some(())
}

/// A packed form is no longer: it saves an eighth.
const fn most_packed(bytes: usize) -> usize {
    bytes - bytes / 8
}

/// Where there is no memory for one, payloads go as they are.
fn with_packer<T>(pack: impl FnOnce(&mut Compressor<'static>) -> Option<T>) -> Option<T> {
    PACKER.with_borrow_mut(|kept| {
        let packer = match kept {
            Some(packer) => packer,
            none => none.insert(Compressor::new(LEVEL).ok()?),
        };
        pack(packer)
    })
}

/// What was packed, which is so long, in one or more frames; `None` where it is something else. Long frames are kept with
/// what came out of them. `held` is told how much memory that takes.
pub(crate) fn unpack(
    packed: &[u8],
    length: usize,
    held: &mut dyn FnMut(usize),
) -> Option<EntryBytes> {
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
) -> Option<EntryBytes> {
    let first = packed.len().saturating_mul(FIRST_TIMES).max(FIRST_ROOM);
    let (mut payload, mut parts) = (Vec::new(), Vec::new());
    let mut input = InBuffer::around(packed);
    // Where the frame at hand begins, packed and unpacked.
    let (mut begins, mut start) = (0, 0);
    let mut blocks = 0;
    loop {
        let here = payload.len();
        // Where memory had more room than was asked for, more may have come than was promised.
        let room = length.checked_sub(here)?.min(here.max(first));
        held(here + room + blocks);
        payload.reserve_exact(room);
        // What is unpacked is written behind what is there, into memory that nobody has to clear before.
        let mut output = OutBuffer::around_pos(&mut payload, here);
        let left = unpacker.run(&mut input, &mut output).ok()?;
        let came = payload.len() - here;
        if left > 0 {
            // Its end is missing, or there is more than was promised.
            if came == 0 {
                return None;
            }
            continue;
        }
        // Of a payload in one frame nothing is kept: a record is never all of it.
        let is_all = begins == 0 && input.pos() == packed.len();
        if !is_all && payload.len() - start >= LEAST {
            let block = Arc::new(packed.get(begins..input.pos())?.to_vec());
            blocks += block.len();
            parts.push(CompressedPart { range: start..payload.len(), block });
        }
        if input.pos() == packed.len() {
            held(payload.len() + blocks);
            return (payload.len() == length).then(|| EntryBytes::new(payload, parts));
        }
        (begins, start) = (input.pos(), payload.len());
        unpacker.reinit().ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(packed: &[u8], length: usize) -> Option<Vec<u8>> {
        unpack(packed, length, &mut |_| {}).map(|payload| payload.to_vec())
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
        assert_eq!(unpacked(&twice, whole.len()), None, "two of them");
        assert_eq!(unpacked(&whole, 10), None);
        assert_eq!(unpacked(&packed, whole.len()), Some(whole), "it goes on after that");
    }

    #[test]
    fn what_the_log_has_compressed_goes_as_it_is_and_is_kept() {
        let (one, two) = (payload(20_000), payload(LEAST));
        let whole = [&b"head"[..], &one, b"between", &two, &two, b"end"].concat();
        let block = |bytes: &[u8]| Arc::new(pack(bytes).unwrap().into_vec());
        let part = |start, bytes: &[u8]| CompressedPart {
            range: start..start + bytes.len(),
            block: block(bytes),
        };
        let parts = vec![part(4, &one), part(20_011, &two), part(20_011 + LEAST, &two)];
        let joined = join(&EntryBytes::new(whole.clone(), parts.clone())).unwrap();
        let mut most = 0;
        let read = unpack(&joined, whole.len(), &mut |held| most = most.max(held)).unwrap();
        assert_eq!((read.to_vec(), read.compressed()), (whole.clone(), &parts[..]));
        assert!(most >= read.memory_bytes(), "{most}");
        for length in 0..joined.len() {
            assert_eq!(unpacked(&joined[..length], whole.len()), None, "{length} bytes of it");
        }
        let read = unpack(&pack(&whole).unwrap(), whole.len(), &mut |_| {}).unwrap();
        assert_eq!(read.compressed(), [], "in one frame it is of no use to a log");
    }

    #[test]
    fn what_would_not_become_shorter_by_its_parts_goes_as_it_is() {
        let mut noise = 1_u64;
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        })
        .take(60_000)
        .collect();
        let zeros = vec![0; LEAST];
        bytes.extend_from_slice(&zeros);
        let block = Arc::new(pack(&zeros).unwrap().into_vec());
        let part = CompressedPart { range: 60_000..bytes.len(), block };
        assert_eq!(join(&EntryBytes::new(bytes, vec![part])), None);
    }

    #[test]
    fn memory_grows_with_what_comes_out() {
        let packed = pack(&payload(LEAST)).unwrap();
        let mut most = 0;
        assert_eq!(unpack(&packed, 60 << 20, &mut |held| most = most.max(held)), None);
        assert!((LEAST..=2 * FIRST_ROOM).contains(&most), "{most}");
    }
}
