//! Writes of one transaction that are too many for memory: on disk, in a tree of their own.
//!
//! The tree is private: no checkpoint names it, its segments go with its last user, and after a
//! crash they are orphans that the next start frees. Its timestamps are a clock that ticks with
//! every write, so what the writes looked like at any earlier moment can be read: that is what a
//! cursor sees, and what a rollback goes back to. All versions stay until the whole spill goes.
//!
//! ```text
//! 0 u8 | space u64 BE | key   →  0 u8: not written | 1 u8: deleted | 2 u8: value | 3 u8: update
//! 1 u8 | clock u64 BE         →  space u64 BE | key        the write that ticked it, if noted
//! ```
//!
//! A *space* is the dictionary the writes are for. Never in a file that outlives the process, so
//! the layout has no version.

use crate::error::Result;
use crate::message::{Direction, KeyRange, Message, Visibility};
use crate::options::TreeOptions;
use crate::tree::{Context, Cursor, Effort, Progress, Tree};
use crate::value::Value;
use cachetable::MemoryKind;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

const WRITES: u8 = 0;
const NOTES: u8 = 1;
/// Table and space.
const PREFIX_BYTES: usize = 9;

/// A longer value's copy goes with it, and is counted for as long as it is there.
const KEPT_BYTES: usize = 64 << 10;

const UNWRITTEN: u8 = 0;
const DELETED: u8 = 1;
const VALUE: u8 = 2;
const UPDATE: u8 = 3;

/// What was written to a key.
#[derive(Debug)]
pub enum Written {
    /// This value.
    Value(Value),
    /// It is gone.
    Deleted,
    /// An update with this argument.
    Update(Value),
}

/// A transaction's writes on disk. One thread writes; dropping it frees what nobody reads.
pub struct SpillTree {
    tree: Arc<Tree>,
    clock: u64,
    spaces: BTreeSet<u64>,
    budget: u64,
    buffer: Vec<u8>,
}

impl SpillTree {
    /// An empty spill that keeps about `budget` bytes in memory before it writes them out. `id`
    /// is part of every page's checksum, and no tree's.
    pub fn create(context: &Arc<Context>, id: u64, options: TreeOptions, budget: u64) -> Self {
        // Own reads of keys that were not written are the usual case.
        let tree = Tree::create(context, id, TreeOptions { leaf_filter: true, ..options });
        tree.discard();
        Self { tree, clock: 0, spaces: BTreeSet::new(), budget, buffer: Vec::new() }
    }

    /// Ticks the clock and writes `key`; `None` deletes. A noted write can be rolled back. May
    /// write to the disk; after an error nothing was written.
    pub fn write(
        &mut self,
        space: u64,
        key: &[u8],
        value: Option<&[u8]>,
        noted: bool,
    ) -> Result<()> {
        self.write_message(space, key, value.map_or(Message::Delete, Message::Put), noted)
    }

    /// As [`SpillTree::write`], of an update also.
    pub fn write_message(
        &mut self,
        space: u64,
        key: &[u8],
        message: Message<'_>,
        noted: bool,
    ) -> Result<()> {
        if self.tree.memory_bytes() > self.budget {
            self.settle()?;
        }
        self.spaces.insert(space);
        self.clock += 1;
        let place = writes_key(space, key);
        let mut payload = std::mem::take(&mut self.buffer);
        payload.clear();
        let len = 1 + message.payload().len();
        let cache = &self.tree.context().cache;
        let _copy = (len > KEPT_BYTES).then(|| cache.reserve(MemoryKind::WriteSets, len as u64));
        payload.reserve_exact(len);
        payload.push(match message {
            Message::Update(_) => UPDATE,
            Message::Delete => DELETED,
            Message::Put(_) | Message::Large(_) => VALUE,
        });
        payload.extend_from_slice(message.payload());
        debug_assert_eq!(payload.len(), len, "what was made room for and counted");
        self.tree.insert(&place, self.clock, Message::Put(&payload));
        if noted {
            let note = table_key(NOTES, self.clock, &[]);
            self.tree.insert(&note, self.clock, Message::Put(&place[1..]));
        }
        payload.shrink_to(KEPT_BYTES);
        self.buffer = payload;
        Ok(())
    }

    /// What was written to `key`, if it was. May read the disk.
    pub fn get(&self, space: u64, key: &[u8]) -> Result<Option<Written>> {
        get_at(&self.tree, space, key, self.clock)
    }

    /// The time now: a place to roll back to.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Takes back the noted writes since `clock`. Reads and writes the disk; after an error some
    /// may be taken back and others not.
    pub fn roll_back(&mut self, clock: u64) -> Result<()> {
        let range = KeyRange {
            lower: Bound::Included(table_key(NOTES, clock + 1, &[])),
            upper: Bound::Unbounded,
        };
        let mut notes = self.tree.cursor(range, self.clock, Direction::Forward);
        while let Some((_, place)) = notes.next()? {
            let place = [&[WRITES], place].concat();
            let before = self.tree.get(&place, clock)?;
            if self.tree.memory_bytes() > self.budget {
                settle(&self.tree, self.clock)?;
            }
            self.clock += 1;
            let before = before.as_deref().unwrap_or(&[UNWRITTEN]);
            self.tree.insert(&place, self.clock, Message::Put(before));
        }
        Ok(())
    }

    /// Walks what is written to a space now, as it is now.
    pub fn walk(&self, space: u64, range: &KeyRange, direction: Direction) -> SpillCursor {
        SpillCursor::new(&self.tree, space, range, direction, self.clock)
    }

    /// What is written now, for whoever reads it later.
    pub fn view(&self) -> SpillView {
        SpillView { tree: Arc::clone(&self.tree), clock: self.clock }
    }

    /// The spaces that were written to, ascending.
    pub fn spaces(&self) -> impl Iterator<Item = u64> {
        self.spaces.iter().copied()
    }

    /// Brings everything to the disk: what is left in memory is a few kilobytes.
    pub fn settle(&self) -> Result<()> {
        settle(&self.tree, self.clock)
    }

    /// Memory it takes now, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.tree.memory_bytes()
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }
}

/// A spill as it was at one moment; later writes do not change it.
#[derive(Clone)]
pub struct SpillView {
    tree: Arc<Tree>,
    clock: u64,
}

impl SpillView {
    /// As [`SpillTree::get`].
    pub fn get(&self, space: u64, key: &[u8]) -> Result<Option<Written>> {
        get_at(&self.tree, space, key, self.clock)
    }

    /// As [`SpillTree::walk`].
    pub fn walk(&self, space: u64, range: &KeyRange, direction: Direction) -> SpillCursor {
        SpillCursor::new(&self.tree, space, range, direction, self.clock)
    }
}

impl std::fmt::Debug for SpillView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpillView({} writes)", self.clock)
    }
}

impl std::fmt::Debug for SpillTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpillTree({} writes)", self.clock)
    }
}

fn settle(tree: &Tree, clock: u64) -> Result<()> {
    tree.seal(clock);
    // A horizon before all versions: each of them stays.
    let all = Visibility::newest_only(0);
    loop {
        match tree.work(&all, Effort::Needed)? {
            Progress::Idle => return Ok(()),
            Progress::Done(_) => {}
            Progress::Busy | Progress::Deferred => std::thread::yield_now(),
        }
    }
}

/// What a space held at `clock` for `key`.
pub(crate) fn get_at(tree: &Tree, space: u64, key: &[u8], clock: u64) -> Result<Option<Written>> {
    let Some(value) = tree.get(&writes_key(space, key), clock)? else { return Ok(None) };
    Ok(match value.first() {
        Some(&VALUE) => Some(Written::Value(value.behind(1))),
        Some(&UPDATE) => Some(Written::Update(value.behind(1))),
        Some(&DELETED) => Some(Written::Deleted),
        _ => None,
    })
}

fn table_key(table: u8, number: u64, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX_BYTES + key.len());
    out.push(table);
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(key);
    out
}

fn writes_key(space: u64, key: &[u8]) -> Vec<u8> {
    table_key(WRITES, space, key)
}

/// Walks the writes to one space as they were at one moment.
pub struct SpillCursor {
    space: u64,
    cursor: Cursor,
    /// The cursor stands on a write that was not handed out as passed.
    standing: bool,
}

impl SpillCursor {
    pub(crate) fn new(
        tree: &Arc<Tree>,
        space: u64,
        range: &KeyRange,
        direction: Direction,
        clock: u64,
    ) -> Self {
        let inside = |bound: &Bound<Vec<u8>>, open: Bound<Vec<u8>>| match bound {
            Bound::Included(key) => Bound::Included(writes_key(space, key)),
            Bound::Excluded(key) => Bound::Excluded(writes_key(space, key)),
            Bound::Unbounded => open,
        };
        let range = KeyRange {
            lower: inside(&range.lower, Bound::Included(writes_key(space, &[]))),
            upper: inside(&range.upper, Bound::Excluded(writes_key(space + 1, &[]))),
        };
        Self { space, cursor: tree.cursor(range, clock, direction), standing: false }
    }

    /// The write under the cursor, which [`SpillCursor::pass`] goes behind. May read the disk.
    pub fn peek(&mut self) -> Result<Option<(&[u8], Message<'_>)>> {
        while !self.standing {
            match self.cursor.next()? {
                None => return Ok(None),
                Some((_, payload)) => self.standing = payload.first() != Some(&UNWRITTEN),
            }
        }
        Ok(self.standing())
    }

    /// The write that the last [`SpillCursor::peek`] found. Touches no disk.
    pub fn standing(&self) -> Option<(&[u8], Message<'_>)> {
        let (key, payload) = self.standing.then(|| self.cursor.current()).flatten()?;
        let (tag, value) = payload.split_first()?;
        let message = match *tag {
            VALUE => Message::Put(value),
            UPDATE => Message::Update(value),
            _ => Message::Delete,
        };
        Some((key.get(PREFIX_BYTES..)?, message))
    }

    /// Goes behind the write under the cursor.
    pub fn pass(&mut self) {
        self.standing = false;
    }

    /// Skips ahead, in the cursor's direction, to the first write at or past `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let place = writes_key(self.space, key);
        if self.standing {
            if !self.cursor.is_short_of(&place) {
                return Ok(());
            }
            self.standing = false;
        }
        self.cursor.seek(&place)
    }

    /// Gives back pinned memory until the next call.
    pub fn park(&mut self) {
        if std::mem::take(&mut self.standing) {
            self.cursor.step_back();
        }
        self.cursor.park();
    }
}

impl std::fmt::Debug for SpillCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpillCursor({})", self.space)
    }
}
