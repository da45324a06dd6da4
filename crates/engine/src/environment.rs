//! Everything one open engine consists of, shared by its handles and threads.
//!
//! Lock order: `checkpointing` → `commit_order` → `directory` → the log's index → the crates
//! below. The lock table and the snapshot registry are called with none of these held, except
//! that a commit publishes and releases last.

use crate::background::Jobs;
use crate::checkpoint::Last;
use crate::commit::CommitOrder;
use crate::dictionary::{Dictionary, Directory};
use crate::disk::Room;
use crate::health::Health;
use crate::live::{LiveTxns, Serializable};
use crate::log::Log;
use crate::maintenance::Maintenance;
use crate::options::Compression;
use crate::pacing::Memory;
use crate::settings::Options;
use crate::snapshots::Snapshots;
use crate::stats::Counters;
use crate::{DictionaryId, DictionaryOptions, Error, Result};
use blockfile::BlockFile;
use cachetable::CacheTable;
use ftree::{Context, Tree, TreeOptions};
use locktree::LockTable;
use os::{LockGuard, Os, Padded};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use telemetry::Registry;

pub(crate) struct Environment {
    pub(crate) os: Os,
    pub(crate) options: Options,
    pub(crate) registry: Arc<Registry>,
    pub(crate) health: Health,
    pub(crate) blocks: BlockFile,
    pub(crate) cache: Arc<CacheTable>,
    pub(crate) trees: Arc<Context>,
    pub(crate) directory: Directory,
    pub(crate) snapshots: Snapshots,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) live: LiveTxns,
    pub(crate) serializable: Serializable,
    /// See [`crate::Engine::ask_while_waiting`].
    pub(crate) may_wait: OnceLock<Arc<dyn Fn() -> bool + Send + Sync>>,
    // What commits write to lies on lines of its own, away from what every read looks at.
    pub(crate) log: Padded<Log>,
    pub(crate) commit_order: Padded<Mutex<CommitOrder>>,
    pub(crate) memory: Padded<Memory>,
    pub(crate) jobs: Padded<Jobs>,
    pub(crate) maintenance: Maintenance,
    pub(crate) room: Room,
    /// One checkpoint at a time.
    pub(crate) checkpointing: Mutex<Last>,
    pub(crate) counters: Counters,
    /// Held while the engine is open; dropped by close.
    pub(crate) directory_lock: Mutex<Option<LockGuard>>,
}

impl Environment {
    /// Makes an empty dictionary and puts it into the directory.
    pub(crate) fn create_dictionary(
        &self,
        id: u64,
        options: DictionaryOptions,
        created: u64,
    ) -> Arc<Dictionary> {
        let shape = tree_options(&options, &self.options);
        let tree = Tree::create(&self.trees, id, shape);
        // Commits before its own are none of its business: it has flushed them.
        let _empty = tree.seal(created.saturating_sub(1));
        let dictionary = Dictionary::new(id, options, tree, created);
        self.directory.add(Arc::clone(&dictionary));
        dictionary
    }

    /// Changes a dictionary's shape, as the commit at hand or the log says.
    pub(crate) fn reshape_dictionary(&self, dictionary: &Dictionary, options: DictionaryOptions) {
        dictionary.reshape(options, tree_options(&options, &self.options));
    }

    /// The dictionary that is there from the first start.
    pub(crate) fn create_root(&self) {
        self.create_dictionary(DictionaryId::ROOT.0, DictionaryOptions::default(), 0);
    }

    /// Frees what dropped dictionaries hold, once no snapshot can see them.
    pub(crate) fn drop_invisible(&self) {
        let oldest = self.snapshots.oldest_kept();
        let invisible =
            |dictionary: &Dictionary| dictionary.dropped().is_some_and(|dropped| dropped <= oldest);
        for dictionary in self.directory.those(invisible) {
            self.directory.remove(dictionary.id);
            self.counters.retired.lock().add_counters(&dictionary.tree.counters());
            self.forget_memory(&dictionary);
            dictionary.tree.discard();
        }
    }

    /// Whether some dropped dictionaries are still held.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.directory.those(|dictionary| dictionary.dropped().is_some()).is_empty()
    }

    /// The log, open for writing.
    pub(crate) fn wal(&self) -> &wal::Wal {
        self.log.wal.get().expect("recovery opens the log before anybody else sees the engine")
    }

    /// Fails where the operation on this thread may not go on waiting.
    pub(crate) fn check_wait(&self) -> Result<()> {
        let may_wait = self.may_wait.get().is_none_or(|may_wait| may_wait());
        if may_wait { Ok(()) } else { Err(Error::Interrupted) }
    }

    /// A failed write or sync below stops the engine; a full disk and damage do not.
    pub(crate) fn judge(&self, error: Error) -> Error {
        match &error {
            Error::Io(cause) => self.health.stop(&cause.to_string()),
            Error::Stopped(cause) => self.health.stop(cause),
            _ => error,
        }
    }

    pub(crate) fn check<T, E: Into<Error>>(&self, result: Result<T, E>) -> Result<T> {
        result.map_err(|error| self.judge(error.into()))
    }
}

/// The tree's shape for a dictionary's options.
pub(crate) fn tree_options(options: &DictionaryOptions, settings: &Options) -> TreeOptions {
    if settings.sizes.tiny_trees {
        return TreeOptions { leaf_filter: options.leaf_filter, ..TreeOptions::tiny() };
    }
    TreeOptions {
        compression: compression(options.compression),
        page_size: u64::from(options.page_size),
        read_page_size: options.read_page_size as usize,
        fanout: usize::from(options.fanout),
        leaf_filter: options.leaf_filter,
        buffer_bytes: settings.sizes.buffer_bytes,
        ..TreeOptions::default()
    }
}

fn compression(compression: Compression) -> blockfile::Compression {
    match compression {
        Compression::None => blockfile::Compression::None,
        Compression::Lz4 => blockfile::Compression::Lz4,
        Compression::Zlib(level) => blockfile::Compression::Zlib(level),
        Compression::ZstdDefault => blockfile::Compression::Zstd(blockfile::DEFAULT_ZSTD_LEVEL),
        Compression::Zstd(level) => blockfile::Compression::Zstd(level),
    }
}
