//! Writing a segment as its pages are produced.
//!
//! What is always true: until [`SegmentWriter::finish`] returns nobody else can see the segment,
//! and a writer that is dropped earlier gives its extent back.

use std::sync::Arc;

use crypt::{FreshKey, KeyRing, Purpose};
use os::AlignedBuf;

use crate::UNIT;
use crate::allocator::Extent;
use crate::error::Result;
use crate::file::BlockFile;
use crate::page::{PageCompression, PageContext, encode_page};
use crate::translation::{Entry, SegmentId};

/// Up to here a segment is gathered in memory and then gets an extent that fits exactly; longer
/// ones are written in steps of this. Leaf segments are 1 to 1.5 MiB.
const GATHER_BYTES: usize = 4 << 20;

/// Where a page is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// Its number, part of its checksum.
    pub page: u32,
    /// Stored length, header included.
    pub len: u32,
    /// First byte in the segment.
    pub offset: u64,
}

/// Writes one segment from front to back. After an error it is of no use: drop it and start
/// another one later.
pub struct SegmentWriter {
    file: BlockFile,
    id: SegmentId,
    kind: u8,
    /// What is not written yet.
    buf: AlignedBuf,
    /// Bytes already in `extent`, whole units.
    written: u64,
    extent: Option<Extent>,
    pages: u32,
    scratch: Vec<u8>,
    for_checkpoint: bool,
    /// Where the file is encrypted: of this segment alone, and never of another one with its number.
    key: Option<FreshKey>,
}

impl SegmentWriter {
    pub(crate) fn new(file: BlockFile, id: SegmentId, kind: u8) -> Self {
        let (buf, scratch) = (AlignedBuf::new(), Vec::new());
        let (written, extent, pages, for_checkpoint) = (0, None, 0, false);
        let fresh = |keys: &Arc<KeyRing>| keys.fresh(Purpose::DataFile, &*file.0.os.entropy);
        let key = file.0.options.keys.as_ref().map(fresh);
        Self { file, id, kind, buf, written, extent, pages, scratch, for_checkpoint, key }
    }

    /// A checkpoint cannot complete without this segment: it may use what is kept back for that.
    #[must_use]
    pub fn for_checkpoint(mut self) -> Self {
        self.for_checkpoint = true;
        self
    }

    /// The number the segment will have.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.written + self.buf.len() as u64
    }

    /// Bytes of memory that wait to be written.
    pub fn buffered_bytes(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends raw bytes, which nothing encrypts; says where they start. May write to the disk.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let offset = self.len();
        self.buf.extend_from_slice(bytes);
        if self.buf.len() >= GATHER_BYTES {
            self.write_whole_units()?;
        }
        Ok(offset)
    }

    /// Compresses, encrypts where the file is encrypted, checksums and appends the next page. May write to the disk.
    pub fn append_page<'a>(
        &mut self,
        dictionary: u64,
        compression: impl Into<PageCompression<'a>>,
        raw: &[u8],
    ) -> Result<PageRef> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let context = PageContext { dictionary, segment: self.id.0, page: self.pages };
        let clock = &self.file.0.os.clock;
        let started = clock.monotonic();
        encode_page(context, compression.into(), self.key.as_ref(), raw, &mut scratch);
        let took = clock.monotonic().saturating_sub(started);
        self.file.0.metrics.encoded(self.kind, raw.len(), scratch.len(), took);
        let offset = self.append(&scratch)?;
        let page = PageRef { page: self.pages, len: scratch.len() as u32, offset };
        self.pages += 1;
        self.scratch = scratch;
        Ok(page)
    }

    /// Writes what is left and makes the segment readable (not yet durable: a checkpoint does
    /// that). An empty segment is a bug.
    pub fn finish(mut self) -> Result<SegmentId> {
        let bytes = self.len();
        assert!(bytes != 0, "a segment has at least one byte");
        let units = bytes.div_ceil(UNIT);
        if self.extent.is_none() {
            self.extent = Some(self.allocate(units)?);
        }
        self.buf.pad_to_unit();
        self.write_whole_units()?;
        let mut extent = self.extent.take().expect("allocated above");
        assert!(self.buf.is_empty(), "a finished segment is written to its last byte");
        assert!(extent.units >= units, "a segment lies inside its extent");
        if extent.units > units {
            let rest = Extent { unit: extent.unit + units, units: extent.units - units };
            self.file.0.give_back(rest);
            extent.units = units;
        }
        let entry = Entry { unit: extent.unit, bytes, kind: self.kind };
        self.file.0.table.write().add(self.id, entry);
        Ok(self.id)
    }

    fn allocate(&self, units: u64) -> Result<Extent> {
        if self.for_checkpoint {
            self.file.0.allocate_for_checkpoint(units)
        } else {
            self.file.0.allocate_ordinary(units)
        }
    }

    fn write_whole_units(&mut self) -> Result<()> {
        let whole = self.buf.len() - self.buf.len() % UNIT as usize;
        let extent = self.extent_for(self.written + whole as u64)?;
        if whole == 0 {
            return Ok(());
        }
        let end = (self.written + whole as u64) / UNIT;
        assert!(end <= extent.units, "a segment lies inside its extent");
        self.file.0.write_units(extent.unit + self.written / UNIT, &self.buf[..whole])?;
        self.written += whole as u64;
        let rest = self.buf.len() - whole;
        self.buf.copy_within(whole.., 0);
        self.buf.truncate(rest);
        Ok(())
    }

    /// An extent with room for `bytes`; what is already written moves along where it must grow.
    fn extent_for(&mut self, bytes: u64) -> Result<Extent> {
        let units = bytes.div_ceil(UNIT);
        let old = match self.extent {
            Some(extent) if extent.units >= units => return Ok(extent),
            old => old,
        };
        let new = self.allocate(units * 2)?;
        if let Some(old) = old {
            if let Err(e) = self.file.copy_units(old.unit, new.unit, self.written / UNIT) {
                self.file.0.give_back(new);
                return Err(e);
            }
            self.file.0.give_back(old);
        }
        self.extent = Some(new);
        Ok(new)
    }
}

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        if let Some(extent) = self.extent.take() {
            self.file.0.give_back(extent);
        }
    }
}

impl std::fmt::Debug for SegmentWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentWriter").field("id", &self.id).finish_non_exhaustive()
    }
}
