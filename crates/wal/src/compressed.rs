//! Long records are compressed: they have the names of documents' fields again and again.
//!
//! ```text
//! payload of a compressed record
//! 0  u32  bytes of the head
//! 4  u32  bytes of the body, before it was compressed
//! 8  …    the head, as it is
//!    …    the body: one frame of zstd
//! ```
//!
//! The body is compressed before the locks under which a record gets its place; the head holds what is known only there.
//!
//! Always true: a compressed record is shorter than it would be otherwise, by an eighth of its body at least. What comes
//! back is as long as was said, and no longer than a record may be.

#![expect(
    clippy::rc_buffer,
    reason = "a compressed form goes to the log and to other members without a copy"
)]

use crate::MAX_PAYLOAD_BYTES;
use crate::frame::FrameKind;
use os::sync::Mutex;
use os::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use zstd::bulk::{Compressor, Decompressor};

/// Bytes before the head.
const LENGTHS: usize = 8;
/// The first of zstd's fast levels: a third fewer bytes of usual documents, at twice the speed of the first usual level.
const LEVEL: i32 = -1;
/// So many compressors are kept for the next records.
const KEPT: usize = 4;
/// What a compressor takes, about: its window is 512 KiB.
const COMPRESSOR_BYTES: u64 = 640 << 10;
/// What a decompressor takes, about.
const DECOMPRESSOR_BYTES: usize = 160 << 10;

/// What compresses records, kept for the next ones.
#[derive(Default)]
pub(crate) struct Compressors {
    free: Mutex<Vec<Compressor<'static>>>,
    /// Those that are free, and those in use.
    made: AtomicU64,
}

impl Compressors {
    /// The compressed form, where that saves an eighth.
    fn compress(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let free = self.free.lock().pop();
        let mut compressor = match free {
            Some(compressor) => compressor,
            // Where there is no memory for it, records stay as they are.
            None => Compressor::new(LEVEL).ok().inspect(|_| {
                self.made.fetch_add(1, Ordering::Relaxed);
            })?,
        };
        let mut block = Vec::with_capacity(bytes.len() - bytes.len() / 8);
        let compressed = compressor.compress_to_buffer(bytes, &mut block);
        let mut free = self.free.lock();
        if free.len() < KEPT {
            free.push(compressor);
        } else {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
        compressed.is_ok().then_some(block)
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.made.load(Ordering::Relaxed) * COMPRESSOR_BYTES
    }
}

/// The long part of a record, compressed where that makes it shorter.
pub struct Body<'a> {
    plain: &'a [u8],
    compressed: Option<Arc<Vec<u8>>>,
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

    /// Its compressed form, one frame of zstd.
    pub const fn block(&self) -> Option<&Arc<Vec<u8>>> {
        self.compressed.as_ref()
    }

    /// One that is compressed, where that saves an eighth.
    pub(crate) fn compressed(bytes: &'a [u8], by: &Compressors) -> Self {
        Self { plain: bytes, compressed: by.compress(bytes).map(Arc::new) }
    }

    /// One whose compressed form is there, where it is one that a reader takes and saves an eighth.
    pub(crate) fn with_block(bytes: &'a [u8], block: &Arc<Vec<u8>>) -> Option<Self> {
        let is_shorter = block.len() <= bytes.len() - bytes.len() / 8;
        let compressed =
            Some(Arc::clone(block)).filter(|_| is_shorter && promises(block, bytes.len()))?;
        debug_assert_eq!(zstd::bulk::decompress(block, bytes.len()).ok().as_deref(), Some(bytes));
        Some(Self { plain: bytes, compressed: Some(compressed) })
    }
}

/// A record that is to be appended.
#[derive(Clone, Copy)]
pub struct NewRecord<'a> {
    head: &'a [&'a [u8]],
    head_bytes: usize,
    body: &'a Body<'a>,
}

impl<'a> NewRecord<'a> {
    /// The concatenation of these pieces, as it is.
    pub fn plain(pieces: &'a [&'a [u8]]) -> Self {
        static EMPTY: Body<'static> = Body::plain(&[]);
        Self::new(pieces, &EMPTY)
    }

    /// The concatenation of the pieces of a head, and of a body.
    pub fn new(head: &'a [&'a [u8]], body: &'a Body<'a>) -> Self {
        Self { head, head_bytes: bytes_of(head), body }
    }

    /// Its bytes, before they are compressed.
    pub fn bytes(&self) -> usize {
        self.head_bytes + self.body.plain.len()
    }

    /// The same as they stand in a plain log.
    pub(crate) fn stored_bytes(&self) -> usize {
        let body = match &self.body.compressed {
            Some(block) => LENGTHS + block.len(),
            None => self.body.plain.len(),
        };
        self.head_bytes + body
    }

    pub(crate) fn kind(&self) -> FrameKind {
        if self.body.compressed.is_some() { FrameKind::Compressed } else { FrameKind::Data }
    }

    /// Tells what stands in the log, piece by piece.
    #[inline]
    pub(crate) fn each_piece(&self, mut told: impl FnMut(&[u8])) {
        let body = match &self.body.compressed {
            Some(block) => {
                // What does not fit is longer than a record may be.
                let field = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
                told(&field(self.head_bytes));
                told(&field(self.body.plain.len()));
                block
            }
            None => self.body.plain,
        };
        self.head.iter().for_each(|piece| told(piece));
        told(body);
    }

    /// The same in one piece.
    fn stored(&self) -> Vec<u8> {
        let mut stored = Vec::with_capacity(self.stored_bytes());
        self.each_piece(|piece| stored.extend_from_slice(piece));
        stored
    }
}

fn bytes_of(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// The payload of a compressed record; `None` where compressing does not pay. For fuzz targets.
pub fn compressed_payload(head: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let body = Body::compressed(body, &Compressors::default());
    let head = [head];
    let record = NewRecord::new(&head, &body);
    (record.kind() == FrameKind::Compressed).then(|| record.stored())
}

/// Whether a frame says that it becomes so many bytes.
fn promises(block: &[u8], bytes: usize) -> bool {
    zstd::zstd_safe::get_frame_content_size(block).ok().flatten() == Some(bytes as u64)
}

/// What uncompresses records, one after the other.
#[derive(Default)]
pub struct Uncompressed {
    decompressor: Option<Decompressor<'static>>,
    plain: Vec<u8>,
}

impl Uncompressed {
    /// What was appended; `None` where the bytes are not those of a compressed record.
    pub fn read(&mut self, stored: &[u8]) -> Option<&[u8]> {
        let (head, rest) = stored.split_first_chunk()?;
        let (body, rest) = rest.split_first_chunk()?;
        let (head, body) = (u32::from_le_bytes(*head) as usize, u32::from_le_bytes(*body) as usize);
        let (head, block) = rest.split_at_checked(head)?;
        let bytes = head.len().saturating_add(body);
        // A frame says how long it becomes: what says otherwise takes no memory.
        if bytes > MAX_PAYLOAD_BYTES || !promises(block, body) {
            return None;
        }
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().ok()?),
        };
        self.plain.clear();
        self.plain.extend_from_slice(head);
        self.plain.resize(bytes, 0);
        let into = self.plain.get_mut(head.len()..)?;
        let length = decompressor.decompress_to_buffer(block, into).ok()?;
        (length == body).then_some(&self.plain)
    }

    /// What was read last.
    pub(crate) fn last(&self) -> &[u8] {
        &self.plain
    }

    /// Keeps no more memory than this for records; for who has read a long one, and reads short ones.
    pub(crate) fn keep(&mut self, most: usize) {
        if self.plain.capacity() > most {
            self.plain = Vec::new();
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let decompressor = if self.decompressor.is_some() { DECOMPRESSOR_BYTES } else { 0 };
        self.plain.capacity() + decompressor
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_compressed_comes_back_behind_its_head() {
        let text = b"\x02name of a field\0".repeat(300);
        let (by, mut reader) = (Compressors::default(), Uncompressed::default());
        for bytes in [&text[..], &text[..100], &text] {
            let body = Body::compressed(bytes, &by);
            let record = NewRecord::new(&[b"he", b"ad"], &body);
            let stored = record.stored();
            assert_eq!(record.kind(), FrameKind::Compressed);
            assert_eq!(record.bytes(), 4 + bytes.len());
            assert_eq!(record.stored_bytes(), stored.len());
            assert!(stored.len() < bytes.len());
            assert_eq!(reader.read(&stored), Some(&[b"head", bytes].concat()[..]));
        }
        assert_eq!(by.memory_bytes(), COMPRESSOR_BYTES, "one after the other takes one");
        assert!(reader.memory_bytes() > DECOMPRESSOR_BYTES + text.len());
        reader.keep(0);
        assert_eq!(reader.memory_bytes(), DECOMPRESSOR_BYTES);
    }

    #[test]
    fn what_was_compressed_elsewhere_is_taken_where_a_reader_takes_it() {
        let text = b"\x02name of a field\0".repeat(300);
        let body = Body::compressed(&text, &Compressors::default());
        let block = body.block().unwrap();
        let other = Body::with_block(&text, block).unwrap();
        let (one, other) = (NewRecord::new(&[b"head"], &body), NewRecord::new(&[b"head"], &other));
        assert_eq!(one.stored(), other.stored());
        assert!(Body::with_block(&text[1..], block).is_none(), "it says that it is longer");
        assert!(Body::with_block(&text, &Arc::new(Vec::new())).is_none());
        let unsized_frame = zstd::stream::encode_all(&text[..], -1).unwrap();
        assert!(
            Body::with_block(&text, &Arc::new(unsized_frame)).is_none(),
            "it does not say how long it becomes"
        );
        let long = Compressor::new(-1).unwrap().compress(b"abcdefgh").unwrap();
        assert!(Body::with_block(b"abcdefgh", &Arc::new(long)).is_none(), "it saves nothing");
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
            let body = Body::compressed(bytes, &Compressors::default());
            let record = NewRecord::new(&[b"head"], &body);
            assert_eq!(record.kind(), FrameKind::Data);
            assert_eq!(record.stored(), [b"head", bytes].concat());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_before_it_takes_memory() {
        let text = [7; 1000];
        let body = Body::compressed(&text, &Compressors::default());
        let whole = NewRecord::new(&[b"head"], &body).stored();
        let mut reader = Uncompressed::default();
        for length in 0..whole.len() {
            assert_eq!(reader.read(&whole[..length]), None, "{length} bytes of it");
        }
        let lies = [(0, 5_u32), (0, u32::MAX), (4, 999), (4, 1001), (4, 60 << 20), (4, u32::MAX)];
        for (at, value) in lies {
            let mut bad = whole.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(reader.read(&bad), None, "{value} at {at}");
        }
        assert!(reader.plain.capacity() < 10_000, "{}", reader.plain.capacity());
        assert!(reader.read(&whole).is_some());
        assert_eq!(reader.read(&[&whole[..], &[0]].concat()), None, "something stands behind it");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300),
            flips in prop::collection::vec((0_usize..300, any::<u8>()), 0..4),
            forges: bool,
        ) {
            if forges {
                let body = Body::compressed(&[7; 500], &Compressors::default());
                bytes = NewRecord::new(&[b"head"], &body).stored();
            }
            for (at, value) in flips {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let mut reader = Uncompressed::default();
            let _either = reader.read(&bytes);
            prop_assert!(reader.plain.capacity() <= MAX_PAYLOAD_BYTES);
        }
    }
}
