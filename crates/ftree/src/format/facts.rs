//! Everything a stored node says, for offline readers that walk a tree and name what is wrong.

use crate::block::{BlockHandle, decode_block};
use crate::bytes::Reader;
use crate::large::LargeRef;
use crate::node::{ChildImage, NodeImage, decode};
use crate::segment::Descriptor;
use crate::tree::parse_header;
use blockfile::PageRef;

/// A page and how long it is when decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// Where it is in its segment.
    pub page: PageRef,
    /// Its decoded bytes.
    pub raw_len: u32,
}

/// What a node, or the segment's own footer, says of a run or a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its number in the block file.
    pub segment: u64,
    /// Pages of entries; index, filter and footer come behind them.
    pub pages: u32,
    /// The block index.
    pub index: BlockFacts,
    /// The filter, where there is one.
    pub filter: Option<BlockFacts>,
    /// Versions.
    pub entries: u64,
    /// Different keys.
    pub keys: u64,
    /// Deletes among the versions.
    pub deletes: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Decoded bytes of the pages of entries.
    pub raw_bytes: u64,
    /// Bytes of the whole segment; 0 in a footer.
    pub stored_bytes: u64,
    /// Bytes on disk of the large values it refers to.
    pub large_bytes: u64,
    /// Segments of the large values its entries refer to, ascending.
    pub large: Vec<u64>,
    /// The compression dictionary of its pages of entries, where they have one.
    pub dictionary: Option<LargeFacts>,
    /// The oldest version's timestamp.
    pub min_ts: u64,
    /// The newest version's timestamp.
    pub max_ts: u64,
    /// The least key.
    pub min_key: Vec<u8>,
    /// The greatest key.
    pub max_key: Vec<u8>,
}

/// Where a value lies that is too large for pages, or a compression dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeFacts {
    /// The segment it has for itself.
    pub segment: u64,
    /// Its only page.
    pub block: BlockFacts,
}

/// What a child of a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildFacts {
    /// A leaf nobody has written to.
    Empty,
    /// A leaf.
    Leaf(Box<SegmentFacts>),
    /// A node in a segment of its own.
    Node {
        /// The segment.
        segment: u64,
        /// Its only page.
        page: PageRef,
    },
}

/// A run as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFacts {
    /// Greater is newer.
    pub age: u64,
    /// The run.
    pub run: SegmentFacts,
    /// Bytes that wait for each child; 0 where it is flushed.
    pub shares: Vec<u64>,
}

/// One stored node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Distance to the leaves.
    pub height: u32,
    /// Keys are greater than this.
    pub lower: Option<Vec<u8>>,
    /// Keys are not greater than this.
    pub upper: Option<Vec<u8>>,
    /// Keys between the children: strictly ascending and within the bounds.
    pub pivots: Vec<Vec<u8>>,
    /// One more than pivots.
    pub children: Vec<ChildFacts>,
    /// Newest first.
    pub runs: Vec<RunFacts>,
}

/// A tree's image in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFacts {
    /// The greatest age of a run.
    pub sequence: u64,
    /// Every commit up to here is inside.
    pub flushed_ts: u64,
    /// The root.
    pub root: NodeFacts,
}

impl NodeFacts {
    fn of(node: NodeImage) -> Self {
        let children = node.children.into_iter().map(|child| match child {
            ChildImage::Empty => ChildFacts::Empty,
            ChildImage::Leaf(leaf) => ChildFacts::Leaf(Box::new(SegmentFacts::of(*leaf))),
            ChildImage::Node(segment, page) => ChildFacts::Node { segment, page },
        });
        let runs = node.runs.into_iter();
        Self {
            height: node.height,
            lower: node.bounds.lower.map(|key| key.to_vec()),
            upper: node.bounds.upper.map(|key| key.to_vec()),
            pivots: node.pivots.iter().map(|pivot| pivot.to_vec()).collect(),
            children: children.collect(),
            runs: runs
                .map(|(age, run, shares)| RunFacts { age, run: SegmentFacts::of(run), shares })
                .collect(),
        }
    }
}

/// Everything a stored node says.
pub fn node_facts(bytes: &[u8]) -> Result<NodeFacts, &'static str> {
    let image = decode(bytes).ok_or("node does not parse: version, pivots, bounds or run ages")?;
    Ok(NodeFacts::of(image))
}

/// Everything a tree's image says.
pub fn image_facts(bytes: &[u8]) -> Result<ImageFacts, &'static str> {
    let header = parse_header(bytes)?;
    let root = node_facts(header.root)?;
    Ok(ImageFacts { sequence: header.sequence, flushed_ts: header.flushed_ts, root })
}

/// What a footer says of its segment.
pub fn footer_facts(bytes: &[u8]) -> Result<SegmentFacts, &'static str> {
    let mut reader = Reader::new(bytes);
    let descriptor = Descriptor::decode(&mut reader).ok_or("footer does not parse")?;
    if reader.remaining() != 0 {
        return Err("footer has bytes behind its end");
    }
    Ok(SegmentFacts::of(descriptor))
}

/// Where a page is: the value of its entry in the block index.
pub fn block_facts(value: &[u8], page: u32) -> Result<BlockFacts, &'static str> {
    let block = decode_block(value, page).ok_or("block index entry does not parse")?;
    Ok(BlockFacts::of(block))
}

/// Where a large value is: what its entry holds.
pub fn large_facts(reference: &[u8]) -> Result<LargeFacts, &'static str> {
    let at = LargeRef::decode(reference).ok_or("reference to a large value does not parse")?;
    Ok(LargeFacts::of(at))
}

impl LargeFacts {
    fn of(at: LargeRef) -> Self {
        Self { segment: at.segment, block: BlockFacts::of(at.block) }
    }
}

impl BlockFacts {
    fn of(block: BlockHandle) -> Self {
        Self { page: block.page, raw_len: block.raw_len }
    }
}

impl SegmentFacts {
    pub(crate) fn of(descriptor: Descriptor) -> Self {
        let content = descriptor.content;
        Self {
            segment: descriptor.id,
            pages: descriptor.pages,
            index: BlockFacts::of(descriptor.index),
            filter: descriptor.filter.map(BlockFacts::of),
            entries: content.entries,
            keys: content.keys,
            deletes: content.deletes,
            key_bytes: content.key_bytes,
            value_bytes: content.value_bytes,
            raw_bytes: content.raw_bytes,
            stored_bytes: content.stored_bytes,
            large_bytes: content.large_bytes,
            large: descriptor.large.into_vec(),
            dictionary: descriptor.dictionary.map(LargeFacts::of),
            min_ts: content.min_ts,
            max_ts: content.max_ts,
            min_key: content.min_key.into_vec(),
            max_key: content.max_key.into_vec(),
        }
    }
}
