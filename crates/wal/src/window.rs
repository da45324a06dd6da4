//! The piece of the log that a reader of a log in use has in memory.
//!
//! Always true: the bytes are those of the positions from `start` on, all of one epoch. It is as long
//! as one read, or as the longest record that is being read, and shrinks again behind such a record.

use std::path::PathBuf;
use std::sync::Arc;

use os::{File, OpenOptions, Os};

use crate::Lsn;
use crate::directory::read_up_to;
use crate::error::{Error, Result};
use crate::segment::{EpochKey, HEADER_BYTES};

/// Bytes that one read brings, at most.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// A piece of the log that lies in one file.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) path: PathBuf,
    /// Of the epoch that wrote it: every frame's checksum contains it.
    pub(crate) salt: u64,
    pub(crate) key: Option<EpochKey>,
    /// The position of the file's first body byte.
    pub(crate) first: Lsn,
    /// One past the last position that counts: what is behind it in the file belongs to a torn tail.
    pub(crate) end: Lsn,
}

impl Stretch {
    /// The byte of the file at which a position lies.
    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        HEADER_BYTES as u64 + lsn.saturating_sub(self.first)
    }

    fn holds(&self, lsn: Lsn) -> bool {
        self.first <= lsn && lsn < self.end
    }
}

/// Bytes of the log, and the file they come from.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    start: Lsn,
    file: Option<(Stretch, Arc<dyn File>)>,
}

impl Window {
    /// Nothing is in memory; the next read is at `lsn`.
    pub(crate) fn move_to(&mut self, lsn: Lsn) {
        self.bytes.clear();
        self.start = lsn;
    }

    /// Gives memory and file back.
    pub(crate) fn park(&mut self, lsn: Lsn) {
        self.bytes = Vec::new();
        self.start = lsn;
        self.file = None;
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// What is in memory from `lsn` on.
    pub(crate) fn from(&self, lsn: Lsn) -> &[u8] {
        let at = lsn.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    fn end(&self) -> Lsn {
        self.start + self.bytes.len() as u64
    }

    /// Brings `need` bytes from `from` on into memory, and forgets what is before. Reads nothing at or
    /// behind `until`. False where the log, as `find` knows it, or the epoch of `salt` ends before.
    pub(crate) fn fill(
        &mut self,
        os: &Os,
        salt: u64,
        (from, need): (Lsn, usize),
        until: Lsn,
        mut find: impl FnMut(Lsn) -> Option<Stretch>,
    ) -> Result<bool> {
        if from < self.start || from > self.end() {
            self.move_to(from);
        }
        let wanted = from + need as u64;
        if self.end() >= wanted {
            return Ok(true);
        }
        let behind = usize::try_from(from - self.start).unwrap_or(usize::MAX);
        self.bytes.drain(..behind.min(self.bytes.len()));
        self.start = from;
        if need <= READ_BYTES && self.bytes.capacity() > 2 * READ_BYTES {
            self.bytes.shrink_to(READ_BYTES);
        }
        while self.end() < wanted {
            let at = self.end();
            if at >= until || !self.open(os, at, &mut find)? {
                return Ok(false);
            }
            let Some((stretch, file)) = &self.file else { return Ok(false) };
            if stretch.salt != salt {
                return Ok(false);
            }
            let there = stretch.end.min(until) - at;
            let want = usize::try_from(there).map_or(READ_BYTES, |there| there.min(READ_BYTES));
            let old = self.bytes.len();
            self.bytes.resize(old + want, 0);
            let place = self.bytes.get_mut(old..).unwrap_or_default();
            let got = read_up_to(&**file, place, stretch.offset(at));
            let got = got.map_err(|e| Error::io("read", &stretch.path, e))?;
            self.bytes.truncate(old + got);
            if got < want && self.end() < wanted {
                return Ok(false);
            }
        }
        debug_assert!(self.end() >= wanted, "what was asked for is there");
        Ok(true)
    }

    /// Has the file open that holds `lsn`; false where there is none.
    fn open(
        &mut self,
        os: &Os,
        lsn: Lsn,
        find: &mut impl FnMut(Lsn) -> Option<Stretch>,
    ) -> Result<bool> {
        if self.file.as_ref().is_some_and(|(stretch, _)| stretch.holds(lsn)) {
            return Ok(true);
        }
        let Some(stretch) = find(lsn) else { return Ok(false) };
        let file = os.vfs.open(&stretch.path, OpenOptions::read_only());
        let file = file.map_err(|e| Error::io("open", &stretch.path, e))?;
        self.file = Some((stretch, file));
        Ok(true)
    }
}
