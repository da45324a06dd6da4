//! Appending records to the buffer in memory, where there are files for them.

use std::sync::Arc;

use os::sync::atomic::Ordering;

use super::{Place, Priority, TAIL, Tail, Wal};
use crate::compressed::{Body, NewRecord};
use crate::encrypted::stored_bytes;
use crate::error::{Error, Result};
use crate::frame::{ALIGN, FrameKind, MARK_BYTES, encode_frame, frame_bytes, frame_header};
use crate::{Lsn, MAX_PAYLOAD_BYTES, WalOptions};

/// One part in so many of a segment file is kept for records that give space back.
const KEPT_BACK: u64 = 8;

/// What a record would need first.
enum Need {
    Nothing,
    /// The buffer is full.
    WriteOut,
    /// Files up to a position.
    Files(Lsn),
}

fn is_too_long(bytes: usize) -> bool {
    bytes > MAX_PAYLOAD_BYTES
}

fn too_long(bytes: usize) -> Error {
    Error::TooLong { bytes, most: MAX_PAYLOAD_BYTES }
}

impl Wal {
    /// Appends the concatenation of `pieces` as one record and answers the position behind it,
    /// which is what [`Wal::sync_to`] wants. In memory only, unless the buffer is full: then it
    /// writes (and does not sync) first; or there is no file for it yet, which is made first.
    /// On [`Error::NoSpace`] nothing is appended.
    pub fn append(&self, pieces: &[&[u8]]) -> Result<Lsn> {
        self.append_record(&NewRecord::plain(pieces))
    }

    /// The same of a record that may be compressed.
    pub fn append_record(&self, record: &NewRecord<'_>) -> Result<Lsn> {
        loop {
            if let Some(place) = self.try_append(record, Priority::Ordinary)? {
                return Ok(place.end);
            }
            self.make_room(record, Priority::Ordinary)?;
        }
    }

    /// The long part of a record, compressed where it is long enough for that. It takes a while: before the locks under
    /// which the record is appended.
    pub fn body<'a>(&self, bytes: &'a [u8]) -> Body<'a> {
        if bytes.len() >= self.options.compress_from {
            Body::compressed(bytes, &self.compressors)
        } else {
            Body::plain(bytes)
        }
    }

    /// The same, where `block` is its compressed form already: one frame of zstd that becomes these bytes.
    pub fn body_of<'a>(&self, bytes: &'a [u8], block: &Arc<Vec<u8>>) -> Body<'a> {
        let is_long = bytes.len() >= self.options.compress_from;
        let taken = if is_long { Body::with_block(bytes, block) } else { None };
        taken.unwrap_or_else(|| self.body(bytes))
    }

    /// As [`Wal::append_record`], but where there is no room it appends nothing and answers nothing:
    /// for whoever would hold others up while it waits. [`Wal::make_room`] is what to call then.
    pub fn try_append(&self, record: &NewRecord<'_>, priority: Priority) -> Result<Option<Place>> {
        self.check_running()?;
        if is_too_long(record.bytes()) {
            return Err(too_long(record.bytes()));
        }
        let crc = self.checksum(record);
        let mut tail = self.tail.lock();
        let start = tail.end;
        let place = self.append_to_tail(&mut tail, record, crc, priority);
        drop(tail);
        if let Some(place) = place {
            self.count_appended(1, place.end - start, record.bytes());
        }
        Ok(place)
    }

    /// As [`Wal::try_append`], of several records, one behind the other: of as many of the first ones as there is room for.
    /// `told` hears each one's place, under the lock of the buffer. Where one is too long nothing is appended.
    pub fn try_append_all(
        &self,
        records: &[NewRecord<'_>],
        priority: Priority,
        mut told: impl FnMut(Place),
    ) -> Result<()> {
        self.check_running()?;
        if let Some(bytes) = records.iter().map(NewRecord::bytes).find(|bytes| is_too_long(*bytes))
        {
            return Err(too_long(bytes));
        }
        let (mut count, mut bytes) = (0, 0);
        let mut tail = self.tail.lock();
        let start = tail.end;
        for record in records {
            // Few others wait for the lock: who appends several is the only one who appends.
            let crc = self.checksum(record);
            let Some(place) = self.append_to_tail(&mut tail, record, crc, priority) else { break };
            told(place);
            count += 1;
            bytes += record.bytes();
        }
        let framed = tail.end - start;
        drop(tail);
        if count > 0 {
            self.count_appended(count, framed, bytes);
        }
        Ok(())
    }

    /// The checksum of what stands in the log of a record. Of an encrypted log it is known when the record has been encrypted.
    fn checksum(&self, record: &NewRecord<'_>) -> u32 {
        let mut crc = 0;
        if self.key.is_none() {
            record.each_piece(|piece| crc = crc32c::crc32c_append(crc, piece));
        }
        crc
    }

    fn append_to_tail(
        &self,
        tail: &mut Tail,
        record: &NewRecord<'_>,
        crc: u32,
        priority: Priority,
    ) -> Option<Place> {
        let len = record.stored_bytes();
        let stored = stored_bytes(self.key.is_some(), len);
        if !matches!(self.need(tail, len, priority), Need::Nothing) {
            return None;
        }
        if tail.reserve(MARK_BYTES + frame_bytes(stored), self.options.buffer_bytes) {
            self.memory[TAIL].store(tail.buf.capacity() as u64, Ordering::Relaxed);
        }
        tail.mark(self.salt, self.synced.load(Ordering::Acquire));
        let begin = tail.end;
        let header = frame_header(record.kind(), self.salt, begin, stored, crc);
        tail.buf.extend_from_slice(&header);
        record.each_piece(|piece| tail.buf.extend_from_slice(piece));
        let padded = (tail.buf.len() + (stored - len)).next_multiple_of(ALIGN);
        tail.buf.resize(padded, 0);
        tail.end += frame_bytes(stored) as u64;
        tail.data_end = tail.end;
        let end = tail.end;
        debug_assert!(end.is_multiple_of(ALIGN as u64), "frames end on whole words");
        let limit = self.limit.load(Ordering::Acquire);
        debug_assert!(end <= limit, "what is in the buffer has files");
        Some(Place { begin, end })
    }

    fn count_appended(&self, records: u64, framed: u64, bytes: usize) {
        self.metrics.appends.add(records);
        self.metrics.append_bytes.add(framed);
        self.metrics.record_bytes.add(bytes as u64);
    }

    /// Returns when there is room for a record, in the buffer, which it writes out
    /// where it must, and in files, which it makes. Others may take that room first.
    #[cold]
    pub fn make_room(&self, record: &NewRecord<'_>, priority: Priority) -> Result<()> {
        let len = record.stored_bytes();
        let started = self.os.clock.monotonic();
        loop {
            let need = self.need(&self.tail.lock(), len, priority);
            match need {
                Need::Nothing => break,
                Need::WriteOut => self.write_out()?,
                Need::Files(until) => self.make_files(until, priority)?,
            }
        }
        self.metrics.waited_for_buffer(self.os.clock.monotonic().saturating_sub(started));
        Ok(())
    }

    /// What is in the buffer always has files, so that what a caller was told is appended can be
    /// written whether or not the disk has become full.
    fn need(&self, tail: &Tail, len: usize, priority: Priority) -> Need {
        if tail.is_full(len, &self.options) {
            return Need::WriteOut;
        }
        let stored = stored_bytes(self.key.is_some(), len);
        let until = tail.end + (MARK_BYTES + frame_bytes(stored)) as u64 + self.kept_back(priority);
        if until > self.limit.load(Ordering::Acquire) { Need::Files(until) } else { Need::Nothing }
    }

    /// What a record may not use of the files that are there.
    pub(super) fn kept_back(&self, priority: Priority) -> u64 {
        match priority {
            Priority::Ordinary => self.options.file_bytes() / KEPT_BACK,
            Priority::GivesSpaceBack => 0,
        }
    }
}

impl Tail {
    fn is_full(&self, len: usize, options: &WalOptions) -> bool {
        !self.buf.is_empty() && self.buf.len() + len > options.buffer_bytes
    }

    /// Makes room for `more` bytes: by doubling up to the buffer's size, and beyond it, which only a
    /// record larger than that needs, no more than they take. True where the buffer grew.
    fn reserve(&mut self, more: usize, buffer_bytes: usize) -> bool {
        let (wanted, held) = (self.buf.len() + more, self.buf.capacity());
        if wanted <= held {
            return false;
        }
        let room = wanted.max((held * 2).min(buffer_bytes));
        self.buf.reserve_exact(room - self.buf.len());
        true
    }

    /// Appends a mark where more records were synced than the last mark says.
    pub(super) fn mark(&mut self, salt: u64, synced: Lsn) {
        debug_assert!(synced <= self.end, "only what was appended is synced");
        if synced.min(self.data_end) > self.marked {
            let start = self.buf.len();
            encode_frame(FrameKind::Mark, salt, self.end, &synced.to_le_bytes(), &mut self.buf);
            self.end += (self.buf.len() - start) as u64;
            self.marked = synced;
        }
    }
}
