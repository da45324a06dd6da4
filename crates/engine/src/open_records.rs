//! The records of a member's log that no entry closes yet, in parts; and the records of the newest entries, in
//! memory.
//!
//! What is open is a queue of parts, each of which becomes the records of one entry. A part is full where the
//! next record would make it longer than [`PART_BYTES`] (a longer record is a part of its own), and complete
//! when it was gathered: consensus then knows its bytes and checksum, so nothing may come to it.
//!
//! Always true: parts stand in the order of their records; those that were gathered are the first ones. Copies
//! of records are kept within a bound, and never needed: the log has them. But it gives out only what is on
//! disk, and an entry is sent while it is being synced.

use crate::entry_bytes::{CompressedPart, EntryBytes};
use crate::written::WrittenDictionaries;
use std::collections::VecDeque;
use std::sync::Arc;
use wal::Body;

/// Bytes of records in one part.
pub(crate) const PART_BYTES: u64 = 4 << 20;

/// A part begins with memory for so many bytes at most.
const MOST_USUAL: usize = 64 << 10;

/// What a leader tells consensus of the records of its next entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatheredRecords {
    /// The last commit up to their end.
    pub last_timestamp: u64,
    /// The last cluster time up to their end.
    pub last_time: u64,
    /// Their bytes, as members send them to each other.
    pub bytes: u64,
    /// The crc32c of those.
    pub checksum: u32,
}

/// Records that are, or will be, of one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Its first record.
    pub(crate) start: u64,
    /// Behind its last one.
    pub(crate) until: u64,
    /// The checksum of those of which there is a copy is taken when they are gathered.
    pub(crate) records: GatheredRecords,
    /// A copy of them.
    copy: Option<RecordsCopy>,
}

/// A copy of records, and what the log has compressed of them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RecordsCopy {
    bytes: Vec<u8>,
    compressed: Vec<CompressedPart>,
}

impl RecordsCopy {
    fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), compressed: Vec::new() }
    }

    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> u64 {
        let blocks: usize = self.compressed.iter().map(|part| part.block.len()).sum();
        (self.bytes.len() + blocks) as u64
    }

    fn append(&mut self, record: &OpenRecord<'_>) {
        self.bytes.extend_from_slice(&record.length());
        self.bytes.extend_from_slice(record.head);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record.body.bytes());
        if let Some(block) = record.body.block() {
            let range = start..self.bytes.len();
            self.compressed.push(CompressedPart { range, block: Arc::clone(block) });
        }
    }

    fn into_entry(mut self) -> EntryBytes {
        if self.bytes.capacity() > self.bytes.len().saturating_mul(2) {
            self.bytes.shrink_to_fit();
        }
        EntryBytes::new(self.bytes, self.compressed)
    }
}

/// The records of an entry, in memory.
struct Kept {
    index: u64,
    records: EntryBytes,
    writes_to: WrittenDictionaries,
}

/// A record as it is taken in.
pub(crate) struct OpenRecord<'a> {
    /// Where it begins and ends in the log.
    pub(crate) place: (u64, u64),
    /// The first of its bytes, as members send them to each other.
    pub(crate) head: &'a [u8],
    /// The rest of them.
    pub(crate) body: &'a Body<'a>,
    /// The last commit up to its end, and its last time.
    pub(crate) newest: (u64, u64),
}

impl OpenRecord<'_> {
    fn len(&self) -> usize {
        self.head.len() + self.body.bytes().len()
    }

    /// What stands before its bytes.
    fn length(&self) -> [u8; 4] {
        u32::try_from(self.len()).unwrap_or(u32::MAX).to_le_bytes()
    }

    /// The memory that a copy of it takes.
    fn copy_bytes(&self) -> u64 {
        let block = self.body.block().map_or(0, |block| block.len());
        (4 + self.len() + block) as u64
    }
}

/// See above.
pub(crate) struct OpenRecords {
    parts: VecDeque<Part>,
    gathered: usize,
    part_bytes: u64,
    kept: VecDeque<Kept>,
    /// Bytes of copies, of parts and of entries.
    copied: u64,
    most_copied: u64,
    /// Bytes of the last part of this member's that was closed, and a bound of them: the next may be as long.
    usual: usize,
}

impl Default for OpenRecords {
    fn default() -> Self {
        Self::new(PART_BYTES, 0)
    }
}

impl OpenRecords {
    pub(crate) fn new(part_bytes: u64, most_copied: u64) -> Self {
        let (parts, kept) = (VecDeque::new(), VecDeque::new());
        Self { parts, gathered: 0, part_bytes, kept, copied: 0, most_copied, usual: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Where the first record begins.
    pub(crate) fn start(&self) -> Option<u64> {
        self.parts.front().map(|part| part.start)
    }

    /// Bytes of records that are not gathered.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().skip(self.gathered).map(|part| part.records.bytes).sum()
    }

    /// A record was appended to the log.
    pub(crate) fn append(&mut self, record: &OpenRecord<'_>) {
        let bytes = 4 + record.len() as u64;
        let fits = |part: &Part| part.records.bytes + bytes <= self.part_bytes;
        let has_room = self.parts.len() > self.gathered && self.parts.back().is_some_and(fits);
        let (start, until) = record.place;
        let copy_bytes = record.copy_bytes();
        let keeps = self.make_room(copy_bytes);
        if !has_room {
            let records =
                GatheredRecords { last_timestamp: 0, last_time: 0, bytes: 0, checksum: 0 };
            let copy = Some(RecordsCopy::with_room(self.usual));
            self.parts.push_back(Part { start, until, records, copy });
        }
        let Some(part) = self.parts.back_mut() else { return };
        part.records.bytes += bytes;
        (part.records.last_timestamp, part.records.last_time) = record.newest;
        part.until = until;
        if !keeps && let Some(copy) = part.copy.take() {
            self.copied -= copy.memory_bytes();
            part.records.checksum = crc32c::crc32c(&copy.bytes);
        }
        if let Some(copy) = &mut part.copy {
            copy.append(record);
            self.copied += copy_bytes;
        } else {
            let checksum = &mut part.records.checksum;
            for piece in [&record.length(), record.head, record.body.bytes()] {
                *checksum = crc32c::crc32c_append(*checksum, piece);
            }
        }
    }

    /// A record of another member's entry was appended to the log, which is so long as members send it. All of that entry
    /// is with who appends it: see [`OpenRecords::close_as`].
    pub(crate) fn note_sent(&mut self, place: (u64, u64), len: usize, newest: (u64, u64)) {
        let (start, until) = place;
        if self.parts.is_empty() {
            let records =
                GatheredRecords { last_timestamp: 0, last_time: 0, bytes: 0, checksum: 0 };
            self.parts.push_back(Part { start, until, records, copy: None });
        }
        let Some(part) = self.parts.back_mut() else { return };
        part.until = until;
        part.records.bytes += 4 + len as u64;
        (part.records.last_timestamp, part.records.last_time) = newest;
    }

    /// Lets go of entries' records until so many bytes more may be kept; false where they may not.
    fn make_room(&mut self, bytes: u64) -> bool {
        while self.copied + bytes > self.most_copied
            && let Some(oldest) = self.kept.pop_front()
        {
            self.copied -= oldest.records.memory_bytes() as u64;
        }
        self.copied + bytes <= self.most_copied
    }

    /// The next part that was not gathered is now.
    pub(crate) fn gather(&mut self) -> Option<GatheredRecords> {
        let next = self.parts.get_mut(self.gathered)?;
        if let Some(copy) = &next.copy {
            next.records.checksum = crc32c::crc32c(&copy.bytes);
        }
        self.gathered += 1;
        Some(next.records)
    }

    /// The last commit of what was gathered; `None` where nothing is that was not closed.
    pub(crate) fn gathered_to(&self) -> Option<u64> {
        let last = self.parts.get(self.gathered.checked_sub(1)?)?;
        Some(last.records.last_timestamp)
    }

    /// All parts are as if they had not been gathered.
    pub(crate) fn ungather(&mut self) {
        self.gathered = 0;
    }

    /// The part that is closed next.
    pub(crate) fn first(&self) -> Option<&Part> {
        self.parts.front()
    }

    /// The part that is closed next, with its checksum, whether it was gathered or not.
    pub(crate) fn describe_first(&mut self) -> Option<&Part> {
        let is_gathered = self.gathered > 0;
        let first = self.parts.front_mut()?;
        if !is_gathered && let Some(copy) = &first.copy {
            first.records.checksum = crc32c::crc32c(&copy.bytes);
        }
        Some(first)
    }

    /// The first part has become the entry `index`.
    pub(crate) fn close(&mut self, index: u64) {
        let Some(part) = self.parts.pop_front() else { return };
        self.gathered = self.gathered.saturating_sub(1);
        if let Some(copy) = part.copy {
            self.usual = copy.bytes.len().min(MOST_USUAL);
            let writes_to = WrittenDictionaries::Unknown;
            self.kept.push_back(Kept { index, records: copy.into_entry(), writes_to });
        }
    }

    /// The records that were noted have become the entry `index` of another member, which are these.
    pub(crate) fn close_as(
        &mut self,
        index: u64,
        records: &EntryBytes,
        writes_to: &WrittenDictionaries,
    ) {
        self.close(index);
        let bytes = records.memory_bytes() as u64;
        if bytes > 0 && self.make_room(bytes) {
            self.copied += bytes;
            let (records, writes_to) = (records.clone(), writes_to.clone());
            self.kept.push_back(Kept { index, records, writes_to });
        }
    }

    /// The records of an entry, where they are in memory.
    pub(crate) fn kept(&self, index: u64) -> Option<EntryBytes> {
        self.find_kept(index).map(|kept| kept.records.clone())
    }

    /// To which dictionaries the commits of an entry write, as far as that is known.
    pub(crate) fn written_dictionaries(&self, index: u64) -> WrittenDictionaries {
        let kept = self.find_kept(index);
        kept.map_or(WrittenDictionaries::Unknown, |kept| kept.writes_to.clone())
    }

    fn find_kept(&self, index: u64) -> Option<&Kept> {
        let at = self.kept.binary_search_by_key(&index, |kept| kept.index).ok()?;
        self.kept.get(at)
    }

    /// Everything that is open is void, and entries from `index` on are.
    pub(crate) fn cut(&mut self, index: u64) {
        self.parts.clear();
        self.gathered = 0;
        while self.kept.back().is_some_and(|kept| kept.index >= index) {
            self.kept.pop_back();
        }
        self.copied = self.kept.iter().map(|kept| kept.records.memory_bytes() as u64).sum();
    }

    /// Bytes of memory that the copies take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(open: &mut OpenRecords, ts: u64, bytes: usize) {
        let bytes = vec![ts as u8; bytes];
        let body = Body::plain(&bytes);
        let place = (ts * 100, ts * 100 + 50);
        open.append(&OpenRecord { place, head: &[], body: &body, newest: (ts, ts * 10) });
    }

    fn parts(open: &OpenRecords) -> Vec<(u64, u64, u64)> {
        let of = |part: &Part| (part.start, part.until, part.records.bytes);
        open.parts.iter().map(of).collect()
    }

    #[test]
    fn a_part_ends_where_it_is_full_or_gathered() {
        let mut open = OpenRecords::new(100, 1000);
        for (ts, bytes) in [(1, 46), (2, 46), (3, 1), (4, 300), (5, 1)] {
            append(&mut open, ts, bytes);
        }
        let all = [(100, 250, 100), (300, 350, 5), (400, 450, 304), (500, 550, 5)];
        assert_eq!(parts(&open), all);
        assert_eq!(open.bytes(), 414);
        let first = open.gather().unwrap();
        assert_eq!((first.last_timestamp, first.last_time, first.bytes), (2, 20, 100));
        assert_eq!(open.gather().unwrap().last_timestamp, 3);
        append(&mut open, 6, 1);
        assert_eq!(open.bytes(), 314, "it came to the last one, which is not gathered");
        assert_eq!(open.gather().unwrap().bytes, 304);
        assert_eq!(open.gather().unwrap().bytes, 10);
        append(&mut open, 7, 1);
        assert_eq!(parts(&open).last(), Some(&(700, 750, 5)), "what was gathered takes no more");
        open.close(1);
        assert_eq!(open.gather().unwrap().last_timestamp, 7);
        assert_eq!((open.gather(), open.bytes()), (None, 0));
        open.ungather();
        assert_eq!(open.gather().unwrap().last_timestamp, 3);
        open.cut(1);
        assert_eq!((open.is_empty(), open.gather(), open.kept(1).is_none()), (true, None, true));
    }

    #[test]
    fn checksums_are_those_of_what_is_sent() {
        let mut open = OpenRecords::new(1000, 1000);
        append(&mut open, 1, 9);
        append(&mut open, 2, 3);
        let sent = [&9_u32.to_le_bytes()[..], &[1; 9], &3_u32.to_le_bytes(), &[2; 3]].concat();
        let records = open.gather().unwrap();
        assert_eq!((records.bytes, records.checksum), (20, crc32c::crc32c(&sent)));
        open.close(7);
        assert_eq!(open.kept(7).as_deref(), Some(&sent[..]));
    }

    #[test]
    fn a_checksum_is_of_all_records_whether_a_copy_of_them_is_kept_or_not() {
        for most_copied in [0, 60, 120, 1000] {
            let mut open = OpenRecords::new(1000, most_copied);
            let mut sent = Vec::new();
            for ts in 1..=3 {
                append(&mut open, ts, 46);
                sent.extend(46_u32.to_le_bytes());
                sent.extend([ts as u8; 46]);
            }
            assert_eq!(open.describe_first().unwrap().records.checksum, crc32c::crc32c(&sent));
            assert_eq!(open.gather().unwrap().checksum, crc32c::crc32c(&sent));
            open.ungather();
            append(&mut open, 4, 1);
            sent.extend([1, 0, 0, 0, 4]);
            let records = open.gather().unwrap();
            assert_eq!((records.bytes, records.checksum), (155, crc32c::crc32c(&sent)));
            assert_eq!(open.describe_first().unwrap().records, records);
            open.close(1);
            assert_eq!(open.kept(1).is_some(), most_copied == 1000);
        }
    }

    #[test]
    fn what_another_member_sent_is_kept_as_it_came_within_the_same_bound() {
        let mut open = OpenRecords::new(10, 250);
        append(&mut open, 1, 96);
        open.close(1);
        open.note_sent((500, 550), 76, (5, 50));
        open.note_sent((600, 650), 76, (6, 60));
        assert_eq!(parts(&open), [(500, 650, 160)], "it is one entry, however long");
        let sent = EntryBytes::from(vec![7; 160]);
        let writes_to = WrittenDictionaries::Known([7].into_iter().collect());
        open.close_as(2, &sent, &writes_to);
        assert_eq!(open.written_dictionaries(2), writes_to);
        assert!(open.is_empty() && open.kept(1).is_none(), "the older one gives way");
        assert!(std::ptr::eq(open.kept(2).unwrap().as_ptr(), sent.as_ptr()), "it is no copy");
        assert_eq!(open.memory_bytes(), 160);
        open.note_sent((700, 750), 296, (7, 70));
        open.close_as(3, &vec![7; 300].into(), &writes_to);
        assert_eq!(open.written_dictionaries(3), WrittenDictionaries::Unknown);
        assert_eq!((open.kept(3), open.memory_bytes()), (None, 0), "what is too long is not kept");
        open.close_as(4, &EntryBytes::default(), &writes_to);
        assert_eq!(open.kept(4), None, "it has no records");
    }

    #[test]
    fn copies_are_within_their_bound() {
        let mut open = OpenRecords::new(100, 250);
        append(&mut open, 1, 96);
        append(&mut open, 2, 96);
        open.close(1);
        assert_eq!(open.memory_bytes(), 200);
        append(&mut open, 3, 96);
        assert_eq!((open.kept(1), open.memory_bytes()), (None, 200), "the oldest entry gives way");
        append(&mut open, 4, 46);
        assert_eq!(open.memory_bytes(), 250);
        append(&mut open, 5, 46);
        assert_eq!(open.memory_bytes(), 200, "a part that may not grow is not kept");
        for index in [2, 3, 4] {
            open.close(index);
        }
        assert_eq!([2, 3, 4].map(|index| open.kept(index).is_some()), [true, true, false]);
        open.cut(3);
        assert_eq!((open.memory_bytes(), open.kept(2).is_some()), (100, true));
    }
}
