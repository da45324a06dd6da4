//! What a stage holds, within its own limit and charged to the memory of the server's clients.
//!
//! Always true: what a stage holds beyond some KiB is charged to `Part::Stages` before it holds more.
//! A stage that can spill does so where there is no room; one that cannot fails with
//! `ExceededMemoryLimit`.

use errors::Result;
use limits::{Growth, Part};

/// Less is not worth a run on disk: a stage that has no room for so much fails.
const LEAST_RUN_BYTES: usize = 256 << 10;

/// The memory of one stage.
pub(crate) struct StageMemory {
    growth: Growth,
    limit: usize,
}

impl StageMemory {
    /// Of a stage that may hold so many bytes itself.
    pub(crate) fn within(limit: usize) -> Self {
        Self { growth: Growth::new(Part::Stages), limit }
    }

    /// It is about to hold `bytes`, and takes `passing` more for a moment. False: what it holds must be
    /// spilled first.
    pub(crate) fn fits(&mut self, bytes: usize, passing: usize) -> Result<bool> {
        if bytes > self.limit {
            return Ok(false);
        }
        match self.growth.reach(bytes.saturating_add(passing)) {
            Ok(()) => Ok(true),
            Err(_) if bytes >= LEAST_RUN_BYTES => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// It is about to hold so many bytes, which it cannot spill.
    pub(crate) fn must_fit(&mut self, bytes: usize) -> Result<()> {
        self.growth.reach(bytes)
    }

    /// It holds nothing any more.
    pub(crate) fn release(&mut self) {
        self.growth.shrink(0);
    }
}
