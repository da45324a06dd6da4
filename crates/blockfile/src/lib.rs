//! One data file: superblock, block allocator, translation table, checksummed compressed pages.
//!
//! The file holds **segments**: immutable byte strings with a number ([`SegmentId`]) that are
//! written once, read in parts and freed. A checkpoint makes a set of segments and a root blob
//! durable in one atomic step.
//!
//! What is always true:
//! 1. What the newest superblock names is never overwritten: an extent is used again only after a
//!    completed checkpoint without it, and after every [`Pin`] that could see it is gone.
//! 2. Opening after a crash shows exactly the last completed checkpoint. Segments written later
//!    vanish, their space is free.
//! 3. A damaged or misdirected page, table, blob or superblock is an [`Error::Corruption`], never
//!    a wrong answer and never a panic.
//! 4. A full disk ([`Error::NoSpace`]) changes nothing; the same call works later, and what a
//!    checkpoint writes finds room in a reserve. A failed sync
//!    stops the file: every later call that writes answers [`Error::Stopped`].
//!
//! 5. In a file that was made with keys every page and every root is encrypted, with a key that is derived
//!    for its segment or blob alone; what is not is refused. Checksums are of the encrypted bytes. The
//!    translation table is not encrypted: it has numbers and places of segments.
//!
//! Lock order: checkpoint → state → table.
//!
//! On disk: `docs/formats/{superblock,translation-table,page}.md`.
#![forbid(unsafe_code)]

mod allocator;
mod blob;
mod chain;
mod checkpoint;
mod compact;
mod compress;
mod compression_dictionary;
mod copying;
mod create;
mod encrypted_root;
mod error;
mod file;
mod inner;
mod metrics;
mod page;
mod page_batch;
mod pins;
mod reserve;
mod segment;
mod state;
mod stored_pages;
mod superblock;
mod table;
mod translation;

pub use checkpoint::{CheckpointMark, CheckpointWritten, Root};
pub use compress::{Compression, DEFAULT_ZLIB_LEVEL, DEFAULT_ZSTD_LEVEL, compress, decompress};
pub use compression_dictionary::{
    DECOMPRESSOR_BYTES, DictionaryCompressor, DictionaryDecompressor, TRAINING_BYTES,
    train_dictionary,
};
pub use copying::{CheckpointParts, FileParts, read_checkpoint};
pub use create::is_encrypted;
pub use error::{Error, Result};
pub use file::{BlockFile, CheckpointImage, Options, SegmentInfo, Space, Stats};
pub use metrics::{Metrics, PageStats};
pub use page::{
    MAX_PAGE_BYTES, PAGE_HEADER_BYTES, PageCompression, PageContext, PageError,
    check_encrypted_page, check_stored_page, decode_page, encode_page, page_stored_len,
};
pub use page_batch::PageBatch;
pub use pins::Pin;
pub use segment::{PageRef, SegmentWriter};
pub use stored_pages::{DamagedPage, StoredPages};
pub use translation::SegmentId;

/// The decoders of the file's own structures, for offline readers and fuzz targets.
pub mod format {
    pub use crate::allocator::Extent;
    pub use crate::blob::{BlobPointer, Chunk, MAX_CHUNK_PAYLOAD};
    pub use crate::chain::{LINK_BYTES, Link};
    pub use crate::encrypted_root::{decrypt_root, encrypt_root};
    pub use crate::superblock::{SUPERBLOCK_BYTES, Superblock};
    pub use crate::translation::{
        Change, Entry, decode_changes, decode_table, encode_changes, encode_table, fold_tables,
    };
}

/// Space is handed out in units of this many bytes.
pub const UNIT: u64 = 4096;
