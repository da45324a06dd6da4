//! The settings that may be changed while the engine runs: periods, waits, what is kept free.
//!
//! Always true: whoever goes by one reads it each time, so that a change holds from then on; each is a number by itself,
//! and none goes with another.

use crate::Options;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The settings, as they are now.
#[derive(Debug)]
pub struct Adjustable {
    checkpoint_period_us: AtomicU64,
    log_flush_period_us: AtomicU64,
    lock_timeout_us: AtomicU64,
    cleaner_period_us: AtomicU64,
    cleaner_iterations: AtomicU64,
    fs_redzone_percent: AtomicU64,
    loader_max_memory: AtomicU64,
    loader_compresses: AtomicBool,
}

/// The most that may be kept free of a disk, in percent.
pub(crate) const MOST_REDZONE: u8 = 90;

/// Bytes that sorting keeps in memory before it writes, unless told otherwise: TokuMX's.
const LOADER_MEMORY: u64 = 100 << 20;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn get(setting: &AtomicU64) -> u64 {
    setting.load(Ordering::Relaxed)
}

impl Adjustable {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            checkpoint_period_us: micros(options.checkpoint_period).into(),
            log_flush_period_us: micros(options.log_flush_period).into(),
            lock_timeout_us: micros(options.lock_timeout).into(),
            cleaner_period_us: micros(options.cleaner_period).into(),
            cleaner_iterations: u64::from(options.cleaner_iterations).into(),
            fs_redzone_percent: u64::from(options.fs_redzone_percent).into(),
            loader_max_memory: LOADER_MEMORY.into(),
            loader_compresses: true.into(),
        }
    }

    /// Time between two checkpoints; zero for never by time.
    pub fn checkpoint_period(&self) -> Duration {
        Duration::from_micros(get(&self.checkpoint_period_us))
    }

    /// Changes [`Self::checkpoint_period`].
    pub fn set_checkpoint_period(&self, period: Duration) {
        self.checkpoint_period_us.store(micros(period), Ordering::Relaxed);
    }

    /// Time between two flushes of the log; zero for one with each commit.
    pub fn log_flush_period(&self) -> Duration {
        Duration::from_micros(get(&self.log_flush_period_us))
    }

    /// Changes [`Self::log_flush_period`].
    pub fn set_log_flush_period(&self, period: Duration) {
        self.log_flush_period_us.store(micros(period), Ordering::Relaxed);
    }

    /// How long transactions that begin from now on wait for a lock, where they do not say so themselves.
    pub fn lock_timeout(&self) -> Duration {
        Duration::from_micros(get(&self.lock_timeout_us))
    }

    /// Changes [`Self::lock_timeout`].
    pub fn set_lock_timeout(&self, timeout: Duration) {
        self.lock_timeout_us.store(micros(timeout), Ordering::Relaxed);
    }

    /// Time between two rounds of the cleaner; zero for never.
    pub fn cleaner_period(&self) -> Duration {
        Duration::from_micros(get(&self.cleaner_period_us))
    }

    /// Changes [`Self::cleaner_period`].
    pub fn set_cleaner_period(&self, period: Duration) {
        self.cleaner_period_us.store(micros(period), Ordering::Relaxed);
    }

    /// Units of work in a round of the cleaner; 0 for none.
    pub fn cleaner_iterations(&self) -> u32 {
        u32::try_from(get(&self.cleaner_iterations)).unwrap_or(u32::MAX)
    }

    /// Changes [`Self::cleaner_iterations`].
    pub fn set_cleaner_iterations(&self, units: u32) {
        self.cleaner_iterations.store(u64::from(units), Ordering::Relaxed);
    }

    /// Bytes that a load or an index build sorts in memory, at most (`loaderMaxMemory`).
    pub fn loader_max_memory(&self) -> u64 {
        get(&self.loader_max_memory)
    }

    /// Changes [`Self::loader_max_memory`].
    pub fn set_loader_max_memory(&self, bytes: u64) {
        self.loader_max_memory.store(bytes, Ordering::Relaxed);
    }

    /// Whether what a load or an index build has sorted and cannot keep in memory is compressed
    /// (`loaderCompressTmp`).
    pub fn loader_compresses(&self) -> bool {
        self.loader_compresses.load(Ordering::Relaxed)
    }

    /// Changes [`Self::loader_compresses`], for those that begin from now on.
    pub fn set_loader_compresses(&self, compresses: bool) {
        self.loader_compresses.store(compresses, Ordering::Relaxed);
    }

    /// Writes are refused where less than so many percent of the disk would stay free; 0 for never.
    pub fn fs_redzone_percent(&self) -> u8 {
        u8::try_from(get(&self.fs_redzone_percent)).unwrap_or(MOST_REDZONE)
    }

    /// Changes [`Self::fs_redzone_percent`]; more than 90 is 90.
    pub fn set_fs_redzone_percent(&self, percent: u8) {
        let percent = u64::from(percent.min(MOST_REDZONE));
        self.fs_redzone_percent.store(percent, Ordering::Relaxed);
    }
}
