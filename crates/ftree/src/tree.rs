//! One tree: what is in memory, what is on disk, and the one place where they change hands.
//!
//! Always true:
//! 1. A [`State`] is immutable but for the inserts into its active memtable. Readers pin one and
//!    see it whole; nobody waits for a reader.
//! 2. For one key, what lies higher (active, sealed, runs from the root down, leaf) is newer, or
//!    the same version again after a replay.
//! 3. States are swapped under `publish`, held for the swap only.
//!
//! Lock order: `work` → `publish` → pins.

mod pins;

use crate::cursor::Cursor;
use crate::error::Result;
use crate::memtable::{MemTable, hash};
use crate::message::{Direction, KeyRange, Message};
use crate::options::TreeOptions;
use crate::value::Value;
use cachetable::CacheTable;
use parking_lot::Mutex;
use pins::Pins;
use std::sync::Arc;

/// What all trees of an engine share.
pub struct Context {
    /// Frames of pages, block indexes and leaf filters.
    pub cache: Arc<CacheTable>,
}

/// What a reader sees of a tree.
pub(crate) struct State {
    pub(crate) active: Arc<MemTable>,
    /// Sealed and not yet drained, newest first.
    pub(crate) sealed: Vec<Arc<MemTable>>,
}

impl State {
    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

/// A fractal tree. Reads and inserts from any thread; background work is asked for by
/// [`Tree::work`].
pub struct Tree {
    id: u64,
    options: TreeOptions,
    context: Arc<Context>,
    pins: Pins,
    publish: Mutex<()>,
}

impl Tree {
    /// An empty tree. `id` is the dictionary's, part of every page's checksum.
    pub fn create(context: &Arc<Context>, id: u64, options: TreeOptions) -> Arc<Self> {
        let state = State { active: Arc::new(MemTable::new()), sealed: Vec::new() };
        Arc::new(Self {
            id,
            options,
            context: Arc::clone(context),
            pins: Pins::new(Arc::new(state)),
            publish: Mutex::new(()),
        })
    }

    /// The dictionary's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The shape it was created with.
    pub fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// Adds a version of `key`, in memory only: the caller made it durable. From any thread; the
    /// same (key, timestamp) again changes nothing. Per key, callers insert in timestamp order
    /// (they hold the key's lock). `ts` is neither 0 nor `u64::MAX`.
    pub fn insert(&self, key: &[u8], ts: u64, message: Message<'_>) {
        let hash = hash(key);
        loop {
            // A table sealed meanwhile refuses, then the next pin shows its successor.
            if self.pins.pin().active.insert(key, hash, ts, message) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The value of `key` for a reader at `ts`. May read the disk.
    pub fn get(&self, key: &[u8], ts: u64) -> Result<Option<Value>> {
        let hash = hash(key);
        let state = self.pins.pin();
        for table in state.memtables() {
            if let Some((_, message)) = table.get(key, hash, ts) {
                return Ok(message.value().map(|bytes| Value::in_memory(table, bytes)));
            }
        }
        Ok(None)
    }

    /// The newest version of `key`: its timestamp, and whether it is a delete. `None` where the
    /// key was never written, or its delete is older than every live snapshot and was dropped.
    /// May read the disk.
    pub fn newest(&self, key: &[u8]) -> Result<Option<(u64, bool)>> {
        let hash = hash(key);
        let state = self.pins.pin();
        for table in state.memtables() {
            if let Some((ts, message)) = table.get(key, hash, u64::MAX) {
                return Ok(Some((ts, message == Message::Delete)));
            }
        }
        Ok(None)
    }

    /// A cursor over `range` as a reader at `ts` sees it. Reads nothing until its first step.
    pub fn cursor(self: &Arc<Self>, range: KeyRange, ts: u64, direction: Direction) -> Cursor {
        Cursor::new(Arc::clone(self), range, ts, direction)
    }

    /// Memory of all memtables, exact.
    pub fn memory_bytes(&self) -> u64 {
        self.pins.pin().memtables().map(|table| table.bytes()).sum()
    }

    /// Memory of the active memtable alone: what a seal would set free to be drained.
    pub fn active_bytes(&self) -> u64 {
        self.pins.pin().active.bytes()
    }

    /// Seals the active memtable and starts a new one; false where it is empty. `flushed_ts`
    /// promises that every commit up to it has finished inserting; later ones may be inside too.
    pub fn seal(&self, flushed_ts: u64) -> bool {
        let _swap = self.publish.lock();
        let state = self.pins.pin();
        if state.active.entries() == 0 {
            return false;
        }
        state.active.seal(flushed_ts);
        let mut sealed = vec![Arc::clone(&state.active)];
        sealed.extend(state.sealed.iter().cloned());
        self.pins.publish(&Arc::new(State { active: Arc::new(MemTable::new()), sealed }));
        true
    }

    /// What this tree shares with others.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn pin(&self) -> Arc<State> {
        self.pins.pin_state()
    }
}
