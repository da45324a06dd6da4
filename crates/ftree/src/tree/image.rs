//! A tree as a checkpoint stores it, and a tree back from that.
//!
//! ```text
//! 0   u32  magic "FTRE"
//! 4   u16  version: 2 where there are tombstones, else 1
//! 6   u16  reserved, 0
//! 8   u64  sequence: the greatest age of a run
//! 16  u64  flushed timestamp: every commit up to it is in the image
//! 24  …    version 2: u32 how many bytes, then tombstones up to the flushed timestamp
//! …        the root node
//! end u32  crc32c of everything before
//! ```
//!
//! Nodes below the root have segments of their own and are written only when they changed since
//! they were stored last. On disk: `docs/formats/node.md`.

use super::{Context, State, Tree};
use crate::bytes::{put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use crate::memtable::MemTable;
use crate::node::{Child, Loader, Node, StoredNode, encode};
use crate::options::TreeOptions;
use crate::tombstones::{self, Tombstone};
use crate::tree_shared::{TreeShared, count};
use os::sync::atomic::AtomicBool;
use std::ops::AddAssign;
use std::sync::Arc;

const MAGIC: u32 = u32::from_le_bytes(*b"FTRE");
/// Without tombstones.
const VERSION: u16 = 1;
/// With tombstones.
const TOMBSTONES_VERSION: u16 = 2;
const HEADER_BYTES: usize = 24;
/// The kind nodes have in the block file; runs are 1, leaves 2.
const NODE_KIND: u8 = 3;

/// What a checkpoint stores of a tree. It pins the root it describes: keep it until the checkpoint
/// that names it is marked in the block file (`begin_checkpoint`), so that nothing it names is
/// freed before.
pub struct TreeImage {
    bytes: Vec<u8>,
    flushed_ts: u64,
    written: NodesWritten,
    _root: Arc<Node>,
}

/// The nodes an image had to store, because they changed since the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodesWritten {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their bytes in the data file.
    pub stored_bytes: u64,
}

impl AddAssign for NodesWritten {
    fn add_assign(&mut self, more: Self) {
        self.count += more.count;
        self.bytes += more.bytes;
        self.stored_bytes += more.stored_bytes;
    }
}

impl TreeImage {
    /// What [`Tree::open`] takes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Every commit up to here is inside; replay starts behind it.
    pub fn flushed_ts(&self) -> u64 {
        self.flushed_ts
    }

    /// What taking it wrote.
    pub fn written(&self) -> NodesWritten {
        self.written
    }
}

/// A tree's root at one moment, with everything below it.
pub struct Capture {
    tree: Arc<Tree>,
    state: Arc<State>,
}

impl Capture {
    /// What a checkpoint stores of it. Writes nodes that changed since the last image; waits for
    /// no other work.
    pub fn image(self) -> Result<TreeImage> {
        self.tree.image_of(&self.state)
    }
}

impl Tree {
    /// What is drained of the tree now. Takes a microsecond and holds nobody up.
    pub fn capture(self: &Arc<Self>) -> Capture {
        Capture { tree: Arc::clone(self), state: self.pin() }
    }

    /// Captures the tree and makes the image at once.
    pub fn image(&self) -> Result<TreeImage> {
        self.image_of(&self.pin())
    }

    fn image_of(&self, state: &State) -> Result<TreeImage> {
        let _one_at_a_time = self.imaging.lock();
        let mut written = NodesWritten::default();
        for child in &state.root.children {
            if let Child::Node(node) = child {
                self.store(node, &mut written)?;
            }
        }
        let has_flushed = |one: &Tombstone| one.ts <= state.flushed_ts;
        let tombstones = state.tombstones.as_ref();
        let tombstones = tombstones.filter(|all| all.list().iter().any(has_flushed));
        let version = if tombstones.is_some() { TOMBSTONES_VERSION } else { VERSION };
        let mut bytes = Vec::with_capacity(256);
        put_u32(&mut bytes, MAGIC);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        put_u64(&mut bytes, state.sequence);
        put_u64(&mut bytes, state.flushed_ts);
        if let Some(tombstones) = tombstones {
            let mut encoded = Vec::new();
            tombstones.encode(state.flushed_ts, &mut encoded);
            put_u32(&mut bytes, encoded.len() as u32);
            bytes.extend_from_slice(&encoded);
        }
        encode(&state.root, &mut bytes);
        let sum = crc32c::crc32c(&bytes);
        put_u32(&mut bytes, sum);
        let (flushed_ts, root) = (state.flushed_ts, Arc::clone(&state.root));
        Ok(TreeImage { bytes, flushed_ts, written, _root: root })
    }

    fn store(&self, node: &Node, written: &mut NodesWritten) -> Result<()> {
        if node.stored.get().is_some() {
            return Ok(());
        }
        for child in &node.children {
            if let Child::Node(below) = child {
                self.store(below, written)?;
            }
        }
        let mut bytes = Vec::with_capacity(4096);
        encode(node, &mut bytes);
        let mut writer = self.shared.blocks.start_segment(NODE_KIND).for_checkpoint();
        let page = writer.append_page(self.shared.tree, self.options().compression, &bytes)?;
        let stored_bytes = writer.len();
        let id = writer.finish()?.0;
        count(&self.shared.counters.written_bytes, stored_bytes);
        written.count += 1;
        written.bytes += bytes.len() as u64;
        written.stored_bytes += stored_bytes;
        let stored = StoredNode { id, page, shared: Arc::clone(&self.shared) };
        assert!(node.stored.set(stored).is_ok(), "images are taken one at a time");
        Ok(())
    }

    /// The tree an image describes. Reads its nodes; runs and leaves are read when needed.
    pub fn open(
        context: &Arc<Context>,
        id: u64,
        options: TreeOptions,
        image: &[u8],
    ) -> Result<Arc<Self>> {
        let corruption = |what| Error::Corruption { tree: id, segment: 0, page: 0, what };
        let options = options.sound();
        let header = parse_header(image).map_err(corruption)?;
        let shared = TreeShared::new(id, context.blocks.clone(), Arc::clone(&context.cache));
        let root = Loader::new(&shared, &options).load(header.root)?;
        let state = State {
            active: Arc::new(MemTable::new(&context.cache, &context.hasher)),
            sealed: Vec::new(),
            root,
            flushed_ts: header.flushed_ts,
            sequence: header.sequence,
            tombstones: context.tombstones(header.tombstones).map(Arc::new),
            installed: AtomicBool::new(false),
        };
        Ok(Self::with_state(context, shared, options, state))
    }
}

/// What stands before the root.
pub(crate) struct Header<'a> {
    pub(crate) sequence: u64,
    pub(crate) flushed_ts: u64,
    pub(crate) tombstones: Vec<Tombstone>,
    pub(crate) root: &'a [u8],
}

pub(crate) fn parse_header(image: &[u8]) -> Result<Header<'_>, &'static str> {
    const SHORT: &str = "tree image is cut short";
    let end = image.len().checked_sub(4).filter(|end| *end >= HEADER_BYTES).ok_or(SHORT)?;
    if u32_at(image, 0) != Some(MAGIC) {
        return Err("not a tree image");
    }
    let version = u16_at(image, 4).ok_or(SHORT)?;
    if ![VERSION, TOMBSTONES_VERSION].contains(&version) || u16_at(image, 6) != Some(0) {
        return Err("tree image of an unknown version");
    }
    if u32_at(image, end) != Some(crc32c::crc32c(&image[..end])) {
        return Err("tree image checksum differs");
    }
    let sequence = u64_at(image, 8).ok_or(SHORT)?;
    let flushed_ts = u64_at(image, 16).ok_or(SHORT)?;
    let (mut tombstones, mut root) = (Vec::new(), &image[HEADER_BYTES..end]);
    if version == TOMBSTONES_VERSION {
        let (len, rest) = root.split_first_chunk::<4>().ok_or(SHORT)?;
        let len = u32::from_le_bytes(*len) as usize;
        let (encoded, rest) = rest.split_at_checked(len).ok_or(SHORT)?;
        tombstones = tombstones::decode(encoded).ok_or("tombstones do not parse")?;
        root = rest;
    }
    Ok(Header { sequence, flushed_ts, tombstones, root })
}
