//! Long records are compressed: they have the names of documents' fields again and again.
//!
//! ```text
//! payload of a compressed record
//! 0  u32  bytes of the head
//! 4  u32  bytes of the body, before it was compressed
//! 8  …    the head, as it is
//!    …    the body: one lz4 block
//! ```
//!
//! The body is compressed before the locks under which a record gets its place; the head holds what is known only there.
//!
//! Always true: a compressed record is shorter than it would be otherwise, by an eighth of its body at least. What comes
//! back is as long as was said, and no longer than a record may be.

use crate::MAX_PAYLOAD_BYTES;
use crate::frame::FrameKind;

/// Bytes before the head.
const LENGTHS: usize = 8;
/// A byte of a block stands for so many at most.
const MOST_OF_A_BYTE: usize = 255;

/// The long part of a record, compressed where that makes it shorter.
pub struct Body<'a> {
    plain: &'a [u8],
    compressed: Option<Vec<u8>>,
}

impl<'a> Body<'a> {
    /// One that is written as it is.
    pub const fn plain(bytes: &'a [u8]) -> Self {
        Self { plain: bytes, compressed: None }
    }

    /// Its bytes, as they were before.
    pub const fn bytes(&self) -> &'a [u8] {
        self.plain
    }

    /// One that is compressed, where that saves an eighth.
    pub(crate) fn compressed(bytes: &'a [u8]) -> Self {
        let mut block = vec![0; lz4_flex::block::get_maximum_output_size(bytes.len())];
        let length = lz4_flex::block::compress_into(bytes, &mut block).unwrap_or(usize::MAX);
        let pays = length < bytes.len() - bytes.len() / 8;
        block.truncate(length);
        Self { plain: bytes, compressed: pays.then_some(block) }
    }
}

/// A record that is to be appended.
#[derive(Clone, Copy)]
pub struct NewRecord<'a> {
    head: &'a [&'a [u8]],
    body: &'a Body<'a>,
    lengths: [u8; LENGTHS],
}

impl<'a> NewRecord<'a> {
    /// The concatenation of these pieces, as it is.
    pub fn plain(pieces: &'a [&'a [u8]]) -> Self {
        static EMPTY: Body<'static> = Body::plain(&[]);
        Self::new(pieces, &EMPTY)
    }

    /// The concatenation of the pieces of a head, and of a body.
    pub fn new(head: &'a [&'a [u8]], body: &'a Body<'a>) -> Self {
        let mut lengths = [0; LENGTHS];
        // What does not fit is longer than a record may be.
        let field = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        lengths[..4].copy_from_slice(&field(bytes_of(head)));
        lengths[4..].copy_from_slice(&field(body.plain.len()));
        Self { head, body, lengths }
    }

    /// Its bytes, before they are compressed.
    pub fn bytes(&self) -> usize {
        bytes_of(self.head) + self.body.plain.len()
    }

    /// The same as they stand in a plain log.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    pub(crate) fn kind(&self) -> FrameKind {
        if self.body.compressed.is_some() { FrameKind::Compressed } else { FrameKind::Data }
    }

    /// What stands in the log, in this order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (lengths, body) = match &self.body.compressed {
            Some(block) => (&self.lengths[..], &block[..]),
            None => (&[][..], self.body.plain),
        };
        std::iter::once(lengths).chain(self.head.iter().copied()).chain([body])
    }
}

fn bytes_of(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// Puts what was appended into `plain`; false where the bytes are not those of a compressed record.
pub fn uncompress(stored: &[u8], plain: &mut Vec<u8>) -> bool {
    plain.clear();
    uncompress_into(stored, plain).is_some()
}

fn uncompress_into(stored: &[u8], plain: &mut Vec<u8>) -> Option<()> {
    let (head, rest) = stored.split_first_chunk()?;
    let (body, rest) = rest.split_first_chunk()?;
    let (head, body) = (u32::from_le_bytes(*head) as usize, u32::from_le_bytes(*body) as usize);
    let (head, block) = rest.split_at_checked(head)?;
    let can_be = body <= block.len().saturating_mul(MOST_OF_A_BYTE);
    if !can_be || head.len().saturating_add(body) > MAX_PAYLOAD_BYTES {
        return None;
    }
    plain.reserve_exact(head.len() + body);
    plain.extend_from_slice(head);
    plain.resize(head.len() + body, 0);
    let length = lz4_flex::block::decompress_into(block, plain.get_mut(head.len()..)?).ok()?;
    (length == body).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(record: &NewRecord<'_>) -> Vec<u8> {
        record.pieces().collect::<Vec<_>>().concat()
    }

    #[test]
    fn what_was_compressed_comes_back_behind_its_head() {
        let text = b"\x02name of a field\0".repeat(300);
        for bytes in [&text[..], &text[..100]] {
            let body = Body::compressed(bytes);
            let record = NewRecord::new(&[b"he", b"ad"], &body);
            let stored = stored(&record);
            assert_eq!(record.kind(), FrameKind::Compressed);
            assert_eq!(record.bytes(), 4 + bytes.len());
            assert_eq!(record.stored_bytes(), stored.len());
            assert!(stored.len() < bytes.len());
            let mut plain = vec![1; 10];
            assert!(uncompress(&stored, &mut plain));
            assert_eq!(plain, [b"head", bytes].concat());
        }
    }

    #[test]
    fn what_would_not_become_shorter_stays_as_it_is() {
        let mut seed = 1_u64;
        let noise = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(5000).collect();
        for bytes in [&noise[..], &[]] {
            let body = Body::compressed(bytes);
            let record = NewRecord::new(&[b"head"], &body);
            assert_eq!(record.kind(), FrameKind::Data);
            assert_eq!(stored(&record), [b"head", bytes].concat());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_before_it_takes_memory() {
        let text = [7; 1000];
        let body = Body::compressed(&text);
        let whole = stored(&NewRecord::new(&[b"head"], &body));
        let mut plain = Vec::new();
        for length in 0..whole.len() {
            assert!(!uncompress(&whole[..length], &mut plain), "{length} bytes of it");
        }
        for (at, value) in
            [(0, 5_u32), (0, u32::MAX), (4, 999), (4, 1001), (4, 60 << 20), (4, u32::MAX)]
        {
            let mut bad = whole.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(!uncompress(&bad, &mut plain), "{value} at {at}");
        }
        assert!(plain.capacity() < 10_000, "{}", plain.capacity());
        assert!(uncompress(&whole, &mut plain));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _either = uncompress(&bytes, &mut Vec::new());
        }
    }
}
