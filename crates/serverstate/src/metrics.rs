//! What was done so far, counted: the figures behind `serverStatus` and `top`.
//!
//! Always true: counting takes no lock, except `top`'s per-collection figures, which live in
//! sharded maps.

use dispatch::rules::{Class, Counter};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use telemetry::Histogram;

/// How often one command ran and failed.
pub struct Runs {
    /// The command's name.
    pub command: &'static str,
    /// All runs.
    pub total: AtomicU64,
    /// Those that ended in an error.
    pub failed: AtomicU64,
}

/// Time and count of one kind of use of a collection.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// How often.
    pub count: u64,
    /// How long, in microseconds.
    pub micros: u64,
}

/// How one collection was used, in the order of [`TOP_FIELDS`].
pub type TopEntry = [Usage; 6];

/// What `opLatencies` calls the classes of commands.
pub const CLASSES: [&str; 3] = ["reads", "writes", "commands"];

/// The names of [`Counter`]s, in their order.
pub const COUNTERS: [&str; 6] = ["insert", "query", "update", "delete", "getmore", "command"];

/// The names of `top`'s per-operation figures.
pub const TOP_FIELDS: [&str; 6] = ["queries", "getmore", "insert", "update", "remove", "commands"];

const SHARDS: usize = 16;

/// All counters.
pub struct Metrics {
    /// In the order of [`Counter`].
    pub counters: [AtomicU64; 6],
    /// Times in microseconds, in the order of [`CLASSES`].
    pub latencies: [Histogram; 3],
    /// In the order of the commands.
    pub runs: Vec<Runs>,
    /// Requests that name no command.
    pub unknown_commands: AtomicU64,
    /// Documents in replies.
    pub documents_returned: AtomicU64,
    /// Documents that were inserted.
    pub documents_inserted: AtomicU64,
    /// Documents that were changed.
    pub documents_updated: AtomicU64,
    /// Documents that were deleted.
    pub documents_deleted: AtomicU64,
    /// Keys of indexes that were looked at.
    pub keys_examined: AtomicU64,
    /// Documents that were looked at.
    pub documents_examined: AtomicU64,
    /// Requests that ended in an error.
    pub user_asserts: AtomicU64,
    top: [Mutex<BTreeMap<String, TopEntry>>; SHARDS],
}

impl Metrics {
    /// Of commands of these names.
    pub fn new(commands: impl Iterator<Item = &'static str>) -> Self {
        let runs = |command| Runs { command, total: AtomicU64::new(0), failed: AtomicU64::new(0) };
        Self {
            counters: Default::default(),
            latencies: Default::default(),
            runs: commands.map(runs).collect(),
            unknown_commands: AtomicU64::new(0),
            documents_returned: AtomicU64::new(0),
            documents_inserted: AtomicU64::new(0),
            documents_updated: AtomicU64::new(0),
            documents_deleted: AtomicU64::new(0),
            keys_examined: AtomicU64::new(0),
            documents_examined: AtomicU64::new(0),
            user_asserts: AtomicU64::new(0),
            top: Default::default(),
        }
    }

    /// Counts what an operation is; inserts, updates and deletes count per document instead.
    pub fn count(&self, counter: Counter, many: u64) {
        self.counters[counter as usize].fetch_add(many, Relaxed);
    }

    /// Counts a finished command.
    pub fn finish(&self, class: Class, time: Duration) {
        let class = match class {
            Class::Read => 0,
            Class::Write => 1,
            Class::Other => 2,
        };
        self.latencies[class].record_micros(time);
    }

    /// Counts a finished use of a collection. A name is remembered only where the collection `exists`: clients
    /// may name as many as they like.
    pub fn top(
        &self,
        namespace: &str,
        counter: Counter,
        time: Duration,
        exists: impl FnOnce() -> bool,
    ) {
        let kind = match counter {
            Counter::Query => 0,
            Counter::GetMore => 1,
            Counter::Insert => 2,
            Counter::Update => 3,
            Counter::Delete => 4,
            Counter::Command => 5,
        };
        let mut shard = self.shard(namespace).lock();
        let entry = match shard.get_mut(namespace) {
            Some(entry) => entry,
            None if !exists() => return,
            None => shard.entry(namespace.to_owned()).or_default(),
        };
        entry[kind].count += 1;
        entry[kind].micros += time.as_micros() as u64;
    }

    /// Bytes that [`Metrics::top`] takes.
    pub fn top_bytes(&self) -> usize {
        let of = |shard: &BTreeMap<String, TopEntry>| {
            // A name of usual length; a tree's nodes are three quarters full.
            shard.len() * (size_of::<(String, TopEntry)>() * 4 / 3 + 48)
        };
        self.top.iter().map(|shard| of(&shard.lock())).sum()
    }

    /// Forgets a dropped collection.
    pub fn forget(&self, namespace: &str) {
        self.shard(namespace).lock().remove(namespace);
    }

    /// Every collection's use, sorted by name.
    pub fn top_all(&self) -> BTreeMap<String, TopEntry> {
        let mut all = BTreeMap::new();
        for shard in &self.top {
            all.extend(shard.lock().iter().map(|(name, entry)| (name.clone(), *entry)));
        }
        all
    }

    fn shard(&self, namespace: &str) -> &Mutex<BTreeMap<String, TopEntry>> {
        let sum = namespace
            .bytes()
            .fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        &self.top[sum % SHARDS]
    }
}
