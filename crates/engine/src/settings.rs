//! How an engine is opened.

use crate::adjustable::MOST_REDZONE;
use crate::open_records::PART_BYTES;
use crate::{Error, HistoryOptions, Result};
use crypt::{MasterKey, NonceLog};
use ftree::Updates;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Who does the background work: flushing the log, draining memtables, merging, checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Background {
    /// Threads of the engine.
    #[default]
    Threads,
    /// Nobody but [`crate::Engine::step`], and writers that find memory full. Deterministic when
    /// one thread calls everything; there is no other thread to wait for, so a lock that is taken
    /// fails at once and moves the (simulated) clock on by its timeout.
    Manual,
    /// As `Manual`, but callers have threads of their own: locks are waited for.
    ManualThreads,
}

/// Which commits readers are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Showing {
    /// Every complete one.
    #[default]
    Complete,
    /// Those that [`crate::Engine::committed`] has named: of a set with several voters, where what is in
    /// this log only may be overwritten. Needs a history.
    Committed,
}

/// The settings of an engine. [`Options::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory; made where missing.
    pub dir: PathBuf,
    /// Where log segments are; `None` is `journal` in the data directory.
    pub log_dir: Option<PathBuf>,
    /// Where the log is archived; `None` is nowhere. Not with a master key.
    pub log_archive_dir: Option<PathBuf>,
    /// Where temporary files are; `None` is `tmp` in the data directory.
    pub tmp_dir: Option<PathBuf>,
    /// Bytes for everything the engine keeps in memory (`cacheSize`): see [`cachetable::Part`].
    pub cache_size: u64,
    /// Time between checkpoints (`checkpointPeriod`); zero is never.
    pub checkpoint_period: Duration,
    /// Time between flushes of the log (`logFlushPeriod`); zero flushes at each commit.
    pub log_flush_period: Duration,
    /// How long a lock request waits (`lockTimeout`); zero fails at once.
    pub lock_timeout: Duration,
    /// Time between rounds of the cleaner (`cleanerPeriod`); zero is never.
    pub cleaner_period: Duration,
    /// Units of work per round of the cleaner (`cleanerIterations`).
    pub cleaner_iterations: u32,
    /// Below this share of free space writes are refused (`fsRedzone`), in percent.
    pub fs_redzone_percent: u8,
    /// Bypass the page cache for data files (`directio`).
    pub directio: bool,
    /// Long records of the log are compressed (`compressLog`).
    pub compress_log: bool,
    /// Pages stay compressed in memory for a while when their frames go
    /// (`compressBuffersBeforeEviction`); `None` is where `directio` is: otherwise the kernel's page
    /// cache has those bytes already.
    pub compress_before_eviction: Option<bool>,
    /// Limit on lock memory in bytes; `None` is a tenth of the cache.
    pub locktree_max_memory: Option<u64>,
    /// How much history is kept; `None` keeps none: commits have no times, and the log goes as soon
    /// as redo does not need it.
    pub history: Option<HistoryOptions>,
    /// Which commits readers are shown.
    pub showing: Showing,
    /// Who does the background work.
    pub background: Background,
    /// Finds in an entry what deletes of ranges compare, where that is not its key
    /// ([`crate::EngineTxn::tombstone`]); `None`: there are no such deletes.
    pub record_part: Option<ftree::RecordPart>,
    /// The key of an encrypted directory: a new one is made with it, an old one opened. `None`: what is
    /// written is not encrypted.
    pub master: Option<Arc<MasterKey>>,
    /// What updates mean ([`crate::EngineTxn::update`]); without them each leaves what is there. A directory
    /// with updates in it must be opened with the same.
    pub updates: Option<Arc<dyn Updates>>,
    /// Tests see that no nonce is used twice.
    #[doc(hidden)]
    pub nonces: Option<NonceLog>,
    /// Sizes that tests make tiny.
    #[doc(hidden)]
    pub sizes: Sizes,
}

/// Sizes that follow from the others, and that tests make tiny so that everything happens within
/// a thousand operations.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Bytes of a log segment; 0 is chosen from the disk.
    pub log_segment_bytes: u64,
    /// Bytes all memtables may hold before writers are slowed; 0 is a quarter of the cache.
    pub write_budget: u64,
    /// Bytes they may hold where nothing else in the cache wants the room; 0 is half of the
    /// cache, less on a small disk, or `write_budget` where that is given.
    pub most_write_budget: u64,
    /// Bytes at which one memtable is sealed; 0 is chosen from the write budget.
    pub memtable_bytes: u64,
    /// Bytes that wait in a node of a tree before they go further down, about; 0 is chosen from the
    /// disk.
    pub buffer_bytes: u64,
    /// Bytes of a transaction's writes in memory; above this they move to the disk. 0 is chosen
    /// from the cache.
    pub spill_bytes: u64,
    /// Bytes of operations in one log record; 0 is 1 MiB.
    pub chunk_bytes: usize,
    /// Bytes of records in one entry of a set's log, unless it is one longer record; 0 is 4 MiB.
    pub entry_bytes: u64,
    /// Bytes of log after which a checkpoint is due before its time, and which memtables may hold
    /// back: bounds what a recovery has to replay. 0 is chosen from the largest write budget
    /// and the disk.
    pub log_cap: u64,
    /// Bytes of log before the checkpoint's part of it in which a member's start looks for older entries; 0 is
    /// 1 GiB.
    pub look_back_bytes: u64,
    /// Trees with tiny pages, nodes and buffers.
    pub tiny_trees: bool,
    /// Bytes of page frames; 0 is what the write budget leaves of the cache.
    pub frame_bytes: u64,
    /// Threads that drain and merge; 0 is chosen.
    pub flushers: usize,
    /// Called in each commit between its record in the log and its writes in the trees: tests let
    /// it panic.
    pub before_publishing: Option<fn()>,
    /// Tests plant a bug, to see it found.
    pub planted: Option<PlantedBug>,
}

/// What would go wrong with the tail of a member's log, with what is not in the log, with a backup, or with statements
/// that are run again.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// Memtables keep what was overwritten.
    KeepsForgotten,
    /// What is not visible goes to disk.
    DrainsInvisible,
    /// A start does not look for cuts.
    IgnoresCuts,
    /// An incremental backup leaves out each segment at whose place the earlier one has any.
    BackupComparesPlaces,
    /// What was loaded is adopted before a checkpoint names it.
    AdoptsBeforeDurable,
    /// What was loaded is shown to older snapshots, too.
    AdoptsForAll,
    /// A leader's commits count as complete once they are in the log, before they are in the trees.
    CompleteBeforeApplied,
    /// A statement that has committed may still be run again where it waits for a lock.
    RunsAgainAfterCommits,
    /// What deletes of ranges may do wrong.
    Tombstones(ftree::TombstoneBug),
}

/// Where log segments are in the data directory, unless told otherwise.
pub(crate) const LOG_DIR: &str = "journal";
/// The cache must hold at least this.
const MIN_CACHE: u64 = 8 << 20;
const MIB: u64 = 1 << 20;
/// A start reads a GiB of log in a second or two: it waits no longer for the sake of members that were away.
const LOOK_BACK_BYTES: u64 = 1024 * MIB;

impl Options {
    /// The defaults for a data directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            log_dir: None,
            log_archive_dir: None,
            tmp_dir: None,
            cache_size: 256 * MIB,
            checkpoint_period: Duration::from_mins(1),
            log_flush_period: Duration::from_millis(100),
            lock_timeout: Duration::from_secs(4),
            cleaner_period: Duration::from_secs(2),
            cleaner_iterations: 5,
            fs_redzone_percent: 5,
            directio: false,
            compress_log: true,
            compress_before_eviction: None,
            locktree_max_memory: None,
            history: None,
            showing: Showing::default(),
            background: Background::Threads,
            record_part: None,
            master: None,
            updates: None,
            nonces: None,
            sizes: Sizes::default(),
        }
    }

    /// Refuses what cannot be honoured and fills in what follows from the rest, where the data and
    /// the log are on disks of so many bytes.
    pub(crate) fn resolve(mut self, data_disk: u64, log_disk: u64) -> Result<Self> {
        if self.cache_size < MIN_CACHE {
            let text = format!("cacheSize of {} bytes is below {MIN_CACHE}", self.cache_size);
            return Err(Error::InvalidOption(text));
        }
        if self.fs_redzone_percent > MOST_REDZONE {
            let text = format!("fsRedzone of {} percent is above 90", self.fs_redzone_percent);
            return Err(Error::InvalidOption(text));
        }
        if self.showing == Showing::Committed && self.history.is_none() {
            let text = "commits that may be overwritten need a history".to_owned();
            return Err(Error::InvalidOption(text));
        }
        let cache = self.cache_size;
        let sizes = &mut self.sizes;
        let most = match sizes.write_budget {
            0 => (cache / 2).min(write_memory(data_disk)),
            given => given,
        };
        default_to(&mut sizes.most_write_budget, most);
        default_to(&mut sizes.write_budget, (cache / 4).min(most));
        let memtable = (sizes.write_budget / 2).min(64 * MIB).min(unit_bytes(data_disk));
        default_to(&mut sizes.memtable_bytes, memtable);
        default_to(&mut sizes.buffer_bytes, (8 * MIB).min(unit_bytes(data_disk)));
        default_to(&mut sizes.spill_bytes, (cache / 16).clamp(MIB, 64 * MIB));
        let most = (sizes.most_write_budget * 2).clamp(64 * MIB, 512 * MIB);
        default_to(&mut sizes.log_cap, log_cap(log_disk, most));
        default_to(&mut sizes.log_segment_bytes, log_file_bytes(log_disk));
        default_to(&mut sizes.look_back_bytes, LOOK_BACK_BYTES);
        if sizes.entry_bytes == 0 {
            sizes.entry_bytes = PART_BYTES;
        }
        if sizes.chunk_bytes == 0 {
            sizes.chunk_bytes = MIB as usize;
        }
        if sizes.flushers == 0 {
            // Two at least: one can drain while the other merges.
            sizes.flushers = os::cpu_count().clamp(2, 4);
        }
        assert!(sizes.chunk_bytes > 0 && sizes.flushers > 0, "what is not given has a default");
        self.locktree_max_memory.get_or_insert(cache / 10);
        Ok(self)
    }

    pub(crate) fn log_dir(&self) -> PathBuf {
        self.log_dir.clone().unwrap_or_else(|| self.dir.join(LOG_DIR))
    }

    pub(crate) fn tmp_dir(&self) -> PathBuf {
        self.tmp_dir.clone().unwrap_or_else(|| self.dir.join("tmp"))
    }
}

fn default_to(value: &mut u64, default: u64) {
    if *value == 0 {
        *value = default;
    }
}

/// Bytes of a log file on a disk of so many: two files, the one in use and the next, are a 64th of it.
fn log_file_bytes(total: u64) -> u64 {
    let share = (total / 128).clamp(MIB, 32 * MIB);
    1 << share.ilog2()
}

/// The most bytes of log between two checkpoints on a disk of so many, where memory allows `most`.
fn log_cap(total: u64, most: u64) -> u64 {
    most.min((total / 16).max(4 * log_file_bytes(total)))
}

/// The most bytes of memory for writes where the data is on a disk of so many: what is drained while
/// writers fill the rest has to fit beside what it replaces.
fn write_memory(total: u64) -> u64 {
    (total / 8).max(4 * MIB)
}

/// Bytes that one unit of background work on such a disk is about: what it writes is there twice until
/// the next checkpoint.
fn unit_bytes(total: u64) -> u64 {
    (total / 64).max(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_takes_its_share_of_a_small_disk() {
        for (disk, file, cap) in [
            (0, 1, 4),
            (64, 1, 4),
            (150, 1, 9),
            (256, 2, 16),
            (600, 4, 37),
            (1024, 8, 64),
            (2048, 16, 128),
            (4096, 32, 256),
            (1 << 20, 32, 256),
        ] {
            let found = (log_file_bytes(disk * MIB) / MIB, log_cap(disk * MIB, 256 * MIB) / MIB);
            assert_eq!(found, (file, cap), "a disk of {disk} MiB");
        }
    }
}
