//! A leader's transaction that came in chunks: they are read again from the log once its commit is there.
//!
//! Always true: a transaction that is too large for its leader's memory is so here. It is laid over the trees from a spill, as
//! the leader's own was (ADR 6): in memtables it would be all of it in memory until the commit is visible, since nothing is
//! drained before.

use crate::environment::Environment;
use crate::records::Record;
use crate::recovery::{Piece, each_needed};
use crate::{Error, Result};
use ftree::SpillTree;
use wal::LiveReader;

/// A commit whose operations are in chunks before it, and in its own record.
pub(super) struct Pieces<'a> {
    pub(super) txn: u64,
    pub(super) chunks: u32,
    pub(super) timestamp: u64,
    /// Where the first chunk is.
    pub(super) first: u64,
    /// Where the commit's record is.
    pub(super) position: u64,
    /// What stands in the commit's record.
    pub(super) operations: &'a [u8],
}

impl Environment {
    /// Applies the commit; it is in the log.
    pub(super) fn apply_pieces(&self, commit: &Pieces<'_>) -> Result<()> {
        self.log.sync_to(commit.position)?;
        let sizes = &self.options.sizes;
        let is_large = u64::from(commit.chunks) * sizes.chunk_bytes as u64 > sizes.spill_bytes;
        let mut changed = 0;
        if is_large {
            match self.spill_pieces(commit, &mut changed) {
                // A full disk: it stays in memory, as what is not drained does.
                Err(Error::NoSpace(_)) => {}
                spilled => return spilled,
            }
        }
        let mut number = 0;
        self.each_piece(commit, |position, operations| {
            number += 1;
            // What dictionaries became before the disk was full, they are.
            if number > changed {
                self.change_dictionaries(position, commit.timestamp, operations)?;
            }
            self.insert(position, commit.timestamp, operations)
        })
    }

    /// Lays the commit over the trees it wrote to; counts the pieces whose changes of dictionaries are done.
    fn spill_pieces(&self, commit: &Pieces<'_>, changed: &mut u32) -> Result<()> {
        let mut spill = self.commits.start_spill(commit.txn);
        self.each_piece(commit, |position, operations| {
            self.change_dictionaries(position, commit.timestamp, operations)?;
            *changed += 1;
            let piece = Piece { position, timestamp: commit.timestamp, operations: Vec::new() };
            each_needed(self, &piece, operations, |dictionary, key, message| {
                Ok(spill.write_message(dictionary.id, key, message, false)?)
            })
        })?;
        spill.settle()?;
        self.adopt(&spill, commit.timestamp);
        Ok(())
    }

    fn adopt(&self, spill: &SpillTree, timestamp: u64) {
        let visible = self.snapshots.visible().get();
        debug_assert!(visible < timestamp, "nobody sees it yet");
        for id in spill.spaces() {
            if let Some(dictionary) = self.directory.find(id) {
                let newest = || dictionary.newest_write();
                dictionary.tree.adopt(spill, id, timestamp, visible, newest);
                self.schedule.add_layer(&dictionary);
                self.schedule.account(&dictionary);
            }
        }
    }

    /// The operations of each chunk, in order, then those of the commit's record.
    fn each_piece(
        &self,
        commit: &Pieces<'_>,
        mut see: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut reader = LiveReader::at(commit.first);
        let mut found = 0;
        while let Some(record) = reader.next_record(self.log.wal(), commit.position)? {
            let (lsn, payload) = (record.lsn, record.payload);
            if self.is_void(lsn) {
                continue;
            }
            match Record::decode(payload).map_err(|e| Error::in_record(lsn, e))? {
                Record::Chunk { txn, operations, .. } if txn == commit.txn => {
                    found += 1;
                    see(lsn, operations)?;
                }
                _ => {}
            }
        }
        if found != commit.chunks {
            return Err(Error::in_record(commit.position, "chunks are missing"));
        }
        see(commit.position, commit.operations)
    }
}
