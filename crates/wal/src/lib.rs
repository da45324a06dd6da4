//! The redo log: segments, frames, group commit, replay.
//!
//! The log is one endless string of bytes. A position in it is an [`Lsn`]; it only grows, over
//! restarts too. Segment files hold consecutive pieces of the string, frames lie in it one behind
//! the other and may cross from one segment into the next.
//!
//! What is always true:
//! 1. What [`Wal::sync_to`] has covered is returned by the next [`Replay`], whole and in order.
//! 2. What replay returns is a prefix of what was appended: a torn or short tail ends the log
//!    silently, because nobody was told that it is safe.
//! 3. A bad frame *before* a point that is known to have been synced is [`Error::Corruption`].
//!    Known as synced is: everything before the segment file in use (a file is synced before the
//!    next one is begun), everything before a later epoch, and everything before the position in
//!    any later **mark** frame. Marks are written with the first append after each sync, and by
//!    [`Wal::mark_synced`] where no append follows. What cannot be told apart from a torn tail is
//!    in [`Replay::torn_tail`].
//! 4. Each opening for writing begins a new **epoch**: a new segment with a new salt that every
//!    checksum contains. So frames of a torn tail never come back to life.
//! 5. After a failed write or sync the log is stopped: every later call answers
//!    [`Error::Stopped`] with the first cause. A full disk is different: nothing is lost, the
//!    bytes stay in memory and the next call tries again.
//! 6. What is in the buffer has files: an append that would need a new one makes it first, and
//!    where there is no room nothing is appended. A start needs no more than the room behind the
//!    log's end.
//!
//! 7. In a log that was opened with keys every record is encrypted before it reaches a file, with a key
//!    of its epoch alone; checksums are of the encrypted bytes.
//!
//! 8. A long record is compressed before it is encrypted; readers answer what was appended.
//!
//! Lock order: group → preparing → writer → tail.
//!
//! On disk: `docs/formats/wal.md`.
#![forbid(unsafe_code)]

pub mod archive;
mod compressed;
mod directory;
mod encrypted;
mod error;
mod frame;
mod group;
#[cfg(all(test, shuttle))]
mod interleavings;
mod live;
mod maker;
mod metrics;
mod reader;
mod rotate;
mod segment;
mod sync;
mod window;
mod writer;

pub use compressed::{Body, NewRecord};
pub use error::{Error, Result};
pub use group::{GroupDue, SyncWatch};
pub use live::{LiveReader, SyncedFile};
pub use metrics::{Metrics, Stats};
pub use reader::{Record, Replay, TornTail};
pub use writer::{Place, Priority, Wal};

/// The decoders of the log's own structures, for offline readers and fuzz targets.
pub mod format {
    pub use crate::compressed::{Uncompressed, compressed_payload};
    pub use crate::frame::{
        FRAME_HEADER_BYTES, Frame, FrameKind, decode_frame, encode_frame, frame_bytes,
    };
    pub use crate::segment::{EpochKey, HEADER_BYTES, SegmentHeader, segment_name, segment_number};
}

/// A position in the log, in bytes. Always a multiple of 8; 0 is the beginning of time.
pub type Lsn = u64;

/// The longest payload of one append.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;

/// What a test of tests has wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedSyncBug {
    /// What was written counts as synced, and those who wait for it are called.
    CountsWhatIsWritten,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Length of a segment file.
    pub segment_bytes: u64,
    /// Old segment files kept for reuse; more are deleted.
    pub recycle: usize,
    /// Above this many bytes in memory an append writes them out itself (without a sync).
    pub buffer_bytes: usize,
    /// Bodies of records are compressed from so many bytes on: [`Wal::body`].
    pub compress_from: usize,
}

/// For [`WalOptions::compress_from`]: nothing is.
pub const NEVER_COMPRESS: usize = usize::MAX;
/// What is shorter is not worth the time that compressing takes.
const COMPRESS_FROM: usize = 4 << 10;

impl WalOptions {
    /// Whole words, and room for at least a kilobyte of frames.
    fn file_bytes(&self) -> u64 {
        (self.segment_bytes & !7).max(2 * format::HEADER_BYTES as u64)
    }
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 32 << 20,
            recycle: 4,
            buffer_bytes: 8 << 20,
            compress_from: COMPRESS_FROM,
        }
    }
}
