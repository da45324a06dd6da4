//! The shape of one tree.

use blockfile::Compression;

/// The most children of a node: a run's mask has a bit for each.
pub(crate) const MAX_FANOUT: usize = 64;

/// Fixed when the tree is created; kept by the engine's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeOptions {
    /// How pages are compressed.
    pub compression: Compression,
    /// Raw bytes of a leaf segment (`pageSize`).
    pub page_size: u64,
    /// Raw bytes of a page, the unit of reading and compressing (`readPageSize`).
    pub read_page_size: usize,
    /// Children per node, 4 to 64.
    pub fanout: usize,
    /// Keep filters on leaf segments too, so that the unique check of a new key reads nothing.
    pub leaf_filter: bool,
    /// Buffered bytes per node before its heaviest child is flushed.
    pub buffer_bytes: u64,
    /// Runs of like size that are merged into one.
    pub tier: usize,
    /// Runs above which all of a node's runs are merged.
    pub max_runs: usize,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Zstd(3),
            page_size: 1 << 20,
            read_page_size: 16 << 10,
            fanout: 64,
            leaf_filter: false,
            buffer_bytes: 8 << 20,
            tier: 4,
            max_runs: 8,
        }
    }
}

impl TreeOptions {
    /// Runs live for a few flushes and are a tenth of the data, and leaves that are in use and get
    /// so much from one memtable that it is merged into them directly live until the next one:
    /// they are compressed fast rather than well (zstd 1 takes half the time of zstd 3).
    pub(crate) fn fast_compression(&self) -> Compression {
        match self.compression {
            Compression::Zstd(_) => Compression::Zstd(1),
            Compression::Zlib(_) => Compression::Zlib(1),
            other => other,
        }
    }

    /// For a leaf that is updated so much that it is rewritten with each memtable: what it takes
    /// to compress it is most of the price.
    pub(crate) fn light_compression(&self) -> Compression {
        match self.compression {
            Compression::Zstd(_) | Compression::Zlib(_) => Compression::Lz4,
            other => other,
        }
    }

    /// Values above this lie in segments of their own. Such a value would fill a page by itself
    /// anyway, so reading it costs no more; and it wastes at most an eighth of what it takes, as
    /// space is handed out in units of 4 KiB.
    pub(crate) fn large_above(&self) -> usize {
        self.read_page_size * 2
    }

    /// Bytes of runs that are merged at once, where a tier is not more: drains and commits wait for
    /// whoever is at it.
    pub(crate) fn most_merged(&self) -> u64 {
        self.buffer_bytes * 2
    }

    /// The nearest options a tree can work with.
    pub(crate) fn sound(mut self) -> Self {
        self.read_page_size = self.read_page_size.clamp(64, 16 << 20);
        self.page_size = self.page_size.clamp(self.read_page_size as u64, 1 << 30);
        self.fanout = self.fanout.clamp(4, MAX_FANOUT);
        self.buffer_bytes = self.buffer_bytes.clamp(1024, 1 << 30);
        self.tier = self.tier.clamp(2, 32);
        self.max_runs = self.max_runs.clamp(self.tier, 63);
        self
    }

    /// Sizes so small that every kind of work happens within a thousand operations: for tests.
    pub fn tiny() -> Self {
        Self {
            compression: Compression::Lz4,
            page_size: 1024,
            read_page_size: 256,
            fanout: 4,
            leaf_filter: false,
            buffer_bytes: 2048,
            tier: 3,
            max_runs: 5,
        }
    }
}
