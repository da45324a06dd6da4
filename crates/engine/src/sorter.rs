//! Sorting what does not fit in memory: the entries of an index before they are loaded in order,
//! which a tree takes straight into leaves.
//!
//! Always true: entries come back ascending by key, each key once, with the value put last. Memory
//! is bounded as a transaction's is (`Sizes::spill_bytes`) and counted as memtables; what exceeds
//! it lies in the data file, named by no checkpoint, and goes with the sorter and its last reader,
//! or at the next start. Nothing of it is in the log.

use crate::handle::EngineHandle;
use crate::{Direction, Engine, KeyRange, Result, Value};
use ftree::{Message, SpillCursor, SpillTree};
use std::sync::Arc;

/// Takes entries in any order. A *space* keeps those of one purpose apart.
pub struct Sorter {
    handle: Arc<EngineHandle>,
    spill: SpillTree,
}

impl Engine {
    /// An empty sorter.
    pub fn sorter(&self) -> Sorter {
        let handle = Arc::clone(self.handle());
        let spill = handle.commits.start_spill(handle.live.new_id());
        Sorter { handle, spill }
    }
}

impl Sorter {
    /// Puts an entry in. May write to the disk.
    ///
    /// # Errors
    /// Those of the disk; the entry is not in.
    pub fn put(&mut self, space: u64, key: &[u8], value: &[u8]) -> Result<()> {
        let written = self.spill.write(space, key, Some(value), false);
        self.handle.check(written)
    }

    /// The value put last for `key`. May read the disk.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn get(&self, space: u64, key: &[u8]) -> Result<Option<Value>> {
        let found = self.handle.check(self.spill.get(space, key))?;
        Ok(match found {
            Some(ftree::Written::Value(value)) => Some(value.into()),
            _ => None,
        })
    }

    /// The entries of a space, as they are now.
    pub fn sorted(&self, space: u64) -> Sorted {
        let cursor = self.spill.walk(space, &KeyRange::all(), Direction::Forward);
        Sorted { handle: Arc::clone(&self.handle), cursor }
    }
}

impl std::fmt::Debug for Sorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorter({:?})", self.spill)
    }
}

/// Entries in ascending order.
pub struct Sorted {
    handle: Arc<EngineHandle>,
    cursor: SpillCursor,
}

impl Sorted {
    /// The next entry: key and value. May read the disk.
    ///
    /// # Errors
    /// Those of the disk, damage of the sorter's own pages among them.
    #[allow(clippy::should_implement_trait, reason = "what it hands out borrows from it")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.cursor.pass();
        let found = self.cursor.peek();
        Ok(self.handle.check(found)?.map(|(key, message)| match message {
            Message::Put(value) => (key, value),
            // A sorter deletes nothing.
            _ => (key, &[][..]),
        }))
    }
}

impl std::fmt::Debug for Sorted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorted({:?})", self.cursor)
    }
}
