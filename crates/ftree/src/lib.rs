//! The fractal tree (Bε-tree): memtable, runs, nodes, leaf segments, flush, merge, cursor.
//!
//! A tree maps byte keys to byte values in memcmp order, in versions: every write carries the
//! timestamp of its commit, every read names the timestamp it reads at. Everything on disk is
//! immutable: buffers are appended sorted runs, leaves are rewritten as whole segments, nodes are
//! path-copied and the root is swapped, so readers wait for nobody.
//!
//! ```text
//!   insert ──► active memtable ──seal──► sealed memtables ──drain──┐
//!                                                                  ▼
//!   get: memtables, then from the root down           node (resident, immutable)
//!        the runs that cover the key, then           pivots │ runs of each child
//!        one page of one leaf                    ┌──────────┼──────────┐  flush
//!                                                ▼          ▼          ▼
//!                                              leaf       leaf       leaf     (segments of pages)
//! ```
//!
//! The engine above owns the log, timestamps and snapshots; this crate writes no log.

mod block;
mod bytes;
mod compression_dictionary;
mod error;
mod fetch;
mod filter;
pub mod format;
#[cfg(test)]
mod golden;
#[cfg(all(test, shuttle))]
mod interleavings;
mod key_hasher;
mod key_updates;
mod large;
mod memtable;
mod merge;
mod merge_limiter;
mod message;
mod node;
mod options;
mod overlay;
mod page;
mod readers;
mod retain;
mod rows;
mod segment;
mod sort;
mod sort_run;
mod spill;
mod tombstones;
mod tree;
mod tree_shared;
mod updates;
mod value;

pub use error::{Error, Result};
pub use key_hasher::KeyHasher;
pub use memtable::Version;
pub use merge_limiter::MergeLimiter;
pub use message::{Direction, KeyRange, Message, Visibility};
pub use options::TreeOptions;
pub use readers::ReadPool;
pub use segment::thread_page_reads;
pub use sort::{RowBatch, RowBounds, RowRuns, RowSorter, RowWalk, SortedRows};
pub use spill::{SpillCursor, SpillTree, SpillView, Written};
pub use tombstones::{MAX_TOMBSTONES, RecordPart, Tombstone, TombstoneBug, no_parts};
pub use tree::{
    Capture, Context, Cursor, Debt, Effort, NodesWritten, Progress, Report, Stats, Step, Tree,
    TreeImage, TreeLoader, Walk, Work,
};
pub use updates::{Applied, PlantedUpdateBug, UpdatePlace, Updates, combine as combine_updates};
pub use value::Value;
