//! Checkpoints: table and root blob to new extents, one sync, the other superblock, one sync.
//!
//! 1. [`BlockFile::begin_checkpoint`] marks a moment, in the same critical section in which the
//!    engine captures its roots. From then on nothing those roots name is given away.
//! 2. [`BlockFile::finish_checkpoint`] writes. Until its second sync returns, a crash shows the
//!    checkpoint before; afterwards the new one.
//!
//! In the table: segments with ids below the mark's, live or freed after the mark. Table and root
//! are chains: mostly only what changed is written.

use os::AlignedBuf;
use xxhash_rust::xxh3::xxh3_64;

use crate::UNIT;
use crate::allocator::Extent;
use crate::blob::{BlobPointer, Chunk, MAX_CHUNK_PAYLOAD, chunk_units};
use crate::chain::{Link, Written};
use crate::encrypted_root::encrypt_root;
use crate::error::{Error, Result};
use crate::file::BlockFile;
use crate::inner::Inner;
use crate::superblock::Superblock;
use crate::translation::{Change, encode_changes, encode_table};

/// Payload of the chunks that are written: 64 units, so that they find room in many places.
const CHUNK_PAYLOAD: usize = (256 << 10) - 32;

/// The moment a checkpoint shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointMark {
    pub(crate) epoch: u64,
    pub(crate) next_id: u64,
    /// Segments freed or moved before it.
    pub(crate) frees: u64,
}

/// What the engine hands in.
#[derive(Clone, Copy, Debug)]
pub enum Root<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// What is different since the last completed checkpoint, of which there must be one.
    Change(&'a [u8]),
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Root<'a> {
    fn from(whole: &'a T) -> Self {
        Self::Whole(whole.as_ref())
    }
}

/// What a checkpoint wrote, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointWritten {
    /// Of the table, or its changes.
    pub table_bytes: u64,
    /// Of the root, or its change.
    pub root_bytes: u64,
}

impl BlockFile {
    /// Marks the moment. Takes one short lock; call it where the roots are captured.
    pub fn begin_checkpoint(&self) -> CheckpointMark {
        self.0.state.lock().begin_checkpoint()
    }

    /// Whether segments were begun, freed or moved since a mark.
    pub fn has_changed_since(&self, mark: CheckpointMark) -> bool {
        self.0.state.lock().next_mark() != CheckpointMark { epoch: 0, ..mark }
    }

    /// Whether a checkpoint was ever completed.
    pub fn has_root(&self) -> bool {
        self.0.state.lock().roots.link() != Link::WHOLE
    }

    /// Whether the next root should be a whole one: there is none yet, or the changes, with
    /// another one of so many bytes, would be longer than the whole.
    pub fn wants_whole_root(&self, change_bytes: usize) -> bool {
        let state = self.0.state.lock();
        state.roots.wants_whole(change_bytes, state.compact_end())
    }

    /// Makes the marked moment durable: all segments it names, and `root`. The log before `lsn`
    /// is then not needed. On [`crate::Error::NoSpace`] nothing has changed.
    pub fn finish_checkpoint<'a>(
        &self,
        mark: CheckpointMark,
        root: impl Into<Root<'a>>,
        lsn: u64,
    ) -> Result<CheckpointWritten> {
        let inner = &*self.0;
        let _one_at_a_time = inner.checkpointing.lock();
        inner.check_running()?;
        let generation = {
            let state = inner.state.lock();
            assert!(mark.epoch >= state.completed_epoch, "checkpoints finish in their order");
            state.generation + 1
        };
        let changed = inner.table.write().take_changes(mark);
        let written = inner.write_parts(generation, &changed, root.into());
        let (table, root) = match written {
            Ok(written) => written,
            Err(e) => {
                inner.table.write().put_back(changed);
                inner.fill_reserve();
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
            table: table.pointer,
            root: root.pointer,
            encrypted: inner.options.keys.is_some(),
        })?;
        let bytes =
            CheckpointWritten { table_bytes: table.pointer.bytes, root_bytes: root.pointer.bytes };
        inner.metrics.checkpoints.inc();
        inner.metrics.checkpoint_bytes.add(bytes.table_bytes + bytes.root_bytes);
        inner.table.write().saved(&changed);
        let mut state = inner.state.lock();
        assert_eq!(state.generation + 1, generation, "one checkpoint at a time");
        state.generation = generation;
        state.completed_epoch = mark.epoch;
        let mut unnamed = state.tables.completed(table);
        unnamed.extend(state.roots.completed(root));
        for extent in unnamed {
            state.drop_blob(extent);
        }
        state.reclaim(&inner.table);
        for extent in state.reserve.completed() {
            state.space.give_back(extent);
        }
        drop(state);
        inner.fill_reserve();
        Ok(bytes)
    }

    /// Both halves at once, for callers without concurrent writers.
    pub fn checkpoint<'a>(&self, root: impl Into<Root<'a>>, lsn: u64) -> Result<()> {
        self.finish_checkpoint(self.begin_checkpoint(), root, lsn).map(drop)
    }
}

impl Inner {
    fn write_parts(
        &self,
        generation: u64,
        changed: &[Change],
        root: Root<'_>,
    ) -> Result<(Written, Written)> {
        let table = self.write_table(generation, changed)?;
        let (link, bytes) = match root {
            Root::Whole(bytes) => (Link::WHOLE, bytes),
            Root::Change(bytes) => (self.state.lock().roots.link(), bytes),
        };
        let encrypted;
        let bytes = match &self.options.keys {
            None => bytes,
            Some(keys) => {
                encrypted =
                    encrypt_root(keys, &*self.os.entropy, (&link.encode(), generation), bytes);
                &encrypted
            }
        };
        match self.write_link(link, generation, bytes) {
            Ok(root) => Ok((table, root)),
            Err(e) => {
                self.unwrite(table);
                Err(e)
            }
        }
    }

    fn write_table(&self, generation: u64, changed: &[Change]) -> Result<Written> {
        let change = encode_changes(changed);
        let (link, wants_whole) = {
            let state = self.state.lock();
            let end = state.compact_end();
            (state.tables.link(), state.tables.wants_whole(change.len(), end))
        };
        if wants_whole {
            let whole = self.table.read().whole(changed);
            let whole = encode_table(whole.into_iter());
            match self.write_link(Link::WHOLE, generation, &whole) {
                // Where a whole table finds no room its change may.
                Err(Error::NoSpace { .. }) if link != Link::WHOLE => {}
                written => return written,
            }
        }
        self.write_link(link, generation, &change)
    }

    pub(crate) fn write_blob(
        &self,
        generation: u64,
        bytes: &[u8],
        extents: &mut Vec<Extent>,
    ) -> Result<BlobPointer> {
        // an empty blob is one chunk without payload, so that "empty" and "none" differ
        let payloads: Vec<&[u8]> = match bytes.len() {
            0 => vec![bytes],
            _ => bytes.chunks(CHUNK_PAYLOAD).collect(),
        };
        let first = extents.len();
        for payload in &payloads {
            extents.push(self.allocate_for_checkpoint(chunk_units(payload.len()))?);
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
        let read_back = Superblock::decode(&buf);
        debug_assert_eq!(read_back, Some(*superblock), "a superblock reads as it was written");
        let unit = Superblock::slot_offset(superblock.generation) / UNIT;
        self.write_units(unit, &buf).map_err(|e| self.stop(e))?;
        self.sync()
    }
}
