//! Replay: the frames of the log from a position to its torn tail.
//!
//! Memory grows only with bytes really read: a frame that claims 64 MiB costs nothing until the
//! bytes are there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crypt::{Cipher, KeyRing};
use os::{File, OpenOptions, Os};

use crate::compressed::Uncompressed;
use crate::directory::{Epoch, LogScan, read_up_to};
use crate::encrypted::{cipher_of, decrypt};
use crate::error::{Error, Result};
use crate::frame::{
    ALIGN, FRAME_HEADER_BYTES, FrameKind, claimed_payload, decode_frame, frame_bytes,
};
use crate::metrics::Metrics;
use crate::segment::{EpochKey, HEADER_BYTES};
use crate::writer::Wal;
use crate::{Lsn, WalOptions};

const CHUNK_BYTES: usize = 256 << 10;

/// One record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its position.
    pub lsn: Lsn,
    /// The position behind it: what [`Wal::append`] answered.
    pub end: Lsn,
    /// What was appended.
    pub payload: &'a [u8],
}

/// Reads a log; then, if wanted, becomes its writer. Reading changes nothing on disk.
pub struct Replay {
    os: Os,
    dir: PathBuf,
    options: WalOptions,
    metrics: Metrics,
    found: LogScan,
    /// Index of the epoch that holds `pos`; behind the last one at the end.
    epoch: usize,
    /// The next frame.
    pos: Lsn,
    /// Bytes from `buf_start` on, all of epoch `epoch`.
    buf: Vec<u8>,
    buf_start: Lsn,
    file: Option<(PathBuf, Arc<dyn File>)>,
    ended: bool,
    /// Everything before this is known to be on disk, by a mark or by who asked to seek.
    synced: Lsn,
    /// Where the log ended in something that is no whole record.
    torn: Option<TornTail>,
    keys: Option<Arc<KeyRing>>,
    /// The key of an epoch, by its index.
    cipher: Option<(usize, Cipher)>,
    /// The record that was read last, decrypted.
    decrypted: Vec<u8>,
    /// The same, uncompressed.
    uncompressed: Uncompressed,
}

/// What lies behind the log's last whole record: one that was being written when the server ended, or
/// one that was damaged since. Nothing on disk says that it was synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The position at which a record begins.
    pub lsn: Lsn,
    /// The file it is in.
    pub file: PathBuf,
    /// At which byte of it.
    pub offset: u64,
}

impl Replay {
    pub(crate) fn new(
        os: &Os,
        dir: &Path,
        options: WalOptions,
        metrics: Metrics,
        found: LogScan,
    ) -> Self {
        let pos = found.epochs.first().map_or(0, Epoch::first);
        Self {
            os: os.clone(),
            dir: dir.to_path_buf(),
            options,
            metrics,
            found,
            epoch: 0,
            pos,
            buf: Vec::new(),
            buf_start: pos,
            file: None,
            ended: false,
            synced: 0,
            torn: None,
            keys: None,
            cipher: None,
            decrypted: Vec::new(),
            uncompressed: Uncompressed::default(),
        }
    }

    /// Reads and writes an encrypted log with these keys. Without keys an encrypted log shows where its
    /// records are, and no record.
    ///
    /// # Errors
    /// [`Error::Keys`] where there are keys and the log is plain.
    pub fn with_keys(mut self, keys: Option<Arc<KeyRing>>) -> Result<Self> {
        if keys.is_some() && self.found.epochs.iter().any(|epoch| epoch.key().is_none()) {
            return Err(Error::Keys { dir: self.dir, is_encrypted: false });
        }
        self.keys = keys;
        Ok(self)
    }

    /// Whether records are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.found.epochs.iter().any(|epoch| epoch.key().is_some())
    }

    /// Another reader of the same log, at its beginning.
    #[must_use]
    pub fn again(&self) -> Self {
        let (options, metrics, found) = (self.options, self.metrics.clone(), self.found.clone());
        let keys = self.keys.clone();
        Self { keys, ..Self::new(&self.os, &self.dir, options, metrics, found) }
    }

    /// The first position the log still holds.
    pub fn first_lsn(&self) -> Lsn {
        self.found.epochs.first().map_or(0, Epoch::first)
    }

    /// Continues from `lsn`, which must be the start or end of a record: what a checkpoint noted.
    /// [`Error::Missing`] where the log does not hold it.
    pub fn seek(&mut self, lsn: Lsn) -> Result<()> {
        let (first, end) =
            (self.first_lsn(), self.found.epochs.last().map_or(0, |epoch| epoch.end));
        let missing = || Error::Missing { dir: self.dir.clone(), wanted: lsn, first, end };
        if lsn < first || lsn > end || !lsn.is_multiple_of(ALIGN as u64) {
            return Err(missing());
        }
        self.epoch = self.found.epochs.partition_point(|epoch| epoch.end <= lsn);
        self.move_to(lsn);
        self.ended = false;
        self.synced = self.synced.max(lsn);
        Ok(())
    }

    /// The next record, `None` at the log's end. Touches the disk.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        let Some((lsn, kind, len)) = self.advance()? else { return Ok(None) };
        let at = (lsn - self.buf_start) as usize + FRAME_HEADER_BYTES;
        let key = self.found.epochs.get(self.epoch).and_then(Epoch::key);
        if let Some(key) = key {
            if self.cipher.as_ref().is_none_or(|(epoch, _)| *epoch != self.epoch) {
                self.cipher = Some((self.epoch, self.cipher_of(lsn, key)?));
            }
            let (stored, plain) = (&self.buf[at..at + len], &mut self.decrypted);
            if !self.cipher.as_ref().is_some_and(|(_, cipher)| decrypt(cipher, lsn, stored, plain))
            {
                return Err(self.corruption(lsn, "a record does not decrypt"));
            }
        }
        let stored = if key.is_some() { &self.decrypted } else { &self.buf[at..at + len] };
        if kind != FrameKind::Compressed {
            return Ok(Some(Record { lsn, end: self.pos, payload: stored }));
        }
        // Looked at again below, for the error needs the whole reader, which what was read would borrow.
        if self.uncompressed.read(stored).is_none() {
            return Err(self.corruption(lsn, "a record cannot be uncompressed"));
        }
        Ok(Some(Record { lsn, end: self.pos, payload: self.uncompressed.last() }))
    }

    /// Steps over the next record without its payload: its position and the one behind it, `None` at the
    /// log's end. For who checks an encrypted log without its keys. Touches the disk.
    pub fn skip_record(&mut self) -> Result<Option<(Lsn, Lsn)>> {
        Ok(self.advance()?.map(|(lsn, ..)| (lsn, self.pos)))
    }

    fn cipher_of(&self, lsn: Lsn, key: EpochKey) -> Result<Cipher> {
        let Some(keys) = &self.keys else {
            return Err(Error::Keys { dir: self.dir.clone(), is_encrypted: true });
        };
        let missing = "a record is encrypted with a key that is not there";
        cipher_of(keys, key).ok_or_else(|| self.corruption(lsn, missing))
    }

    /// After [`Error::Corruption`]: goes on at the next valid record behind the damage and says
    /// where that is, `None` where there is none. For offline readers that name every damage; what
    /// is read behind a gap is no longer the log.
    pub fn skip_damage(&mut self) -> Result<Option<Lsn>> {
        let Some(epoch) = self.found.epochs.get(self.epoch) else { return Ok(None) };
        let end = epoch.end;
        let next = match self.next_frame_after(self.pos)? {
            Some((at, _)) => Some(at),
            None if self.epoch + 1 < self.found.epochs.len() => {
                self.epoch += 1;
                Some(end)
            }
            None => None,
        };
        match next {
            Some(at) => self.move_to(at),
            None => self.ended = true,
        }
        Ok(next)
    }

    /// Reads what is left and says where the log ends.
    pub fn find_end(&mut self) -> Result<Lsn> {
        while self.advance()?.is_some() {}
        Ok(self.pos)
    }

    /// What the log ended in, where its end was read and is not clean.
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// The file with which the log would begin, were its header not damaged: what is in it is not read.
    pub fn damaged_segment(&self) -> Option<&Path> {
        self.found.damaged.as_deref()
    }

    /// Reads what is left, begins a new epoch behind the last valid record and opens it for
    /// writing. Touches the disk. Needs room for a few KiB at most; on [`Error::NoSpace`] it may be
    /// called again.
    pub fn start_writing(&mut self) -> Result<Wal> {
        if self.keys.is_none() && self.is_encrypted() {
            return Err(Error::Keys { dir: self.dir.clone(), is_encrypted: true });
        }
        let end = self.find_end()?;
        self.sync_what_was_read(end)?;
        let (metrics, keys) = (self.metrics.clone(), self.keys.clone());
        Wal::start(&self.os, &self.dir, self.options, metrics, keys, (&self.found, end))
    }

    /// What replay returned may have been only in the kernel's memory, when just the process died.
    /// The new epoch says that all of it is on disk, so it must be. Where it was a failed sync that
    /// ended the process, the kernel no longer knows what is not on disk: what is not known to be
    /// there is written once more.
    fn sync_what_was_read(&self, end: Lsn) -> Result<()> {
        // segments before the last of an epoch were synced when they were full
        let Some(last) = self.found.segments().last() else { return Ok(()) };
        let failed = |what| move |e| Error::io(what, &last.path, e);
        let file = self.os.vfs.open(&last.path, OpenOptions::default()).map_err(failed("open"))?;
        let first = last.header.first_lsn;
        let body = |lsn: Lsn| HEADER_BYTES as u64 + (lsn - first);
        rewrite(&*file, 0, HEADER_BYTES as u64).map_err(failed("write again"))?;
        rewrite(&*file, body(self.synced.clamp(first, end.max(first))), body(end.max(first)))
            .map_err(failed("write again"))?;
        file.sync_all().map_err(failed("sync"))?;
        let synced = self.os.vfs.sync_dir(&self.dir);
        synced.map_err(|e| Error::io("sync", &self.dir, e))
    }

    /// Steps over one frame of data: its position, its kind and the length of what is stored.
    fn advance(&mut self) -> Result<Option<(Lsn, FrameKind, usize)>> {
        while !self.ended {
            let Some(epoch) = self.found.epochs.get(self.epoch) else {
                self.ended = true;
                break;
            };
            let (salt, end) = (epoch.salt(), epoch.end);
            if self.pos == end {
                self.epoch += 1;
                self.move_to(end);
                continue;
            }
            let lsn = self.pos;
            let Some(len) = self.frame_at(lsn)? else {
                self.end_or_corruption(lsn)?;
                self.ended = true;
                break;
            };
            let bytes = &self.buf[(lsn - self.buf_start) as usize..];
            let Some(frame) = decode_frame(salt, lsn, bytes) else {
                self.end_or_corruption(lsn)?;
                self.ended = true;
                break;
            };
            self.pos = lsn + frame_bytes(len) as u64;
            debug_assert!(self.pos <= end, "a frame ends inside its epoch");
            if frame.kind != FrameKind::Mark {
                return Ok(Some((lsn, frame.kind, len)));
            }
            self.synced = self.synced.max(frame.says_synced());
        }
        Ok(None)
    }

    fn move_to(&mut self, lsn: Lsn) {
        self.pos = lsn;
        self.buf.clear();
        self.buf_start = lsn;
    }

    /// Brings the whole frame that `lsn` claims to hold into the buffer; says its payload length.
    fn frame_at(&mut self, lsn: Lsn) -> Result<Option<usize>> {
        if !self.fill(lsn, FRAME_HEADER_BYTES)? {
            return Ok(None);
        }
        match self.claim_at(lsn) {
            Some(len) if self.fill(lsn, frame_bytes(len))? => Ok(Some(len)),
            _ => Ok(None),
        }
    }

    fn claim_at(&self, lsn: Lsn) -> Option<usize> {
        let bytes = self.buf.get((lsn - self.buf_start) as usize..)?;
        claimed_payload(bytes.first_chunk()?, lsn)
    }

    /// Makes the buffer hold `need` bytes from `from` on, forgetting what is before `from` where
    /// it must read; `false` where the epoch ends before.
    fn fill(&mut self, from: Lsn, need: usize) -> Result<bool> {
        let until = from + need as u64;
        while self.buf_start + (self.buf.len() as u64) < until {
            let behind = ((from - self.buf_start) as usize).min(self.buf.len());
            self.buf.drain(..behind);
            self.buf_start += behind as u64;
            let at = self.buf_start + self.buf.len() as u64;
            let epoch = &self.found.epochs[self.epoch];
            let Some(segment) = epoch.segment_at(at).filter(|_| at < epoch.end) else {
                return Ok(false);
            };
            let end = segment.header.end_lsn().min(epoch.end);
            let want = CHUNK_BYTES.min((end - at) as usize);
            let offset = HEADER_BYTES as u64 + (at - segment.header.first_lsn);
            let path = segment.path.clone();
            let file = self.open(&path)?;
            let old = self.buf.len();
            self.buf.resize(old + want, 0);
            let got = read_up_to(&*file, &mut self.buf[old..], offset);
            let got = got.map_err(|e| Error::io("read", &path, e))?;
            self.buf.truncate(old + got);
            if got < want && at + (got as u64) < until {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn open(&mut self, path: &Path) -> Result<Arc<dyn File>> {
        if let Some((open, file)) = &self.file
            && open == path
        {
            return Ok(file.clone());
        }
        let file = self.os.vfs.open(path, OpenOptions::read_only());
        let file = file.map_err(|e| Error::io("open", path, e))?;
        self.file = Some((path.to_path_buf(), file.clone()));
        Ok(file)
    }

    /// No valid frame is at `lsn`. Fine at a torn tail; corruption where all of it was synced.
    fn end_or_corruption(&mut self, lsn: Lsn) -> Result<()> {
        if self.epoch + 1 < self.found.epochs.len() {
            return Err(self.corruption(lsn, "a record of an earlier epoch is damaged"));
        }
        // a frame that reaches past what was synced may be torn there; without a believable
        // header, at least its header must have been synced
        let header_end = lsn + FRAME_HEADER_BYTES as u64;
        let claim = self.fill(lsn, FRAME_HEADER_BYTES)?.then(|| self.claim_at(lsn)).flatten();
        let mut end = claim.map_or(header_end, |len| lsn + frame_bytes(len) as u64);
        let mut synced = self.found.epochs[self.epoch].last_segment_first();
        let mut from = lsn;
        while end > synced {
            let Some((at, marks)) = self.next_frame_after(from)? else { break };
            // a frame inside the damaged one: its length is a lie
            if at < end {
                end = header_end;
            }
            synced = synced.max(marks);
            from = at;
        }
        let followed = from > lsn;
        self.move_to(lsn);
        if end <= synced {
            return Err(self.corruption(lsn, "a synced record is damaged"));
        }
        // What was never written are zeros or old frames, which name other positions.
        if claim.is_some() || followed {
            let (file, offset) = self.place(lsn);
            self.torn = Some(TornTail { lsn, file, offset });
        }
        Ok(())
    }

    /// The first valid frame behind `from` in this epoch, with where it says the log was synced (0
    /// for data). A frame names its own position, so nearly every other place is passed over by
    /// one comparison.
    fn next_frame_after(&mut self, from: Lsn) -> Result<Option<(Lsn, Lsn)>> {
        let salt = self.found.epochs[self.epoch].salt();
        let mut lsn = from + ALIGN as u64;
        while self.fill(lsn, FRAME_HEADER_BYTES)? {
            let names_itself = |(i, word): (usize, &[u8])| {
                let at = lsn + (i * ALIGN) as u64;
                (word == at.to_le_bytes()).then_some(at)
            };
            // the position is the second word of a frame
            let second_words = &self.buf[(lsn - self.buf_start) as usize + ALIGN..];
            let words = second_words.chunks_exact(ALIGN);
            let looked_at = words.len();
            let Some(at) = words.enumerate().find_map(names_itself) else {
                lsn += (looked_at * ALIGN) as u64;
                continue;
            };
            if let Some(len) = self.frame_at(at)? {
                let start = (at - self.buf_start) as usize;
                let bytes = &self.buf[start..start + frame_bytes(len)];
                if let Some(frame) = decode_frame(salt, at, bytes) {
                    return Ok(Some((at, frame.says_synced())));
                }
            }
            lsn = at + ALIGN as u64;
        }
        Ok(None)
    }

    fn corruption(&self, lsn: Lsn, what: &'static str) -> Error {
        let (file, offset) = self.place(lsn);
        Error::Corruption { file, offset, lsn, what }
    }

    /// The file that holds a position, and its byte there.
    fn place(&self, lsn: Lsn) -> (PathBuf, u64) {
        let segment = self.found.epochs.get(self.epoch).and_then(|epoch| epoch.segment_at(lsn));
        let (file, first) =
            segment.map_or((self.dir.clone(), lsn), |s| (s.path.clone(), s.header.first_lsn));
        (file, HEADER_BYTES as u64 + (lsn - first))
    }
}

/// Writes bytes `from..to` of a file over themselves.
fn rewrite(file: &dyn File, mut from: u64, to: u64) -> std::io::Result<()> {
    let mut bytes = vec![0; CHUNK_BYTES.min((to - from) as usize)];
    while from < to {
        let want = bytes.len().min((to - from) as usize);
        let got = read_up_to(file, &mut bytes[..want], from)?;
        file.write_all_at(&bytes[..got], from)?;
        if got < want {
            return Ok(());
        }
        from += got as u64;
    }
    Ok(())
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("pos", &self.pos).finish_non_exhaustive()
    }
}
