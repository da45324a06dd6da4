//! What nobody can see any more is let go of.

use crate::counters::Counters;
use crate::dictionary::{Dictionary, Directory};
use crate::memory::WriteBudget;
use crate::snapshots::Snapshots;
use os::Padded;
use std::sync::Arc;

/// Frees dropped dictionaries.
#[derive(Clone)]
pub(crate) struct Pruning {
    pub(crate) directory: Arc<Directory>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) memory: Arc<Padded<WriteBudget>>,
    pub(crate) counters: Arc<Counters>,
}

impl Pruning {
    /// Frees what dropped dictionaries hold, once no snapshot can see them.
    pub(crate) fn drop_invisible(&self) {
        let oldest = self.snapshots.oldest_kept();
        let invisible =
            |dictionary: &Dictionary| dictionary.dropped().is_some_and(|dropped| dropped <= oldest);
        for dictionary in self.directory.those(invisible) {
            self.directory.remove(dictionary.id);
            self.counters.retired.lock().add_counters(&dictionary.tree.counters());
            self.memory.forget(&dictionary);
            debug_assert!(self.directory.find(dictionary.id).is_none(), "nobody finds it any more");
            dictionary.tree.discard();
        }
    }

    /// Whether some dropped dictionaries are still held.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.directory.those(|dictionary| dictionary.dropped().is_some()).is_empty()
    }
}
