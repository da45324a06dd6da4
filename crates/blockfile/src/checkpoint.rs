//! Checkpoints: table and root blob to new extents, one sync, the other superblock, one sync.
//!
//! 1. [`BlockFile::begin_checkpoint`] marks a moment, in the same critical section in which the
//!    engine captures its roots. From then on nothing those roots name is given away.
//! 2. [`BlockFile::finish_checkpoint`] writes. Until its second sync returns, a crash shows the
//!    checkpoint before; afterwards the new one.
//!
//! In the table: segments with ids below the mark's, live or freed after the mark.

use os::AlignedBuf;
use xxhash_rust::xxh3::xxh3_64;

use crate::UNIT;
use crate::allocator::Extent;
use crate::blob::{BlobPointer, Chunk, MAX_CHUNK_PAYLOAD, chunk_units};
use crate::error::Result;
use crate::file::BlockFile;
use crate::inner::Inner;
use crate::superblock::Superblock;
use crate::translation::{SegmentId, encode_table};

/// The moment a checkpoint shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointMark {
    pub(crate) epoch: u64,
    pub(crate) next_id: u64,
}

impl BlockFile {
    /// Marks the moment. Takes one short lock; call it where the roots are captured.
    pub fn begin_checkpoint(&self) -> CheckpointMark {
        self.0.state.lock().begin_checkpoint()
    }

    /// Makes the marked moment durable: all segments it names, and `root`. The log before `lsn`
    /// is then not needed. On [`crate::Error::NoSpace`] nothing has changed.
    pub fn finish_checkpoint(&self, mark: CheckpointMark, root: &[u8], lsn: u64) -> Result<()> {
        let inner = &*self.0;
        let _one_at_a_time = inner.checkpointing.lock();
        inner.check_running()?;
        let generation = {
            let state = inner.state.lock();
            assert!(mark.epoch >= state.completed_epoch, "checkpoints finish in their order");
            state.generation + 1
        };
        let mut blobs = Vec::new();
        let written = inner.write_blobs(mark, generation, root, &mut blobs);
        let (table, root) = match written {
            Ok(pointers) => pointers,
            Err(e) => {
                for extent in blobs {
                    inner.give_back(extent);
                }
                return Err(e);
            }
        };
        inner.sync()?;
        inner.write_superblock(&Superblock {
            file_id: inner.file_id,
            generation,
            lsn,
            written_ms: inner.os.clock.wall_ms(),
            next_segment: mark.next_id,
            table,
            root,
        })?;
        inner.metrics.checkpoints.inc();
        inner.metrics.checkpoint_bytes.add(table.bytes + root.bytes);
        let mut state = inner.state.lock();
        state.generation = generation;
        state.completed_epoch = mark.epoch;
        for extent in std::mem::replace(&mut state.blobs, blobs) {
            state.drop_blob(extent);
        }
        state.reclaim(&inner.table);
        Ok(())
    }

    /// Both halves at once, for callers without concurrent writers.
    pub fn checkpoint(&self, root: &[u8], lsn: u64) -> Result<()> {
        self.finish_checkpoint(self.begin_checkpoint(), root, lsn)
    }
}

impl Inner {
    fn write_blobs(
        &self,
        mark: CheckpointMark,
        generation: u64,
        root: &[u8],
        extents: &mut Vec<Extent>,
    ) -> Result<(BlobPointer, BlobPointer)> {
        let table = {
            let table = self.table.read();
            let in_checkpoint = table.range(..mark.next_id).filter(|(_, slot)| {
                slot.dropped.is_none_or(|dropped_epoch| dropped_epoch >= mark.epoch)
            });
            encode_table(in_checkpoint.map(|(id, slot)| (SegmentId(*id), slot.entry)))
        };
        let table = self.write_blob(generation, &table, extents)?;
        let root = self.write_blob(generation, root, extents)?;
        Ok((table, root))
    }

    fn write_blob(
        &self,
        generation: u64,
        bytes: &[u8],
        extents: &mut Vec<Extent>,
    ) -> Result<BlobPointer> {
        // an empty blob is one chunk without payload, so that "empty" and "none" differ
        let payloads: Vec<&[u8]> = match bytes.len() {
            0 => vec![bytes],
            _ => bytes.chunks(MAX_CHUNK_PAYLOAD).collect(),
        };
        let first = extents.len();
        for payload in &payloads {
            extents.push(self.allocate(chunk_units(payload.len()))?);
        }
        let mut buf = AlignedBuf::new();
        for (number, payload) in payloads.iter().enumerate() {
            buf.clear();
            let next = extents.get(first + number + 1).copied();
            Chunk { next, payload }.encode(generation, number as u32, &mut buf);
            self.write_units(extents[first + number].unit, &buf)?;
        }
        Ok(BlobPointer {
            unit: extents[first].unit,
            units: extents[first].units as u32,
            bytes: bytes.len() as u64,
            checksum: xxh3_64(bytes),
        })
    }

    pub(crate) fn read_blob(
        &self,
        generation: u64,
        pointer: BlobPointer,
        extents: &mut Vec<Extent>,
    ) -> Result<Vec<u8>> {
        let bad = |what| self.corruption(pointer.unit, what);
        let mut bytes = Vec::new();
        let mut buf = AlignedBuf::new();
        let mut next = Some(Extent { unit: pointer.unit, units: u64::from(pointer.units) });
        let mut number = 0;
        let file_units = self.state.lock().file_units;
        while let Some(extent) = next {
            // the longest chunk bounds the read, the checked total bounds the chain
            let fits = extent.end().is_some_and(|end| end <= file_units);
            if !fits || extent.units > chunk_units(MAX_CHUNK_PAYLOAD) {
                return Err(bad("a blob chunk lies outside the file"));
            }
            buf.resize((extent.units * UNIT) as usize, 0);
            self.read_at(extent.unit * UNIT, &mut buf)?;
            let chunk = Chunk::decode(generation, number, &buf);
            let chunk = chunk.ok_or_else(|| bad("a blob chunk is damaged"))?;
            bytes.extend_from_slice(chunk.payload);
            if bytes.len() as u64 > pointer.bytes {
                return Err(bad("a blob is longer than its pointer says"));
            }
            if chunk.next.is_some() && chunk.payload.is_empty() {
                return Err(bad("a blob chunk is empty and not the last"));
            }
            extents.push(extent);
            next = chunk.next;
            number += 1;
        }
        if bytes.len() as u64 != pointer.bytes || xxh3_64(&bytes) != pointer.checksum {
            return Err(bad("a blob differs from its pointer"));
        }
        Ok(bytes)
    }

    /// A failure here stops the file: nobody knows which of the two superblocks the disk holds.
    fn write_superblock(&self, superblock: &Superblock) -> Result<()> {
        let mut buf = AlignedBuf::new();
        buf.extend_from_slice(&superblock.encode());
        let unit = Superblock::slot_offset(superblock.generation) / UNIT;
        self.write_units(unit, &buf).map_err(|e| self.stop(e))?;
        self.sync()
    }
}
