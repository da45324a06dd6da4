//! Pins: who may still look at freed segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::inner::Inner;

/// While it lives, segments that were readable when it was taken stay readable, freed or not.
/// For snapshots over old roots, and for backups.
pub struct Pin {
    inner: Arc<Inner>,
    epoch: u64,
}

impl Pin {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        let epoch = inner.state.lock().pin();
        Self { inner, epoch }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        state.pins.remove(self.epoch);
        state.reclaim(&self.inner.table);
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// How many pins were taken at which epoch.
#[derive(Default)]
pub(crate) struct Pins(BTreeMap<u64, usize>);

impl Pins {
    pub(crate) fn add(&mut self, epoch: u64) {
        *self.0.entry(epoch).or_insert(0) += 1;
    }

    fn remove(&mut self, epoch: u64) {
        let count = self.0.get_mut(&epoch).expect("a pin is removed once");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&epoch);
        }
    }

    /// Segments freed at this epoch or later may be seen by somebody.
    pub(crate) fn oldest(&self) -> u64 {
        self.0.first_key_value().map_or(u64::MAX, |(epoch, _)| *epoch)
    }
}
