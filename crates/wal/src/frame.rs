//! Frames: the unit that is whole or not there.
//!
//! ```text
//! 0   u32  bits 0..28 payload bytes, bits 28..32 kind (0 data, 1 mark, 2 compressed data)
//! 4   u32  crc32c of payload, LSN, the first field, the epoch's salt, in this order
//! 8   u64  LSN of the frame: its own position
//! 16  …    payload, then zeros to a multiple of 8
//! ```
//!
//! The payload of a frame of data is what was appended, or its compressed form (`compressed.rs`). Where the epoch has a
//! key it is encrypted, and a tag of 16 bytes follows; the checksum is of the encrypted bytes.
//!
//! The payload comes first in the checksum, so that it is computed before the position is known,
//! outside the lock. A mark's payload is a u64: everything before this LSN was synced when the
//! mark was appended.

use crypt::TAG_BYTES;

use crate::{Lsn, MAX_PAYLOAD_BYTES};

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Frames start and end on multiples of this, so that a scan for frames is cheap.
pub(crate) const ALIGN: usize = 8;
/// Bytes of a mark's frame.
pub(crate) const MARK_BYTES: usize = FRAME_HEADER_BYTES + 8;
const LENGTH_BITS: u32 = 28;
/// The longest payload of a frame: that of an append, encrypted.
pub(crate) const MAX_STORED_BYTES: usize = MAX_PAYLOAD_BYTES + TAG_BYTES;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// What the engine appended.
    Data,
    /// The same, compressed.
    Compressed,
    /// How far the log was synced.
    Mark,
}

/// A decoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it carries.
    pub kind: FrameKind,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// Bytes a frame with this payload takes in the log.
pub fn frame_bytes(payload: usize) -> usize {
    FRAME_HEADER_BYTES + payload.next_multiple_of(ALIGN)
}

/// The header of a frame whose payload has this crc32c.
pub(crate) fn frame_header(
    kind: FrameKind,
    salt: u64,
    lsn: Lsn,
    payload_len: usize,
    payload_crc: u32,
) -> [u8; FRAME_HEADER_BYTES] {
    let kind_bits = match kind {
        FrameKind::Data => 0,
        FrameKind::Mark => 1,
        FrameKind::Compressed => 2,
    };
    let length = payload_len as u32 | kind_bits << LENGTH_BITS;
    let mut header = [0; FRAME_HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&seal(payload_crc, lsn, length, salt).to_le_bytes());
    header[8..].copy_from_slice(&lsn.to_le_bytes());
    header
}

fn seal(payload_crc: u32, lsn: Lsn, length: u32, salt: u64) -> u32 {
    let mut tail = [0; 20];
    tail[..8].copy_from_slice(&lsn.to_le_bytes());
    tail[8..12].copy_from_slice(&length.to_le_bytes());
    tail[12..].copy_from_slice(&salt.to_le_bytes());
    crc32c::crc32c_append(payload_crc, &tail)
}

/// Appends a whole frame to `out`.
pub fn encode_frame(kind: FrameKind, salt: u64, lsn: Lsn, payload: &[u8], out: &mut Vec<u8>) {
    let crc = crc32c::crc32c(payload);
    out.extend_from_slice(&frame_header(kind, salt, lsn, payload.len(), crc));
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

/// The payload length a frame header at `lsn` claims, unchecked but for its own position;
/// `None` where this cannot be a frame of that position.
pub(crate) fn claimed_payload(header: &[u8; FRAME_HEADER_BYTES], lsn: Lsn) -> Option<usize> {
    let at = u64::from_le_bytes(*header.last_chunk::<8>()?);
    let length = u32::from_le_bytes(*header.first_chunk::<4>()?);
    let payload = (length & ((1 << LENGTH_BITS) - 1)) as usize;
    (at == lsn && payload <= MAX_STORED_BYTES).then_some(payload)
}

/// What a frame with this header carries; `None` where nothing is known by that number.
pub(crate) fn claimed_kind(header: &[u8; FRAME_HEADER_BYTES]) -> Option<FrameKind> {
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    match length >> LENGTH_BITS {
        0 => Some(FrameKind::Data),
        1 => Some(FrameKind::Mark),
        2 => Some(FrameKind::Compressed),
        _ => None,
    }
}

/// Reads the frame at the start of `bytes`; `None` where no valid frame of this epoch and position
/// is there, whole.
pub fn decode_frame(salt: u64, lsn: Lsn, bytes: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let len = claimed_payload(header, lsn)?;
    let padded = rest.get(..len.next_multiple_of(ALIGN))?;
    let (payload, padding) = padded.split_at(len);
    let length = u32::from_le_bytes(*header.first_chunk::<4>()?);
    let stored = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let kind = claimed_kind(header)?;
    if kind == FrameKind::Mark && len != 8 {
        return None;
    }
    let valid = seal(crc32c::crc32c(payload), lsn, length, salt) == stored;
    (valid && padding.iter().all(|b| *b == 0)).then_some(Frame { kind, payload })
}

impl Frame<'_> {
    /// Up to where the log was synced, as it says; 0 where it is no mark.
    pub(crate) fn says_synced(&self) -> Lsn {
        match (self.kind, self.payload.first_chunk()) {
            (FrameKind::Mark, Some(position)) => Lsn::from_le_bytes(*position),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_flipped_bit_is_caught() {
        let mut bytes = Vec::new();
        encode_frame(FrameKind::Data, 9, 64, b"eleven byte", &mut bytes);
        assert_eq!(bytes.len(), frame_bytes(11));
        assert_eq!(decode_frame(9, 64, &bytes).unwrap().payload, b"eleven byte");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_frame(9, 64, &bad), None, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn frame_of_another_epoch_or_position_is_none(
            payload in prop::collection::vec(any::<u8>(), 0..100),
            salt: u64,
            lsn: u64,
        ) {
            let mut bytes = Vec::new();
            encode_frame(FrameKind::Data, salt, lsn, &payload, &mut bytes);
            let frame = decode_frame(salt, lsn, &bytes);
            prop_assert_eq!(frame, Some(Frame { kind: FrameKind::Data, payload: &payload }));
            prop_assert_eq!(decode_frame(salt ^ 1, lsn, &bytes), None);
            prop_assert_eq!(decode_frame(salt, lsn ^ 8, &bytes), None);
            prop_assert_eq!(decode_frame(salt, lsn, &bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            lsn: u64,
        ) {
            if bytes.len() > 16 {
                bytes[8..16].copy_from_slice(&lsn.to_le_bytes());
            }
            let _either = decode_frame(1, lsn, &bytes);
        }
    }
}
