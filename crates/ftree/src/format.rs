//! The decoders of this crate's own structures, for offline readers and fuzz targets.
//!
//! Always true: any bytes may be handed in; the answer is what they say, or what is wrong.

mod facts;

pub use facts::{
    BlockFacts, ChildFacts, ImageFacts, LargeFacts, NodeFacts, RunFacts, SegmentFacts, block_facts,
    footer_facts, image_facts, large_facts, node_facts,
};

use crate::bytes::Reader;
use crate::filter;
use crate::memtable::hash;
use crate::message::{Entry, Message, Place};
use crate::node::{ChildImage, NodeImage, decode};
use crate::page::{PageBuilder, PageView};
use crate::segment::Descriptor;
use crate::tree::parse_header;

/// One entry of a page: its key, its timestamp, and what was written.
pub type PageEntry = (Vec<u8>, u64, PageValue);

/// What an entry of a page says was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageValue {
    /// This value.
    Put(Vec<u8>),
    /// The key is gone.
    Delete,
    /// The key's value changes as this argument says.
    Update(Vec<u8>),
    /// A value that lies by itself: [`large_facts`] says where.
    Large(Vec<u8>),
}

/// The entries of a decoded page, each of them searched for as well.
pub fn read_page(bytes: &[u8]) -> Result<Vec<PageEntry>, &'static str> {
    let view = PageView::open(bytes)?;
    view.check()?;
    let mut key = Vec::new();
    let mut entries = Vec::new();
    for at in 0..view.count() {
        let entry = view.entry(at);
        view.key(&entry, &mut key);
        if view.lower_bound(Place { key: &key, ts: entry.ts }) != at {
            return Err("page entry is not found where it is");
        }
        let value = match Message::of(entry.kind, view.payload(&entry)) {
            Message::Put(value) => PageValue::Put(value.to_vec()),
            Message::Delete => PageValue::Delete,
            Message::Update(argument) => PageValue::Update(argument.to_vec()),
            Message::Large(reference) => PageValue::Large(reference.to_vec()),
        };
        entries.push((key.clone(), entry.ts, value));
    }
    Ok(entries)
}

/// The page of some entries, which are in order and at least one.
pub fn write_page(entries: &[PageEntry]) -> Vec<u8> {
    let mut builder = PageBuilder::default();
    for (key, ts, value) in entries {
        let message = match value {
            PageValue::Put(value) => Message::Put(value),
            PageValue::Delete => Message::Delete,
            PageValue::Update(argument) => Message::Update(argument),
            PageValue::Large(reference) => Message::Large(reference),
        };
        builder.add(Entry { key, ts: *ts, message });
    }
    let mut out = Vec::new();
    builder.finish(&mut out);
    out
}

/// Whether a filter lets a key pass.
pub fn filter_passes(bytes: &[u8], key: &[u8]) -> Result<bool, &'static str> {
    filter::check(bytes)?;
    Ok(filter::may_contain(bytes, hash(key)))
}

/// The filter of some keys.
pub fn write_filter<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    filter::build(&keys.into_iter().map(hash).collect::<Vec<_>>())
}

/// What a node's bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSummary {
    /// Distance to the leaves.
    pub height: u32,
    /// Keys between the children.
    pub pivots: Vec<Vec<u8>>,
    /// Segments of leaves or child nodes; `None` for an empty leaf.
    pub children: Vec<Option<u64>>,
    /// Runs, newest first: segment, age, bytes that wait for each child.
    pub runs: Vec<(u64, u64, Vec<u64>)>,
}

impl NodeSummary {
    fn of(node: NodeImage) -> Self {
        let children = node.children.iter().map(|child| match child {
            ChildImage::Empty => None,
            ChildImage::Leaf(leaf) => Some(leaf.id),
            ChildImage::Node(id, _) => Some(*id),
        });
        Self {
            height: node.height,
            pivots: node.pivots.iter().map(|pivot| pivot.to_vec()).collect(),
            children: children.collect(),
            runs: node.runs.into_iter().map(|(age, run, shares)| (run.id, age, shares)).collect(),
        }
    }
}

/// What a stored node says.
pub fn read_node(bytes: &[u8]) -> Result<NodeSummary, &'static str> {
    decode(bytes).map(NodeSummary::of).ok_or("node does not parse")
}

/// What a tree's image says: the flushed timestamp and the root.
pub fn read_image(bytes: &[u8]) -> Result<(u64, NodeSummary), &'static str> {
    let header = parse_header(bytes)?;
    Ok((header.flushed_ts, read_node(header.root)?))
}

/// The segment a footer is of, and how many pages and entries it has.
pub fn read_footer(bytes: &[u8]) -> Result<(u64, u32, u64), &'static str> {
    let descriptor = Descriptor::decode(&mut Reader::new(bytes)).ok_or("footer does not parse")?;
    Ok((descriptor.id, descriptor.pages, descriptor.content.entries))
}
