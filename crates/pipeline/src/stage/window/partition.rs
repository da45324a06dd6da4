//! The documents of one partition, by position: the first in memory, the rest in blocks on disk.
//!
//! A block on disk is documents one after the other; each begins with its own length.

use crate::env::{Env, ExecOptions};
use crate::memory::StageMemory;
use crate::spill::{SpillStorage, document_from};
use bson::raw::RawDocumentBuf;
use errors::{Code, Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes gathered into one block.
const BLOCK_BYTES: usize = 64 << 10;

/// Blocks kept after reading; windows have few ends.
const CACHED_BLOCKS: usize = 8;

pub(super) struct Partition {
    options: ExecOptions,
    memory: Vec<Arc<RawDocumentBuf>>,
    bytes: usize,
    held: StageMemory,
    len: usize,
    spill: Option<Box<dyn SpillStorage>>,
    blocks: Vec<Block>,
    /// The block being gathered.
    open: Vec<u8>,
    open_first: usize,
    cache: VecDeque<(usize, Vec<Arc<RawDocumentBuf>>)>,
}

struct Block {
    /// The position of its first document.
    first: usize,
    offset: u64,
    len: usize,
}

impl Partition {
    pub(super) fn new(options: ExecOptions) -> Self {
        Self {
            options,
            memory: Vec::new(),
            bytes: 0,
            held: StageMemory::within(options.memory_limit_bytes),
            len: 0,
            spill: None,
            blocks: Vec::new(),
            open: Vec::new(),
            open_first: 0,
            cache: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, document: RawDocumentBuf, env: &dyn Env) -> Result<()> {
        let size = document.as_bytes().len() + 64;
        if self.spill.is_none() {
            if self.held.fits(self.bytes + size, 0)? {
                self.bytes += size;
                self.len += 1;
                self.memory.push(Arc::new(document));
                return Ok(());
            }
            if !self.options.allow_disk_use {
                return Err(Error::location(
                    5643011,
                    "Exceeded max memory. Set 'allowDiskUse: true' to spill to disk",
                ));
            }
            self.spill = Some(env.create_spill()?);
            self.open_first = self.len;
        }
        self.open.extend_from_slice(document.as_bytes());
        self.len += 1;
        if self.open.len() >= BLOCK_BYTES { self.close_block() } else { Ok(()) }
    }

    fn close_block(&mut self) -> Result<()> {
        if let (Some(spill), false) = (&mut self.spill, self.open.is_empty()) {
            let offset = spill.append(&self.open)?;
            let block = Block { first: self.open_first, offset, len: self.open.len() };
            self.blocks.push(block);
            self.open.clear();
            self.open_first = self.len;
        }
        Ok(())
    }

    /// No more documents come.
    pub(super) fn seal(&mut self) -> Result<()> {
        self.close_block()
    }

    /// The document at a position, which must be below [`Self::len`].
    pub(super) fn get(&mut self, at: usize) -> Result<Arc<RawDocumentBuf>> {
        if let Some(document) = self.memory.get(at) {
            return Ok(Arc::clone(document));
        }
        let lost = || Error::new(Code::INTERNAL_ERROR, "a spilled partition lacks a document");
        let number = self.blocks.partition_point(|block| block.first <= at).checked_sub(1);
        let number = number.ok_or_else(lost)?;
        let first = self.blocks[number].first;
        let cached = self.cache.iter().find(|(known, _)| *known == number);
        if let Some((_, documents)) = cached {
            return documents.get(at - first).cloned().ok_or_else(lost);
        }
        let documents = self.read(number)?;
        let found = documents.get(at - first).cloned().ok_or_else(lost)?;
        if self.cache.len() == CACHED_BLOCKS {
            self.cache.pop_front();
        }
        self.cache.push_back((number, documents));
        Ok(found)
    }

    fn read(&self, number: usize) -> Result<Vec<Arc<RawDocumentBuf>>> {
        let damaged = || Error::new(Code::INTERNAL_ERROR, "a temporary file is damaged");
        let block = &self.blocks[number];
        let mut bytes = vec![0; block.len];
        let spill = self.spill.as_ref().ok_or_else(damaged)?;
        if spill.read_at(block.offset, &mut bytes)? < block.len {
            return Err(damaged());
        }
        let mut documents = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some(length) = rest.first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let (document, after) = rest.split_at_checked(length.max(4)).ok_or_else(damaged)?;
            documents.push(Arc::new(document_from(document.to_vec())?));
            rest = after;
        }
        Ok(documents)
    }
}
