//! Forgetting the newest versions, as if they had never been written: a set's member does so where other
//! commits take the place of its own.
//!
//! Always true: what is forgotten was in memory only ([`Visibility::draining_to`]), so memtables are built
//! anew without it and layers of large transactions are let go of; nothing on disk changes. Whoever reads at
//! or below what stays, also with a cursor opened before, sees what it saw.
//!
//! [`Visibility::draining_to`]: crate::Visibility::draining_to

use super::layer::Layer;
use super::{State, Tree};
use crate::memtable::{MemIter, MemTable};
use os::sync::atomic::AtomicBool;
use std::sync::Arc;

impl Tree {
    /// Takes back every version newer than `ts`: its timestamps may be given again. The caller sees to it
    /// that nobody inserts, that nobody reads above `ts` any more, and that no call of [`Tree::work`] was
    /// allowed to drain what is newer. Copies the memtables that hold something newer, in memory.
    pub fn forget_after(&self, ts: u64) {
        let _swap = self.publish.lock();
        let state = self.pin();
        assert!(state.flushed_ts <= ts, "what is flushed is not forgotten");
        let mut sealed = Vec::with_capacity(state.sealed.len());
        for layer in &state.sealed {
            match layer {
                Layer::Overlay(overlay) if overlay.ts() > ts => {}
                // Nothing in it is newer; somebody may be draining it.
                Layer::Table(table) if table.newest_ts() > ts => {
                    wait_until_quiescent(table);
                    let older = self.without(table, ts);
                    if older.entries() > 0 {
                        older.seal(table.flushed_ts());
                        older.set_newest_ts(ts);
                        sealed.push(Layer::Table(older));
                    }
                }
                layer => sealed.push(layer.clone()),
            }
        }
        // An insert that comes too late all the same meets a sealed table, and goes into the next.
        let active = if state.active.entries() > 0 {
            state.active.seal(state.flushed_ts);
            wait_until_quiescent(&state.active);
            self.without(&state.active, ts)
        } else {
            Arc::clone(&state.active)
        };
        let tombstones = state.tombstone_list().iter().filter(|one| one.ts <= ts);
        let tombstones = tombstones.cloned().collect();
        let next = State {
            active,
            sealed,
            root: Arc::clone(&state.root),
            flushed_ts: state.flushed_ts,
            sequence: state.sequence,
            tombstones: self.context.tombstones(tombstones).map(Arc::new),
            installed: AtomicBool::new(false),
        };
        self.pins.publish(&Arc::new(next));
    }

    /// A memtable with what another, which takes no more inserts, has at or below `ts`.
    fn without(&self, table: &Arc<MemTable>, ts: u64) -> Arc<MemTable> {
        let older = Arc::new(MemTable::new(&self.context.cache, &self.context.hasher));
        // From behind: so the versions of a key come by age, as from writers.
        let mut entries = MemIter::backward(Arc::clone(table), None);
        while let Some(entry) = entries.entry() {
            if entry.ts <= ts {
                older.insert(entry.key, older.hash(entry.key), entry.ts, entry.message);
            }
            entries.advance();
        }
        older
    }
}

/// Inserts that began before the seal end within microseconds.
fn wait_until_quiescent(table: &MemTable) {
    while !table.is_quiescent() {
        os::sync::yield_now();
    }
}
