//! Where one page lies, as indexes, footers and references to large values say it.
//!
//! On disk: `docs/formats/segment.md`.

use crate::bytes::{Reader, put_varint};
use blockfile::PageRef;

/// Where a page lies, and how long it is when decoded: what a format's page calls a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHandle {
    pub(crate) page: PageRef,
    pub(crate) raw_len: u32,
}

/// Its bytes, at the end of `out`.
pub(crate) fn encode_block(block: BlockHandle, out: &mut Vec<u8>) {
    put_varint(out, block.page.offset);
    put_varint(out, u64::from(block.page.len));
    put_varint(out, u64::from(block.raw_len));
}

/// A block from bytes that are nothing else; `page` is its number in its segment.
pub(crate) fn decode_block(bytes: &[u8], page: u32) -> Option<BlockHandle> {
    let mut reader = Reader::new(bytes);
    let block = read_block(&mut reader, page)?;
    (reader.remaining() == 0).then_some(block)
}

/// A block at the beginning of what is left.
pub(crate) fn read_block(reader: &mut Reader<'_>, page: u32) -> Option<BlockHandle> {
    let (offset, len, raw_len) = (reader.varint()?, reader.number()?, reader.number()?);
    Some(BlockHandle { page: PageRef { page, len, offset }, raw_len })
}
