//! One tree: what is in memory, what is on disk, and the one place where they change hands.
//!
//! Always true:
//! 1. A [`State`] is immutable but for the inserts into its active memtable. Readers pin one and
//!    see it whole; nobody waits for a reader.
//! 2. For one key, what lies higher (active, sealed layers, runs from the root down, leaf) is newer,
//!    or the same version again (a replay): a read stops at the first version it can see.
//! 3. States are swapped under `publish`, held for the swap only, or while memtables are built anew
//!    without what is forgotten.
//!
//! Lock order: claims → pins; `publish` → pins; `imaging` alone.

mod cursor;
mod fold;
mod forget;
mod image;
mod layer;
mod load;
mod pins;
mod prefetch;
mod publish;
mod stats;
mod tombstone;
mod verify;
mod work;

pub use cursor::Cursor;
pub(crate) use image::parse_header;
pub use image::{Capture, NodesWritten, TreeImage};
pub use load::TreeLoader;
pub use stats::{Debt, Stats};
pub use verify::Report;
use work::{Claims, Sweep};
pub use work::{Effort, Progress, Step, Walk, Work};

use crate::error::Result;
use crate::key_hasher::KeyHasher;
use crate::memtable::{MOST_TOGETHER, MemTable, Version, hash};
use crate::merge_limiter::MergeLimiter;
use crate::message::{Direction, KeyRange, Kind, Message};
use crate::node::{Child, Node, Parts, reads};
use crate::options::TreeOptions;
use crate::overlay::Overlay;
use crate::readers::ReadPool;
use crate::segment::Found;
use crate::spill::{SpillTree, Written};
use crate::tombstones::{RecordPart, Tombstone, TombstoneBug, Tombstones, no_parts};
use crate::tree_shared::TreeShared;
use crate::updates::{NoUpdates, Updates};
use crate::value::Value;
use blockfile::BlockFile;
use cachetable::{Access, CacheTable, Frame, MemoryKind, Reservation};
use layer::Layer;
use os::sync::atomic::{AtomicBool, Ordering};
use os::sync::{Mutex, RwLock};
use pins::Pins;
use std::sync::Arc;

/// What all trees of an engine share.
pub struct Context {
    /// Where segments live.
    pub blocks: BlockFile,
    /// Frames of pages, block indexes and filters; its bound covers nodes too.
    pub cache: Arc<CacheTable>,
    /// Who reads several pages at once, or ahead.
    pub readers: Arc<ReadPool>,
    /// How many merge at once.
    pub merge_limiter: MergeLimiter,
    /// The hash of keys in memory.
    pub hasher: KeyHasher,
    /// What updates mean.
    pub updates: Arc<dyn Updates>,
    /// Finds in an entry what tombstones of parts are compared with.
    pub record_part: RecordPart,
    planted: Option<TombstoneBug>,
}

impl Context {
    /// A context over one data file and one cache; everything is read by the callers that need it,
    /// and keys hash the same in every process.
    pub fn new(blocks: BlockFile, cache: Arc<CacheTable>) -> Arc<Self> {
        Self::with_updates(blocks, cache, Arc::new(NoUpdates))
    }

    /// The same, where updates mean something.
    pub fn with_updates(
        blocks: BlockFile,
        cache: Arc<CacheTable>,
        updates: Arc<dyn Updates>,
    ) -> Arc<Self> {
        let (readers, hasher) = (ReadPool::none(), KeyHasher::fixed());
        Self::with_readers(blocks, cache, readers, hasher, Some(updates), (no_parts, None))
    }

    /// The same, with threads that read for others, a hash of keys that is this process's, and tombstones of parts of
    /// entries. Without `updates` there are none: each would leave what is there.
    pub fn with_readers(
        blocks: BlockFile,
        cache: Arc<CacheTable>,
        readers: Arc<ReadPool>,
        hasher: KeyHasher,
        updates: Option<Arc<dyn Updates>>,
        (record_part, planted): (RecordPart, Option<TombstoneBug>),
    ) -> Arc<Self> {
        let merge_limiter = MergeLimiter::default();
        let updates = updates.unwrap_or_else(|| Arc::new(NoUpdates));
        Arc::new(Self {
            blocks,
            cache,
            readers,
            merge_limiter,
            hasher,
            updates,
            record_part,
            planted,
        })
    }

    fn tombstones(&self, list: Vec<Tombstone>) -> Option<Tombstones> {
        Tombstones::new(list, self.record_part, self.planted)
    }
}

/// What a reader sees of a tree.
pub(crate) struct State {
    pub(crate) active: Arc<MemTable>,
    /// Sealed and not yet drained, newest first.
    pub(crate) sealed: Vec<Layer>,
    pub(crate) root: Arc<Node>,
    /// Every commit up to here is below the root.
    pub(crate) flushed_ts: u64,
    /// The greatest age of a run.
    pub(crate) sequence: u64,
    /// What was deleted by ranges, mostly nothing.
    pub(crate) tombstones: Option<Arc<Tombstones>>,
    /// Every slot of [`Pins`] shows this state, or a later one.
    pub(crate) installed: AtomicBool,
}

impl State {
    /// Inserts into the active memtable may start: every reader that can see their commits will
    /// see that memtable.
    fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Acquire)
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.active).chain(self.sealed.iter().filter_map(Layer::table))
    }
}

/// A fractal tree. Reads and inserts from any thread; background work is asked for by
/// [`Tree::work`].
pub struct Tree {
    /// The shape of what is written from now on; what is written keeps its own.
    options: RwLock<TreeOptions>,
    context: Arc<Context>,
    shared: Arc<TreeShared>,
    pins: Pins,
    publish: Mutex<()>,
    claims: Claims,
    imaging: Mutex<()>,
    /// How far the sweep of tombstones is, where there is one.
    sweep: Mutex<Option<Box<Sweep>>>,
    discarded: AtomicBool,
    _memory: Reservation,
}

/// What an idle tree takes beside its root, with what the engine and the allocator add: measured.
const TREE_BYTES: u64 = 1056;

impl Tree {
    /// An empty tree. `id` is the dictionary's, part of every page's checksum. Options out of range
    /// are taken as the nearest possible ones.
    pub fn create(context: &Arc<Context>, id: u64, options: TreeOptions) -> Arc<Self> {
        let options = options.sound();
        let shared = TreeShared::new(id, context.blocks.clone(), Arc::clone(&context.cache));
        let root = Parts::over(1, Child::Empty).close(&options, &shared).pop();
        let state = State {
            active: Arc::new(MemTable::new(&context.cache, &context.hasher)),
            sealed: Vec::new(),
            root: root.expect("one child fits one node"),
            flushed_ts: 0,
            sequence: 0,
            tombstones: None,
            installed: AtomicBool::new(false),
        };
        Self::with_state(context, shared, options, state)
    }

    fn with_state(
        context: &Arc<Context>,
        shared: Arc<TreeShared>,
        options: TreeOptions,
        state: State,
    ) -> Arc<Self> {
        shared.keep_segments(false);
        Arc::new(Self {
            options: RwLock::new(options),
            context: Arc::clone(context),
            shared,
            pins: Pins::new(&Arc::new(state), &context.cache),
            publish: Mutex::new(()),
            claims: Claims::default(),
            imaging: Mutex::new(()),
            sweep: Mutex::new(None),
            discarded: AtomicBool::new(false),
            _memory: context.cache.reserve(MemoryKind::Nodes, TREE_BYTES),
        })
    }

    /// The dictionary's id.
    pub fn id(&self) -> u64 {
        self.shared.tree
    }

    /// The shape of what is written from now on.
    pub fn options(&self) -> TreeOptions {
        *self.options.read()
    }

    /// Changes the shape of what is written from now on. What is written already keeps its shape
    /// and is read as before, until work comes by, or a rewrite. Options out of range are taken
    /// as the nearest possible ones.
    pub fn set_options(&self, options: TreeOptions) {
        *self.options.write() = options.sound();
    }

    /// What this tree shares with others.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Adds a version of `key`, in memory only: the caller made it durable. From any thread; the
    /// same (key, timestamp) again changes nothing. Per key, callers insert in timestamp order
    /// (they hold the key's lock). `ts` is neither 0 nor `u64::MAX`. Says whether the tree's memory
    /// grew: most entries go into memory taken before.
    pub fn insert(&self, key: &[u8], ts: u64, message: Message<'_>) -> bool {
        assert!(!matches!(message, Message::Large(_)), "only the tree places large values");
        let hash = self.context.hasher.hash(key);
        // A table sealed meanwhile refuses, then the next pin shows its successor.
        loop {
            let state = self.pins.pin();
            if state.is_installed() {
                let before = state.active.bytes();
                if state.active.insert(key, hash, ts, message) {
                    return state.active.bytes() != before;
                }
            }
            os::sync::yield_now();
        }
    }

    /// As [`Tree::insert`], of much that one commit wrote: it takes less time than one after the other.
    pub fn insert_all(&self, ts: u64, writes: &[(&[u8], Message<'_>)]) -> bool {
        let mut grew = false;
        let mut versions: [Version<'_>; MOST_TOGETHER] =
            [(&[], ts, Message::Delete); MOST_TOGETHER];
        for writes in writes.chunks(MOST_TOGETHER) {
            for (version, (key, message)) in versions.iter_mut().zip(writes) {
                *version = (key, ts, *message);
            }
            grew |= self.insert_versions(&versions[..writes.len()]);
        }
        grew
    }

    /// The same, of what several commits wrote, in their order.
    pub fn insert_versions(&self, versions: &[Version<'_>]) -> bool {
        let mut grew = false;
        for versions in versions.chunks(MOST_TOGETHER) {
            let is_large = |(_, _, message): &Version<'_>| matches!(message, Message::Large(_));
            assert!(!versions.iter().any(is_large), "only the tree places large values");
            loop {
                let state = self.pins.pin();
                if state.is_installed() {
                    let before = state.active.bytes();
                    if state.active.insert_all(versions) {
                        grew |= state.active.bytes() != before;
                        break;
                    }
                }
                os::sync::yield_now();
            }
        }
        grew
    }

    /// The value of `key` for a reader at `ts`. May read the disk: one page for most keys.
    pub fn get(&self, key: &[u8], ts: u64) -> Result<Option<Value>> {
        let state = self.pins.pin();
        if let Some(tombstones) = &state.tombstones {
            return self.get_under(&state, tombstones, key, ts);
        }
        let found = self.find(&state, key, ts, true, |table, _, message| match message {
            Message::Update(_) => None,
            message => Some(message.value().map(|bytes| Value::in_memory(table, bytes))),
        })?;
        Ok(match found {
            Some(Lookup::Memory(Some(value))) => value,
            Some(Lookup::Memory(None) | Lookup::Spilled(_, Written::Update(_))) => {
                return self.get_folded(key, ts);
            }
            Some(Lookup::Disk(found)) if found.kind == Kind::Update => {
                return self.get_folded(key, ts);
            }
            Some(Lookup::Spilled(_, Written::Value(value))) => Some(value),
            Some(Lookup::Disk(found)) if found.kind != Kind::Delete => {
                Some(Value::in_frame(found.frame, found.payload))
            }
            Some(Lookup::Spilled(_, Written::Deleted) | Lookup::Disk(_)) | None => None,
        })
    }

    /// The newest version of `key`: its timestamp, and whether the key has nothing since, which may be a tombstone's
    /// doing. `None` where the key was never written, or its delete is older than every live snapshot and was
    /// dropped. May read the disk.
    pub fn newest(&self, key: &[u8]) -> Result<Option<(u64, bool)>> {
        Ok(match self.newest_version(key)? {
            Some((ts, Kind::Update)) => Some((ts, self.get_folded(key, u64::MAX - 1)?.is_none())),
            newest => newest.map(|(ts, kind)| (ts, kind == Kind::Delete)),
        })
    }

    /// When `key` was written last, as [`Tree::newest`] says it. May read the disk.
    pub fn newest_ts(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.newest_version(key)?.map(|(ts, _)| ts))
    }

    fn newest_version(&self, key: &[u8]) -> Result<Option<(u64, Kind)>> {
        let state = self.pins.pin();
        if let Some(tombstones) = &state.tombstones {
            return self.newest_under(&state, tombstones, key);
        }
        let found =
            self.find(&state, key, u64::MAX, false, |_, ts, message| (ts, message.kind()))?;
        Ok(found.map(|found| match found {
            Lookup::Memory(version) => version,
            Lookup::Spilled(ts, Written::Value(_)) => (ts, Kind::Put),
            Lookup::Spilled(ts, Written::Deleted) => (ts, Kind::Delete),
            Lookup::Spilled(ts, Written::Update(_)) => (ts, Kind::Update),
            Lookup::Disk(found) => (found.ts, found.kind),
        }))
    }

    /// Looks for the first version of `key` a reader at `ts` sees, from the top down. With
    /// `values` a value that lies by itself is loaded, while the state that keeps it is pinned.
    fn find<T>(
        &self,
        state: &State,
        key: &[u8],
        ts: u64,
        values: bool,
        in_memory: impl Fn(&Arc<MemTable>, u64, Message<'_>) -> T,
    ) -> Result<Option<Lookup<T>>> {
        let in_memory_hash = self.context.hasher.hash(key);
        if let Some((ts, message)) = state.active.get(key, in_memory_hash, ts) {
            return Ok(Some(Lookup::Memory(in_memory(&state.active, ts, message))));
        }
        for layer in &state.sealed {
            match layer {
                Layer::Table(table) => {
                    if let Some((ts, message)) = table.get(key, in_memory_hash, ts) {
                        return Ok(Some(Lookup::Memory(in_memory(table, ts, message))));
                    }
                }
                Layer::Overlay(overlay) => {
                    if let Some((ts, value)) = overlay.get(key, ts)? {
                        return Ok(Some(Lookup::Spilled(ts, value)));
                    }
                }
            }
        }
        let hash = hash(key);
        let notes = reads::sampled(hash, ts);
        let mut node = &state.root;
        loop {
            let child = node.child_of(key);
            if let Some(each) = notes {
                self.note_reads(node, node.live_runs(child) * each);
            }
            for attached in node.runs.iter().filter(|attached| attached.is_live(child)) {
                if let Some(found) = attached.run.get(key, hash, ts)? {
                    return self.on_disk(found, values).map(Some);
                }
            }
            match &node.children[child] {
                Child::Node(below) => node = below,
                Child::Leaf(leaf) => {
                    let found = leaf.get(key, hash, ts)?;
                    return found.map(|found| self.on_disk(found, values)).transpose();
                }
                Child::Empty => return Ok(None),
            }
        }
    }

    /// Adds to a node's read debt, and lets the background know once that is the price of a flush.
    pub(crate) fn note_reads(&self, node: &Node, bytes: u64) {
        if node.reads.note(bytes) {
            self.shared.has_read_flush.store(true, Ordering::Relaxed);
        }
    }

    fn on_disk<T>(&self, mut found: Found, values: bool) -> Result<Lookup<T>> {
        if values && found.kind == Kind::Large {
            found.frame = self.load_large(&found.frame[found.payload], Access::Demand)?;
            found.payload = 0..found.frame.len();
        }
        Ok(Lookup::Disk(found))
    }

    pub(crate) fn load_large(&self, reference: &[u8], entry: Access) -> Result<Frame> {
        self.shared.load_large(reference, entry)
    }

    /// A cursor over `range` as a reader at `ts` sees it; `ts` must stay among the live snapshots
    /// that [`Tree::work`] is told of. Reads nothing until its first step.
    pub fn cursor(self: &Arc<Self>, range: KeyRange, ts: u64, direction: Direction) -> Cursor {
        Cursor::new(Arc::clone(self), range, ts, direction)
    }

    /// Memory of all memtables, exact.
    pub fn memory_bytes(&self) -> u64 {
        self.pin().memtables().map(|table| table.bytes()).sum()
    }

    /// Seals the active memtable and starts a new one; false where it is empty. `flushed_ts`
    /// promises that every commit up to it has finished inserting; later ones may be inside too.
    /// Where nothing was inserted, the tree's flushed timestamp moves up all the same.
    pub fn seal(&self, flushed_ts: u64) -> bool {
        self.seal_below(flushed_ts, || 0)
    }

    /// As [`Tree::seal`] where versions may have to stay in memory ([`Visibility::draining_to`]): `newest` is
    /// asked when no insert begins any more, and nothing sealed is newer than it says.
    ///
    /// [`Visibility::draining_to`]: crate::Visibility::draining_to
    pub fn seal_below(&self, flushed_ts: u64, newest: impl FnOnce() -> u64) -> bool {
        let _swap = self.publish.lock();
        let state = self.pin();
        let mut next = State {
            active: Arc::clone(&state.active),
            sealed: state.sealed.clone(),
            root: Arc::clone(&state.root),
            flushed_ts: state.flushed_ts,
            sequence: state.sequence,
            tombstones: state.tombstones.clone(),
            installed: AtomicBool::new(false),
        };
        let full = state.active.entries() > 0;
        if full {
            state.active.seal(flushed_ts);
            state.active.set_newest_ts(newest());
            next.sealed.insert(0, Layer::Table(Arc::clone(&state.active)));
            next.active = Arc::new(MemTable::new(&self.context.cache, &self.context.hasher));
        } else if let Some(newest) = state.sealed.first() {
            newest.raise_flushed_ts(flushed_ts);
        } else {
            next.flushed_ts = next.flushed_ts.max(flushed_ts);
        }
        assert!(next.flushed_ts >= state.flushed_ts, "what is flushed stays flushed");
        self.pins.publish(&Arc::new(next));
        full
    }

    /// Makes the writes of one space of a spill part of this tree, as commit `ts`, in one step
    /// whatever their number. As with [`Tree::insert`] the caller made them durable and holds
    /// their locks; `flushed_ts` and `newest` are as for [`Tree::seal_below`]. Touches no disk.
    pub fn adopt(
        &self,
        spill: &SpillTree,
        space: u64,
        ts: u64,
        flushed_ts: u64,
        newest: impl FnOnce() -> u64,
    ) {
        let _swap = self.publish.lock();
        let state = self.pin();
        let mut sealed = state.sealed.clone();
        let mut active = Arc::clone(&state.active);
        // Older versions of the spill's keys go below it. An insert that is just beginning is of
        // other keys: it may stay above.
        if active.entries() > 0 {
            active.seal(flushed_ts);
            active.set_newest_ts(newest());
            sealed.insert(0, Layer::Table(active));
            active = Arc::new(MemTable::new(&self.context.cache, &self.context.hasher));
        }
        sealed.insert(0, Layer::Overlay(Overlay::new(spill, space, ts, flushed_ts)));
        let next = State {
            active,
            sealed,
            root: Arc::clone(&state.root),
            flushed_ts: state.flushed_ts,
            sequence: state.sequence,
            tombstones: state.tombstones.clone(),
            installed: AtomicBool::new(false),
        };
        self.pins.publish(&Arc::new(next));
    }

    /// Every commit up to here is drained to disk; replay of the log starts behind it.
    pub fn flushed_ts(&self) -> u64 {
        self.pin().flushed_ts
    }

    /// The dictionary is dropped: its segments are freed as soon as no reader sees them. Call it
    /// once nothing will be written any more, then let go of the tree.
    pub fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
    }

    pub(crate) fn pin(&self) -> Arc<State> {
        self.pins.pin_state()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A tree that is merely closed keeps its segments: images name them.
        if !self.discarded.load(Ordering::Acquire) {
            self.shared.keep_segments(true);
        }
    }
}

/// Where a version was found.
enum Lookup<T> {
    Memory(T),
    /// With its timestamp.
    Spilled(u64, Written),
    Disk(Found),
}
