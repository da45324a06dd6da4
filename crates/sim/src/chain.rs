//! Where backups that the engine writes lie, each built on the one before.

use os::sim::SimOs;

/// Where backups are written, and what is there.
pub(crate) struct Chain {
    pub(crate) disk: SimOs,
    /// The newest, by its number.
    pub(crate) newest: Option<u64>,
    /// How many were begun.
    begun: u64,
}

impl Chain {
    pub(crate) fn new(seed: u64) -> Self {
        Self { disk: SimOs::new(!seed), newest: None, begun: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }
}
