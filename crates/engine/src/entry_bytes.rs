//! The records of an entry as members send them to each other, and the parts of them that the log of one of them has
//! compressed: who sends them compresses nothing again, nor does who writes them to his own log.
//!
//! Always true: parts stand in the order of the bytes, one behind the other's end; each comes out as the bytes that it
//! stands for. Whoever makes one has compressed those, or has just uncompressed it.

#![expect(clippy::rc_buffer, reason = "what was compressed or came is kept without a copy")]

use std::ops::{Deref, Range};
use std::sync::Arc;

/// A part of an entry's records that is there compressed, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompressedPart {
    /// Which bytes.
    pub range: Range<usize>,
    /// One frame of zstd that becomes those.
    pub block: Arc<Vec<u8>>,
}

/// Records of an entry. Clones share them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryBytes {
    plain: Arc<Vec<u8>>,
    compressed: Arc<Vec<CompressedPart>>,
}

impl EntryBytes {
    /// Those bytes, and parts of them.
    pub fn new(plain: Vec<u8>, compressed: Vec<CompressedPart>) -> Self {
        debug_assert!(
            compressed.is_sorted_by(|one, next| one.range.end <= next.range.start),
            "parts stand behind each other"
        );
        Self { plain: Arc::new(plain), compressed: Arc::new(compressed) }
    }

    /// The parts that are there compressed.
    pub fn compressed(&self) -> &[CompressedPart] {
        &self.compressed
    }

    /// The compressed form of exactly these bytes.
    pub(crate) fn block(&self, range: Range<usize>) -> Option<&Arc<Vec<u8>>> {
        let at = self.compressed.binary_search_by_key(&range.start, |part| part.range.start);
        let part = self.compressed.get(at.ok()?)?;
        (part.range == range).then_some(&part.block)
    }

    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        let blocks: usize = self.compressed.iter().map(|part| part.block.len()).sum();
        self.plain.len() + blocks
    }
}

impl From<Vec<u8>> for EntryBytes {
    fn from(plain: Vec<u8>) -> Self {
        Self::new(plain, Vec::new())
    }
}

impl Deref for EntryBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_by_exactly_its_bytes() {
        let part = |range, byte| CompressedPart { range, block: Arc::new(vec![byte; 3]) };
        let bytes = EntryBytes::new(vec![7; 100], vec![part(10..40, 1), part(40..90, 2)]);
        assert_eq!(bytes.block(10..40), Some(&Arc::new(vec![1; 3])));
        assert_eq!(bytes.block(40..90), Some(&Arc::new(vec![2; 3])));
        for range in [10..39, 11..40, 40..91, 0..10, 90..100] {
            assert_eq!(bytes.block(range), None);
        }
        assert_eq!((bytes.len(), bytes.memory_bytes()), (100, 106));
    }
}
