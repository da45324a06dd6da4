//! The collections and views by name, and how often that has changed.
//!
//! Always true: between two looks at the same count nothing was changed.

use crate::metadata::collection::Collection;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type ByName = BTreeMap<String, Arc<Collection>>;

/// Collections and views by name.
pub(crate) struct CollectionMap {
    by_name: RwLock<ByName>,
    changes: AtomicU64,
}

impl CollectionMap {
    pub(crate) fn new(by_name: ByName) -> Self {
        Self { by_name: RwLock::new(by_name), changes: AtomicU64::new(0) }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, ByName> {
        self.by_name.read()
    }

    /// To change it, which counts.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, ByName> {
        let by_name = self.by_name.write();
        // Under the lock, so that who sees the new count looks at the map after the change.
        self.changes.fetch_add(1, Ordering::SeqCst);
        by_name
    }

    /// How often it was changed. Ask before looking at it.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}
