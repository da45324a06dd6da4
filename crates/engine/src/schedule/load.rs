//! What scheduling is decided from: plain numbers, as they are at one moment.
//!
//! Times are how long ago something was, or how long it still is: no clock is needed to read them.

/// One tree that a unit of work may be begun in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TreeLoad {
    /// The dictionary.
    pub(crate) tree: u64,
    /// Bytes of sealed memtables, which draining frees.
    pub(crate) sealed_bytes: u64,
    /// How far over its budget its most urgent node is; 1000 is at it.
    pub(crate) urgency: u64,
}

/// What a flusher decides from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Load {
    /// The trees to choose from: there may be work that nobody is at.
    pub(crate) trees: Vec<TreeLoad>,
    /// In how many trees somebody is at work.
    pub(crate) working: usize,
    /// How long ago a writer found memory filling, in microseconds.
    pub(crate) since_filling_us: u64,
    /// The back-off for reads.
    pub(crate) reads: ReadBackoff,
    /// How much the engine is used.
    pub(crate) activity: Activity,
    /// How long ago somebody looked for trees whose reads have paid for a flush, in microseconds.
    pub(crate) since_wanted_us: u64,
    /// The cleaner.
    pub(crate) cleaner: CleanerLoad,
}

/// The back-off of background work for reads that wait for the disk, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReadBackoff {
    /// How long it still lasts.
    pub(crate) left_us: u64,
    /// How long ago it ended; 0 while it lasts.
    pub(crate) since_us: u64,
}

/// How much the engine is used, by the maintenance thread's rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Activity {
    /// What the rounds up to now have been.
    pub(crate) rounds: Rounds,
    /// What was done since the last of them.
    pub(crate) since: Usage,
}

/// Commits, and snapshots taken to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Transactions committed with writes.
    pub(crate) commits: u64,
    /// Snapshots of now that were taken.
    pub(crate) snapshots: u64,
}

/// Rounds of the maintenance thread, one after the other up to the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rounds {
    /// In which nobody wrote and hardly anybody read.
    pub(crate) idle: u64,
    /// In which hardly anybody wrote.
    pub(crate) unwritten: u64,
}

/// What is known of the cleaner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CleanerLoad {
    /// `cleanerPeriod`, in microseconds; 0 is never.
    pub(crate) period_us: u64,
    /// `cleanerIterations`: units of a pass; 0 is never.
    pub(crate) units: u32,
    /// How long ago the last pass began, in microseconds.
    pub(crate) since_us: u64,
    /// The last pass found something to do.
    pub(crate) found: bool,
}

/// What a tree has for the cleaner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IdleWork {
    /// The dictionary.
    pub(crate) tree: u64,
    /// Bytes in buffers.
    pub(crate) buffered_bytes: u64,
    /// Entries in leaves that a rewrite could drop.
    pub(crate) garbage_entries: u64,
    /// Bytes of lightly compressed leaves.
    pub(crate) lightly_compressed_bytes: u64,
}

/// What is known of checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CheckpointLoad {
    /// `checkpointPeriod`, in microseconds; 0 is never.
    pub(crate) period_us: u64,
    /// How long ago the last one was begun or found not to be needed, in microseconds.
    pub(crate) since_us: u64,
    /// Bytes of log since the last one.
    pub(crate) log_bytes: u64,
    /// Bytes of log after which one is due.
    pub(crate) log_cap: u64,
    /// Nobody uses the engine.
    pub(crate) idle: bool,
    /// Bytes of the data file that one would give back.
    pub(crate) dropped_bytes: u64,
    /// As many as the last one left.
    pub(crate) dropped_before: u64,
    /// Writers are out of disk space, or nearly.
    pub(crate) short_of_space: bool,
    /// How long ago one was begun for that reason, in microseconds.
    pub(crate) since_space_us: u64,
}

/// The budget of memory for writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BudgetLoad {
    /// What memtables may hold for now, in bytes.
    pub(crate) budget: u64,
    /// What they may hold in any case.
    pub(crate) least: u64,
    /// Bytes at which one memtable is sealed where the budget has not grown.
    pub(crate) memtable_bytes: u64,
}

/// What the budget is fitted to, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CacheLoad {
    /// The cache's bound.
    pub(crate) capacity: u64,
    /// What all but memtables hold of it.
    pub(crate) others: u64,
    /// What memtables may hold at most.
    pub(crate) most: u64,
    /// What they hold.
    pub(crate) memtables: u64,
}

/// A writer that wants to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WriterLoad {
    /// Bytes it brings.
    pub(crate) bytes: u64,
    /// Bytes that all memtables hold without them.
    pub(crate) memtables: u64,
    /// Bytes that memtables may hold of the cache with every page evicted that can be.
    pub(crate) left: u64,
    /// Bytes that one worker drains in a second, as measured last.
    pub(crate) drain_rate: u64,
    /// Flushers work beside it.
    pub(crate) has_flushers: bool,
}

/// Free space of the data file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SpaceLoad {
    /// Free, with space of the filesystem.
    pub(crate) unused_bytes: u64,
    /// Free, all of it.
    pub(crate) free_bytes: u64,
    /// Where the last segment ends.
    pub(crate) used_end_bytes: u64,
    /// Rounds without commits and without background work.
    pub(crate) rounds_without_work: u64,
    /// Writes are refused for want of space.
    pub(crate) full: bool,
    /// Moving segments was of no use the last time, and nothing has changed since.
    pub(crate) compacted: bool,
}
