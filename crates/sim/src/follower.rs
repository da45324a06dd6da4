//! One who follows the history of an engine, over its restarts.
//!
//! Always true: what it has seen only grows; the engine that it reads from may go.

use engine::HistoryTail;

/// What the follower reads, and what it has read.
#[derive(Default)]
pub(crate) struct Follower {
    pub(crate) tail: Option<HistoryTail>,
    /// The newest commit that it was shown, and the last of its times.
    pub(crate) seen: Option<(u64, u64)>,
}

impl Follower {
    /// The engine goes.
    pub(crate) fn forget_engine(&mut self) {
        self.tail = None;
    }
}
