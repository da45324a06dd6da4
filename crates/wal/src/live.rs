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

use crypt::Cipher;

use crate::Lsn;
use crate::compressed::Uncompressed;
use crate::directory::Segment;
use crate::encrypted::{cipher_of, decrypt};
use crate::error::{Error, Result};
use crate::frame::{
    ALIGN, FRAME_HEADER_BYTES, Frame, FrameKind, MAX_STORED_BYTES, claimed_payload, decode_frame,
    frame_bytes,
};
use crate::reader::Record;
use crate::segment::{EpochKey, HEADER_BYTES};
use crate::window::{READ_BYTES, Stretch, Window};
use crate::writer::Wal;
use std::path::PathBuf;

/// A place in a log in use, and what is read ahead there. It belongs to one opening of the log.
#[derive(Default)]
pub struct LiveReader {
    /// The next frame.
    pos: Lsn,
    window: Window,
    /// The epoch that holds `pos`, up to a position.
    epoch: Option<KnownEpoch>,
    /// The key of the epoch with a salt.
    cipher: Option<(u64, Cipher)>,
    /// The record that was read last, decrypted.
    decrypted: Vec<u8>,
    /// The same, uncompressed.
    uncompressed: Uncompressed,
}

/// What a reader knows of an epoch. What it has in memory it can read by that alone: the file may be
/// trimmed by then.
#[derive(Clone, Copy)]
struct KnownEpoch {
    salt: u64,
    key: Option<EpochKey>,
    /// Where a file of it ends.
    end: Lsn,
}

/// A file of the log, for who copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncedFile {
    /// Where it lies.
    pub path: PathBuf,
    /// What of it is synced; what is behind is not to be copied.
    pub bytes: u64,
    /// Bytes that the copy has to be long, with zeros behind what is copied.
    pub length: u64,
}

impl Wal {
    /// Positions at which the files of the log begin, ascending; then the one at which the last file
    /// is full.
    pub fn segment_bounds(&self) -> Vec<Lsn> {
        let writer = self.writer.lock();
        let firsts = writer.segments.iter().map(|segment| segment.header.first_lsn);
        firsts.chain(writer.segments.back().map(|last| last.header.end_lsn())).collect()
    }

    /// What a copy of the log needs from `from` on: all that is synced now, and nothing behind it.
    pub fn synced_files(&self, from: Lsn) -> Vec<SyncedFile> {
        let writer = self.writer.lock();
        let synced = self.synced_lsn();
        let needed = |(segment, _): &(&Segment, Lsn)| {
            segment.header.end_lsn() > from && segment.header.first_lsn <= synced
        };
        let file = |(segment, end): (&Segment, Lsn)| {
            let header = segment.header;
            let body = synced.min(header.end_lsn()).min(end) - header.first_lsn;
            let head = HEADER_BYTES as u64;
            let (bytes, length) = (head + body, head + header.body_bytes);
            SyncedFile { path: segment.path.clone(), bytes, length }
        };
        // Where an epoch has ended in a file, which may be no longer than that, the next one begins.
        let ends = writer.segments.iter().skip(1).map(|next| next.header.first_lsn);
        let ends = ends.chain([Lsn::MAX]);
        writer.segments.iter().zip(ends).filter(needed).map(file).collect()
    }

    /// Whether the log begins here and was never cut, so that a frame begins here.
    fn begins_at(&self, lsn: Lsn) -> bool {
        let writer = self.writer.lock();
        let first = writer.segments.front().map(|first| first.header);
        first.is_some_and(|first| first.previous == 0 && first.first_lsn == lsn)
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
            key: header.key,
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
        (self.epoch, self.cipher) = (None, None);
        (self.decrypted, self.uncompressed) = (Vec::new(), Uncompressed::default());
        self.window.park(self.pos);
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.window.memory_bytes() + self.decrypted.capacity() + self.uncompressed.memory_bytes()
    }

    /// The next record before `until`, the end of a record, if it was synced; `None` where there is
    /// none yet.
    pub fn next_record(&mut self, wal: &Wal, until: Lsn) -> Result<Option<Record<'_>>> {
        let advanced = self.advance(wal, until);
        let Some((lsn, kind, len)) = advanced.map_err(|e| self.or_missing(wal, e))? else {
            return Ok(None);
        };
        if wal.keys.is_some() {
            self.decrypt(wal, lsn, len)?;
        }
        let stored = match wal.keys {
            Some(_) => &self.decrypted,
            None => stored_payload(&self.window, lsn, len),
        };
        if kind != FrameKind::Compressed {
            return Ok(Some(Record { lsn, end: self.pos, payload: stored }));
        }
        if len <= READ_BYTES {
            self.uncompressed.keep(8 * READ_BYTES);
        }
        let plain = self.uncompressed.read(stored);
        let payload = plain.ok_or_else(|| damage(wal, lsn, "a record cannot be uncompressed"))?;
        Ok(Some(Record { lsn, end: self.pos, payload }))
    }

    fn decrypt(&mut self, wal: &Wal, lsn: Lsn, len: usize) -> Result<()> {
        let Some(epoch) = self.epoch else { return Err(self.damage(wal)) };
        if self.cipher.as_ref().is_none_or(|(of, _)| *of != epoch.salt) {
            let keys = wal.keys.as_ref().zip(epoch.key);
            let cipher = keys.and_then(|(keys, key)| cipher_of(keys, key));
            self.cipher = cipher.map(|cipher| (epoch.salt, cipher));
        }
        if len <= READ_BYTES && self.decrypted.capacity() > 2 * READ_BYTES {
            self.decrypted = Vec::new();
        }
        let (stored, plain) = (stored_payload(&self.window, lsn, len), &mut self.decrypted);
        if !self.cipher.as_ref().is_some_and(|(_, cipher)| decrypt(cipher, lsn, stored, plain)) {
            return Err(damage(wal, lsn, "a record does not decrypt"));
        }
        Ok(())
    }

    /// Moves to the first frame that begins at or behind `from`, and before `until`; false where there is
    /// none. For places that need not be the start of a record: the beginning of a file. What is before
    /// it in the log says where that frame begins, so that a damaged one is met and not left out.
    /// Where a log that was cut begins with `from` nothing says so: then it is the first that is whole.
    pub fn seek_frame(&mut self, wal: &Wal, from: Lsn, until: Lsn) -> Result<bool> {
        let until = until.min(wal.synced_lsn());
        let from = from.next_multiple_of(ALIGN as u64);
        self.seek(from);
        let sought = self.first_frame(wal, from, until);
        sought.map_err(|e| self.or_missing(wal, e))
    }

    fn first_frame(&mut self, wal: &Wal, from: Lsn, until: Lsn) -> Result<bool> {
        if from >= until {
            return Ok(false);
        }
        if self.frame(wal, until)?.is_some() {
            return Ok(true);
        }
        if let Some(start) = self.told_before(wal, from, until)? {
            self.seek(start);
            return Ok(start < until);
        }
        self.seek(from);
        if wal.begins_at(from) { Ok(true) } else { self.next_whole(wal, until) }
    }

    /// Moves on to the next frame that is whole, and before `until`: over a damaged one, for who has
    /// told of it. False where there is none.
    pub fn skip_damage(&mut self, wal: &Wal, until: Lsn) -> Result<bool> {
        let until = until.min(wal.synced_lsn());
        self.pos += ALIGN as u64;
        let found = self.next_whole(wal, until);
        found.map_err(|e| self.or_missing(wal, e))
    }

    fn next_whole(&mut self, wal: &Wal, until: Lsn) -> Result<bool> {
        while self.pos < until {
            if self.frame(wal, until)?.is_some() {
                return Ok(true);
            }
            self.pos += ALIGN as u64;
        }
        Ok(false)
    }

    /// Where the first frame at or behind `from` begins, as what is before it says; `None` where the log
    /// holds no frame that begins before.
    fn told_before(&mut self, wal: &Wal, from: Lsn, until: Lsn) -> Result<Option<Lsn>> {
        let Some(here) = wal.stretch_at(from) else { return Ok(None) };
        let lowest = from.saturating_sub(frame_bytes(MAX_STORED_BYTES) as u64);
        let (mut high, mut is_damaged) = (from, false);
        while high > lowest
            && let Some(stretch) = wal.stretch_at(high - ALIGN as u64)
        {
            if stretch.salt != here.salt {
                // An epoch begins with a frame.
                return self.step_over(wal, high, from, until).map(Some);
            }
            let low = high.saturating_sub(READ_BYTES as u64).max(lowest).max(stretch.first);
            for start in self.candidates(wal, (low, high), until)?.into_iter().rev() {
                self.seek(start);
                if let Some((_, len)) = self.frame(wal, until)? {
                    let end = start + frame_bytes(len) as u64;
                    return self.step_over(wal, end, from, until).map(Some);
                }
                is_damaged = true;
            }
            high = low;
        }
        self.seek(from);
        if is_damaged { Err(self.damage(wal)) } else { Ok(None) }
    }

    /// From the end of a whole frame, or the start of an epoch, up to `from` or beyond: over frames that
    /// are damaged but for their headers, as long as a whole one proves those right.
    fn step_over(&mut self, wal: &Wal, start: Lsn, from: Lsn, until: Lsn) -> Result<Lsn> {
        self.seek(start);
        while self.pos < from {
            let Some(len) = self.claimed(wal, until)? else { return Err(self.damage(wal)) };
            self.pos += frame_bytes(len) as u64;
        }
        let end = self.pos;
        if end > start && self.frame(wal, until)?.is_none() {
            self.seek(start);
            return Err(self.damage(wal));
        }
        Ok(end)
    }

    /// Places between two positions at which a frame's header may stand: it says its own position.
    fn candidates(&mut self, wal: &Wal, (low, high): (Lsn, Lsn), until: Lsn) -> Result<Vec<Lsn>> {
        self.seek(low);
        let Some(salt) = self.salt(wal) else { return Ok(Vec::new()) };
        let wanted = usize::try_from(high - low).unwrap_or(READ_BYTES) + FRAME_HEADER_BYTES;
        // At the end of what is synced there is less.
        let _whole = self.fill(wal, salt, wanted, until)?;
        let bytes = self.window.from(low);
        let places =
            (low..high).step_by(ALIGN).zip(bytes.windows(FRAME_HEADER_BYTES).step_by(ALIGN));
        let claims = places.filter(|(at, bytes)| {
            bytes.first_chunk().is_some_and(|header| claimed_payload(header, *at).is_some())
        });
        Ok(claims.map(|(at, _)| at).collect())
    }

    /// Steps over one frame of data: its position, its kind and the length of what is stored.
    fn advance(&mut self, wal: &Wal, until: Lsn) -> Result<Option<(Lsn, FrameKind, usize)>> {
        let synced = wal.synced_lsn().min(until);
        while self.pos < synced {
            let lsn = self.pos;
            let Some((kind, len)) = self.frame(wal, synced)? else {
                // A file that is left is synced in the middle of a record.
                return if synced < until { Ok(None) } else { Err(self.damage(wal)) };
            };
            self.pos = lsn + frame_bytes(len) as u64;
            debug_assert!(self.pos <= wal.next_lsn(), "what is read was appended");
            if kind != FrameKind::Mark {
                return Ok(Some((lsn, kind, len)));
            }
        }
        Ok(None)
    }

    /// The frame at the reader's position, which is then in memory as a whole; `None` where no valid
    /// one is there.
    fn frame(&mut self, wal: &Wal, until: Lsn) -> Result<Option<(FrameKind, usize)>> {
        let lsn = self.pos;
        let Some(len) = self.claimed(wal, until)? else { return Ok(None) };
        let Some(salt) = self.salt(wal) else { return Ok(None) };
        if !self.fill(wal, salt, frame_bytes(len), until)? {
            return Ok(None);
        }
        let frame = decode_frame(salt, lsn, self.window.from(lsn));
        Ok(frame.map(|Frame { kind, payload }| (kind, payload.len())))
    }

    /// What the header at the reader's position says of the length, unchecked; `None` where it is none
    /// of this position.
    fn claimed(&mut self, wal: &Wal, until: Lsn) -> Result<Option<usize>> {
        let lsn = self.pos;
        let Some(salt) = self.salt(wal) else { return Ok(None) };
        if !self.fill(wal, salt, FRAME_HEADER_BYTES, until)? {
            return Ok(None);
        }
        let header = self.window.from(lsn).first_chunk();
        Ok(header.and_then(|header| claimed_payload(header, lsn)))
    }

    /// The salt of the epoch that the reader's position is in. In another epoch nothing of what is in
    /// memory counts.
    fn salt(&mut self, wal: &Wal) -> Option<u64> {
        if let Some(epoch) = self.epoch
            && self.pos < epoch.end
        {
            return Some(epoch.salt);
        }
        let Stretch { salt, key, end, .. } = wal.stretch_at(self.pos)?;
        if self.epoch.is_some_and(|epoch| epoch.salt != salt) {
            self.window.move_to(self.pos);
        }
        self.epoch = Some(KnownEpoch { salt, key, end });
        Some(salt)
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
        damage(wal, self.pos, "a synced record is damaged")
    }
}

fn damage(wal: &Wal, lsn: Lsn, what: &'static str) -> Error {
    match wal.stretch_at(lsn) {
        Some(stretch) => {
            let offset = stretch.offset(lsn);
            Error::Corruption { file: stretch.path, offset, lsn, what }
        }
        None => Error::Corruption { file: wal.dir.clone(), offset: 0, lsn, what },
    }
}

/// The payload of the frame at `lsn`, which is in memory.
fn stored_payload(window: &Window, lsn: Lsn, len: usize) -> &[u8] {
    let frame = window.from(lsn);
    frame.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + len).unwrap_or_default()
}

impl std::fmt::Debug for LiveReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveReader").field("pos", &self.pos).finish_non_exhaustive()
    }
}
