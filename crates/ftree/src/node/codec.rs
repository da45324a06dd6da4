//! A node as bytes, and a tree of nodes back from them.
//!
//! ```text
//! u8      version, 2; 3 where a leaf names a compression dictionary
//! u8      height
//! u8      bit 0: a lower bound follows; bit 1: an upper bound follows
//! bytes   lower bound, upper bound (those that follow)
//! varint  children, 1 to 64
//! bytes   pivots, one less than children
//! child   u8 tag: 0 empty, 1 leaf: descriptor, 2 node: varint segment, offset, length
//! varint  runs, newest first: varint sequence, descriptor, one varint share per child
//! ```
//!
//! `bytes` is a varint length and the bytes. Child nodes are read from their own segments, one
//! page each, so a checkpoint writes only nodes that changed. On disk: `docs/formats/node.md`.

use super::parts::bounds_of;
use super::{Attached, Child, Node, Parts, StoredNode};
use crate::bytes::{Reader, put_bytes, put_varint};
use crate::error::{Error, Result};
use crate::options::{MAX_FANOUT, TreeOptions};
use crate::segment::{Bounds, Descriptor, Role, Segment};
use crate::tree_shared::TreeShared;
use blockfile::{PageRef, SegmentId};
use std::collections::BTreeMap;
use std::sync::Arc;

const VERSION: u8 = 2;
/// A leaf of it names a compression dictionary, which programs that know none refuse.
const DICTIONARY_VERSION: u8 = 3;
/// The highest node that is written. Trees grow by a factor of at least two per level.
const MAX_HEIGHT: u32 = 64;
/// The highest node that is read: no data fills so many levels, so more are damage. Below
/// [`MAX_HEIGHT`], so that a forged tree whose root splits is still written.
const MAX_READ_HEIGHT: u32 = 48;

/// A node's bytes. Its child nodes must have been stored.
pub(crate) fn encode(node: &Node, out: &mut Vec<u8>) {
    assert!((1..=MAX_HEIGHT).contains(&node.height), "a tree is at most 64 nodes high");
    let (bounds, start) = (&node.bounds, out.len());
    let names_one = |child: &Child| match child {
        Child::Leaf(leaf) => leaf.descriptor().dictionary.is_some(),
        Child::Empty | Child::Node(_) => false,
    };
    let has_dictionary = node.children.iter().any(names_one);
    out.push(if has_dictionary { DICTIONARY_VERSION } else { VERSION });
    out.push(node.height as u8);
    out.push(u8::from(bounds.lower.is_some()) | u8::from(bounds.upper.is_some()) << 1);
    for bound in [&bounds.lower, &bounds.upper].into_iter().flatten() {
        put_bytes(out, bound);
    }
    put_varint(out, node.children.len() as u64);
    for pivot in &node.pivots {
        put_bytes(out, pivot);
    }
    for child in &node.children {
        match child {
            Child::Empty => out.push(0),
            Child::Leaf(leaf) => {
                out.push(1);
                leaf.descriptor().encode(out);
            }
            Child::Node(node) => {
                let stored = node.stored.get().expect("children are stored before their parents");
                out.push(2);
                put_varint(out, stored.id);
                put_varint(out, stored.page.offset);
                put_varint(out, u64::from(stored.page.len));
            }
        }
    }
    put_varint(out, node.runs.len() as u64);
    for attached in &node.runs {
        put_varint(out, attached.sequence);
        attached.run.descriptor().encode(out);
        for share in &attached.shares {
            put_varint(out, *share);
        }
    }
    debug_assert!(decode(&out[start..]).is_some(), "a node reads as it was written");
}

/// What a node's bytes say, before anything it names was read.
pub(crate) struct NodeImage {
    pub(crate) height: u32,
    pub(crate) bounds: Bounds,
    pub(crate) pivots: Vec<Arc<[u8]>>,
    pub(crate) children: Vec<ChildImage>,
    pub(crate) runs: Vec<(u64, Descriptor, Vec<u64>)>,
}

/// What its bytes say of a child.
pub(crate) enum ChildImage {
    Empty,
    Leaf(Box<Descriptor>),
    Node(u64, PageRef),
}

/// Parses a node's bytes; `None` where they are not a node's.
pub(crate) fn decode(bytes: &[u8]) -> Option<NodeImage> {
    let mut reader = Reader::new(bytes);
    if !(VERSION..=DICTIONARY_VERSION).contains(&reader.byte()?) {
        return None;
    }
    let height = u32::from(reader.byte()?);
    let flags = reader.byte()?;
    if flags > 3 || height == 0 || height > MAX_READ_HEIGHT {
        return None;
    }
    let mut bound = |there: bool| -> Option<Option<Arc<[u8]>>> {
        if there { Some(Some(reader.bytes()?.into())) } else { Some(None) }
    };
    let bounds = Bounds { lower: bound(flags & 1 != 0)?, upper: bound(flags & 2 != 0)? };
    let width: usize = reader.number()?;
    if width == 0 || width > MAX_FANOUT {
        return None;
    }
    let mut pivots: Vec<Arc<[u8]>> = Vec::with_capacity(width - 1);
    for _ in 1..width {
        pivots.push(reader.bytes()?.into());
    }
    if !pivots.is_sorted_by(|left, right| left < right)
        || !pivots.iter().all(|pivot| bounds.contains(pivot))
    {
        return None;
    }
    let mut children = Vec::with_capacity(width);
    for _ in 0..width {
        children.push(match (reader.byte()?, height) {
            (0, 1) => ChildImage::Empty,
            (1, 1) => ChildImage::Leaf(Box::new(Descriptor::decode(&mut reader)?)),
            (2, 2..) => {
                let (id, offset, len) = (reader.varint()?, reader.varint()?, reader.number()?);
                ChildImage::Node(id, PageRef { page: 0, len, offset })
            }
            _ => return None,
        });
    }
    let count: usize = reader.number()?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let sequence = reader.varint()?;
        let descriptor = Descriptor::decode(&mut reader)?;
        let shares = (0..width).map(|_| reader.varint().filter(|share| *share < 1 << 48));
        runs.push((sequence, descriptor, shares.collect::<Option<Vec<_>>>()?));
    }
    let ordered = runs.is_sorted_by(|newer, older| newer.0 >= older.0);
    (reader.remaining() == 0 && ordered).then_some(NodeImage {
        height,
        bounds,
        pivots,
        children,
        runs,
    })
}

/// Loads the nodes of a tree. Runs that several nodes share become one object again.
pub(crate) struct Loader<'a> {
    shared: &'a Arc<TreeShared>,
    options: &'a TreeOptions,
    runs: BTreeMap<u64, Arc<Segment>>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(shared: &'a Arc<TreeShared>, options: &'a TreeOptions) -> Self {
        Self { shared, options, runs: BTreeMap::new() }
    }

    /// The root with these bytes and everything below it. Reads the disk.
    pub(crate) fn load(&mut self, bytes: &[u8]) -> Result<Arc<Node>> {
        match decode(bytes) {
            Some(image) => self.build(image),
            None => Err(self.corruption(0, "root node does not parse")),
        }
    }

    fn build(&mut self, image: NodeImage) -> Result<Arc<Node>> {
        let mut children = Vec::with_capacity(image.children.len());
        let mut parts = Parts {
            height: image.height,
            bounds: image.bounds,
            pivots: image.pivots,
            children: Vec::new(),
            runs: Vec::new(),
            reads: (0, 0),
        };
        for (at, child) in image.children.into_iter().enumerate() {
            children.push(match child {
                ChildImage::Empty => Child::Empty,
                ChildImage::Leaf(leaf) => {
                    let role = Role::of_leaf(self.shared.blocks.kind(SegmentId(leaf.id)));
                    Child::Leaf(Segment::new(self.shared, role, *leaf))
                }
                ChildImage::Node(id, page) => {
                    let place = (parts.height - 1, bounds_of(&parts.pivots, &parts.bounds, at));
                    Child::Node(self.load_child(id, page, &place)?)
                }
            });
        }
        parts.children = children;
        for (sequence, descriptor, shares) in image.runs {
            let run = match self.runs.get(&descriptor.id) {
                Some(run) => Arc::clone(run),
                None => Segment::new(self.shared, Role::Run, descriptor),
            };
            self.runs.insert(run.id(), Arc::clone(&run));
            parts.runs.push(Attached { run, sequence, live: 0, shares: shares.into() });
        }
        Ok(parts.close_one(self.options, self.shared))
    }

    /// The height and bounds a child must have are checked before anything below it is read, so
    /// that damaged nodes cannot name each other in a circle.
    fn load_child(&mut self, id: u64, page: PageRef, place: &(u32, Bounds)) -> Result<Arc<Node>> {
        let mut bytes = Vec::new();
        self.shared.blocks.read_page(self.shared.tree, SegmentId(id), page, &mut bytes)?;
        let Some(image) = decode(&bytes) else {
            return Err(self.corruption(id, "node does not parse"));
        };
        if (image.height, &image.bounds) != (place.0, &place.1) {
            return Err(self.corruption(id, "node does not fit its parent"));
        }
        let node = self.build(image)?;
        let stored = StoredNode { id, page, shared: Arc::clone(self.shared) };
        assert!(node.stored.set(stored).is_ok(), "a fresh node is not stored yet");
        Ok(node)
    }

    fn corruption(&self, segment: u64, what: &'static str) -> Error {
        Error::Corruption { tree: self.shared.tree, segment, page: 0, what }
    }
}
