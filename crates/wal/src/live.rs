//! Reading a log that is being written: what is on disk already, in order, and again later what has
//! come since.
//!
//! What is always true:
//! 1. A reader sees only what was synced: what it has given survives every crash.
//! 2. What lies in a file that has become another segment since, or behind the end of an epoch, is
//!    never taken for a record: a frame's checksum contains its position and the salt of its epoch,
//!    and a reader asks the log anew which epoch a position belongs to.
//! 3. Where a frame cannot be read, the log is asked whether it still holds the position:
//!    [`Error::Missing`] where it was let go of meanwhile, else [`Error::Corruption`] with the file and
//!    the byte.

use crate::Lsn;
use crate::error::{Error, Result};
use crate::frame::{
    ALIGN, FRAME_HEADER_BYTES, Frame, FrameKind, claimed_payload, decode_frame, frame_bytes,
};
use crate::reader::Record;
use crate::window::{Stretch, Window};
use crate::writer::Wal;

/// A place in a log in use, and what is read ahead there. It belongs to one opening of the log.
#[derive(Default)]
pub struct LiveReader {
    /// The next frame.
    pos: Lsn,
    window: Window,
    /// The salt of the epoch that holds `pos`, up to a position.
    epoch: Option<(u64, Lsn)>,
}

impl Wal {
    /// Positions at which the files of the log begin, ascending; then the one at which the last file
    /// is full.
    pub fn segment_bounds(&self) -> Vec<Lsn> {
        let writer = self.writer.lock();
        let firsts = writer.segments.iter().map(|segment| segment.header.first_lsn);
        firsts.chain(writer.segments.back().map(|last| last.header.end_lsn())).collect()
    }

    /// The file that holds a position, as far as it counts.
    fn stretch_at(&self, lsn: Lsn) -> Option<Stretch> {
        let writer = self.writer.lock();
        let next = writer.segments.partition_point(|segment| segment.header.first_lsn <= lsn);
        let segment = writer.segments.get(next.checked_sub(1)?)?;
        let header = segment.header;
        let next_first = writer.segments.get(next).map(|next| next.header.first_lsn);
        let end = next_first.map_or(header.end_lsn(), |first| first.min(header.end_lsn()));
        debug_assert!(header.first_lsn <= lsn, "a position is in the file that begins before it");
        (lsn < end).then(|| Stretch {
            path: segment.path.clone(),
            salt: header.salt,
            first: header.first_lsn,
            end,
        })
    }
}

impl LiveReader {
    /// A reader whose next record begins at `lsn`, which must be the start or the end of a record.
    pub fn at(lsn: Lsn) -> Self {
        let mut reader = Self::default();
        reader.seek(lsn);
        reader
    }

    /// Goes on at `lsn`, the start or the end of a record.
    pub fn seek(&mut self, lsn: Lsn) {
        self.pos = lsn;
        self.epoch = None;
        self.window.move_to(lsn);
    }

    /// Where the next record begins, or a mark before it.
    pub fn position(&self) -> Lsn {
        self.pos
    }

    /// Gives memory and file back; the next read opens the file again.
    pub fn park(&mut self) {
        self.epoch = None;
        self.window.park(self.pos);
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.window.memory_bytes()
    }

    /// The next record before `until`, the end of a record, if it was synced; `None` where there is
    /// none yet.
    pub fn next_record(&mut self, wal: &Wal, until: Lsn) -> Result<Option<Record<'_>>> {
        let advanced = self.advance(wal, until);
        let Some((lsn, len)) = advanced.map_err(|e| self.or_missing(wal, e))? else {
            return Ok(None);
        };
        let frame = self.window.from(lsn);
        let payload = frame.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + len).unwrap_or_default();
        Ok(Some(Record { lsn, end: self.pos, payload }))
    }

    /// Moves to the first frame at or behind `from` that is whole, and before `until`; false where
    /// there is none. For places that need not be the start of a record: the beginning of a file.
    pub fn seek_frame(&mut self, wal: &Wal, from: Lsn, until: Lsn) -> Result<bool> {
        let until = until.min(wal.synced_lsn());
        self.seek(from.next_multiple_of(ALIGN as u64));
        loop {
            if self.pos >= until {
                return Ok(false);
            }
            match self.frame(wal, until).map_err(|e| self.or_missing(wal, e))? {
                Some(_) => return Ok(true),
                None => self.pos += ALIGN as u64,
            }
        }
    }

    /// Steps over one data frame: its position and payload length.
    fn advance(&mut self, wal: &Wal, until: Lsn) -> Result<Option<(Lsn, usize)>> {
        let synced = wal.synced_lsn().min(until);
        while self.pos < synced {
            let lsn = self.pos;
            let Some((kind, len)) = self.frame(wal, synced)? else {
                // A file that is left is synced in the middle of a record.
                return if synced < until { Ok(None) } else { Err(self.damage(wal)) };
            };
            self.pos = lsn + frame_bytes(len) as u64;
            debug_assert!(self.pos <= wal.next_lsn(), "what is read was appended");
            if kind == FrameKind::Data {
                return Ok(Some((lsn, len)));
            }
        }
        Ok(None)
    }

    /// The frame at the reader's position, which is then in memory as a whole; `None` where no valid
    /// one is there.
    fn frame(&mut self, wal: &Wal, until: Lsn) -> Result<Option<(FrameKind, usize)>> {
        let lsn = self.pos;
        let Some(salt) = self.salt(wal) else { return Ok(None) };
        if !self.fill(wal, salt, FRAME_HEADER_BYTES, until)? {
            return Ok(None);
        }
        let header = self.window.from(lsn).first_chunk();
        let Some(len) = header.and_then(|header| claimed_payload(header, lsn)) else {
            return Ok(None);
        };
        if !self.fill(wal, salt, frame_bytes(len), until)? {
            return Ok(None);
        }
        let frame = decode_frame(salt, lsn, self.window.from(lsn));
        Ok(frame.map(|Frame { kind, payload }| (kind, payload.len())))
    }

    /// The salt of the epoch that the reader's position is in. In another epoch nothing of what is in
    /// memory counts.
    fn salt(&mut self, wal: &Wal) -> Option<u64> {
        if let Some((salt, end)) = self.epoch
            && self.pos < end
        {
            return Some(salt);
        }
        let stretch = wal.stretch_at(self.pos)?;
        if self.epoch.is_some_and(|(salt, _)| salt != stretch.salt) {
            self.window.move_to(self.pos);
        }
        self.epoch = Some((stretch.salt, stretch.end));
        Some(stretch.salt)
    }

    fn fill(&mut self, wal: &Wal, salt: u64, need: usize, until: Lsn) -> Result<bool> {
        self.window.fill(&wal.os, salt, (self.pos, need), until, |lsn| wal.stretch_at(lsn))
    }

    /// What cannot be read may be of a file that is another segment by now.
    fn or_missing(&self, wal: &Wal, error: Error) -> Error {
        let (first, end) = (wal.first_lsn(), wal.next_lsn());
        if first > self.pos {
            return Error::Missing { dir: wal.dir.clone(), wanted: self.pos, first, end };
        }
        error
    }

    fn damage(&self, wal: &Wal) -> Error {
        let (lsn, what) = (self.pos, "a synced record is damaged");
        match wal.stretch_at(lsn) {
            Some(stretch) => {
                let offset = stretch.offset(lsn);
                Error::Corruption { file: stretch.path, offset, lsn, what }
            }
            None => Error::Corruption { file: wal.dir.clone(), offset: 0, lsn, what },
        }
    }
}

impl std::fmt::Debug for LiveReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveReader").field("pos", &self.pos).finish_non_exhaustive()
    }
}
